"""The environments of scripts: which one a script has, which locks, and which of them go."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.records import remember
from gpuinstall.install.hold import hold
from gpuinstall.install.removal import find_prunable, prune, remove_cache
from gpuinstall.install.scripts import Script, read_script
from gpuinstall.sources.requirements_file import RequirementsFile
from tests.lab.environments import put_package
from tests.lab.listener import Listener
from tests.lab.parsed import required
from tests.unit.install.environments import make_environment


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache" / "gpuinstall" / "scripts"


SCRIPT = """# /// script
# dependencies = ["dep"]
# [tool.uv.sources]
# dep = { path = "dep" }
# ///
"""


@pytest.mark.usefixtures("cache")
def test_a_script_has_one_environment_from_wherever_it_is_started(
    tmp_path, monkeypatch
):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text(SCRIPT)
    environments = set()
    for folder, file in ((".", "a.py"), ("inner", "../a.py")):
        monkeypatch.chdir(tmp_path / folder)
        script = read_script(Path(file))
        assert script
        environments.add(script.paths.venv)
    assert len(environments) == 1


def make_cached(cache, name):
    """Make a script's environment; return its folder."""
    venv = cache / name / ".venv"
    venv.parent.mkdir(parents=True)
    make_environment(venv, name)
    remember(venv, name)
    site = venv / "lib" / "python3.12" / "site-packages"
    put_package(site, "torch", {"torch/lib.so": ""}, version="2.14.1")
    return venv.parent


def test_what_lies_in_the_cache_goes_but_what_another_run_changes_or_has_made(cache):
    make_cached(cache, "idle")
    installing = EnvironmentPaths(make_cached(cache, "installing") / ".venv")
    (cache / "failed").mkdir()
    theirs = make_cached(cache, "others") / ".venv"
    (theirs / "gpuinstall.json").unlink()
    with hold(installing, Reporter(), wait=0):
        removed = prune(Reporter())
    assert set(removed) == {cache / "idle", cache / "failed"}
    assert {folder.name for folder in cache.iterdir()} == {"installing", "others"}
    assert (theirs / "lib").exists()


def test_a_file_of_the_user_in_the_cache_is_kept(cache):
    folder = make_cached(cache, "old")
    (folder / ".venv" / "notes.txt").write_text("mine")
    for _ in range(2):
        prune(Reporter())
        [kept] = folder.glob(".venv.kept/*/.venv/notes.txt")
        assert kept.read_text() == "mine"
        assert not (folder / ".venv").exists()
    assert find_prunable() == {}


def test_the_environment_of_a_script_that_runs_stays_and_the_program_is_named(cache):
    venv = make_cached(cache, "running") / ".venv"
    (venv / "bin" / "python").unlink()
    (venv / "bin" / "python").symlink_to(sys.executable)
    listener = Listener()
    with subprocess.Popen(
        [venv / "bin" / "python", "-c", "print(flush=True); input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        assert prune(listener) == {}
        assert remove_cache(listener) == [venv.parent]
        program.kill()
    assert venv.exists()
    stays = f"{venv.parent} stays: python (process {program.pid}) uses it"
    assert listener.warnings == [stays] * 2


def test_of_the_cache_only_our_own_files_go(cache, tmp_path):
    old = make_cached(cache, "old")
    (old / ".venv" / "notes.txt").write_text("mine")
    own = cache.parent
    (tmp_path / "elsewhere" / "thesis").mkdir(parents=True)
    (own / "pages").symlink_to(tmp_path / "elsewhere")
    for folder in ("stamps", "learned", "gpuinstall-x1"):
        (own / folder).mkdir()
    (own / "mine.txt").touch()
    assert remove_cache(Reporter()) == [own / "mine.txt", old]
    assert {path.name for path in own.iterdir()} == {"mine.txt", "scripts"}
    assert len([*old.glob(".venv.kept/*/.venv/notes.txt")]) == 1
    assert (tmp_path / "elsewhere" / "thesis").is_dir()


def test_every_name_of_a_script_has_a_place(cache):
    names = {
        "train.py": "train",
        "\udcff.py": "_",
        "ä b'.py": "ä_b_",
        f"{'n' * 250}.py": "n" * 40,
        "-c.py": "-c",
    }
    listed = RequirementsFile(required("torch"))
    for name, expected in names.items():
        place = Script(Path(name), listed, None).paths.folder
        assert (place.name.rpartition("-")[0], place.parent) == (expected, cache)
