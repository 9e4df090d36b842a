"""The environments of scripts: which one a script has, which locks, and which of them go."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.environments.records import remember
from gpuinstall.errors import LockError
from gpuinstall.in_use import IN_USE, hold
from gpuinstall.install import scripts
from gpuinstall.install.environment_lock import environment_lock
from gpuinstall.install.scripts import Script, remove_unused_scripts
from gpuinstall.reporter import SilentReporter
from tests.unit.install.environments import lock_text, make_environment

if TYPE_CHECKING:
    from pathlib import Path

DAY = 24 * 3600


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "cache" / "gpuinstall" / "scripts"


def make_unused(cache: Path, name: str, days: float, size: int = 0) -> Path:
    """Make a script's environment that was used some days ago."""
    venv = cache / name / ".venv"
    venv.parent.mkdir(parents=True)
    make_environment(venv, name)
    remember(venv, name)
    torch = venv / "lib" / "python3.12" / "site-packages" / "torch-2.14.1.dist-info"
    (torch / "RECORD").write_text("torch/lib.so,,\ntorch-2.14.1.dist-info/RECORD,,\n")
    (torch.parent / "torch").mkdir()
    (torch.parent / "torch" / "lib.so").write_bytes(bytes(size))
    in_use = venv.parent / IN_USE
    in_use.touch()
    os.utime(in_use, (time.time() - days * DAY,) * 2)
    return venv.parent


def names(cache: Path) -> set[str]:
    return {folder.name for folder in cache.iterdir()}


def test_what_was_unused_for_14_days_goes_and_what_is_in_use_stays(cache: Path) -> None:
    for name, days in {"old": 15, "recent": 13}.items():
        make_unused(cache, name, days)
    running = make_unused(cache, "running", 0)
    assert hold(str(running))
    os.utime(running / IN_USE, (0, 0))
    installing = EnvironmentPaths(make_unused(cache, "installing", 99) / ".venv")
    (cache / "failed").mkdir()
    os.utime(cache / "failed", (0, 0))
    with environment_lock(installing, 0, SilentReporter()):
        remove_unused_scripts(SilentReporter())
    assert names(cache) == {"recent", "running", "installing"}


def test_a_file_of_the_user_in_an_unused_environment_is_kept(cache: Path) -> None:
    folder = make_unused(cache, "old", 15)
    (folder / ".venv" / "notes.txt").write_text("mine")
    remove_unused_scripts(SilentReporter())
    assert [path.relative_to(folder).parts[::2] for path in folder.rglob("*.txt")] == [
        (".venv.kept", "notes.txt")
    ]
    assert not (folder / ".venv").exists()


def test_the_oldest_go_while_all_have_too_many_bytes(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scripts, "MOST_SCRIPT_BYTES", 250_000)
    for days in range(4):
        make_unused(cache, str(days), days, size=100_000)
    remove_unused_scripts(SilentReporter())
    assert names(cache) == {"0", "1"}


@pytest.mark.usefixtures("cache")
def test_the_locks_of_an_environment_are_those_beside_its_script(tmp_path: Path) -> None:
    script = Script(tmp_path / "train.py", ("torch",), None)
    script.locks.mkdir()
    good, bad = script.locks / "pylock.cu126.toml", script.locks / "pylock.cpu.toml"
    bad.write_text("damaged")
    good.write_text(lock_text())
    folder = script.paths.folder
    folder.mkdir(parents=True)
    script.bring_locks()
    assert {path.name for path in folder.iterdir()} == {good.name, bad.name}
    bad.unlink()
    script.bring_locks()
    assert {path.name: path.read_text() for path in folder.iterdir()} == {good.name: lock_text()}
    make_environment(script.paths.venv, "own")
    (folder / good.name).write_text("damaged")
    good.unlink()
    script.bring_locks()
    assert (folder / good.name).read_text() == lock_text(), "its environment's own"


@pytest.mark.skipif(sys.platform == "win32", reason="no pipes among files")
def test_a_lock_of_a_script_that_is_no_file_is_named(cache: Path, tmp_path: Path) -> None:
    script = Script(tmp_path / "train.py", ("torch",), None)
    script.locks.mkdir()
    os.mkfifo(script.locks / "pylock.cpu.toml")
    with pytest.raises(
        LockError, match=r"pylock\.cpu\.toml cannot be read: it is not a regular file"
    ) as refused:
        script.bring_locks()
    assert not cache.exists()
    assert (refused.value.hint or "").startswith(
        f"gpuinstall lock --script {script.file} --upgrade"
    )


def test_every_name_of_a_script_has_a_place(cache: Path, tmp_path: Path) -> None:
    files = [
        tmp_path / name for name in ("train.py", "\udcff.py", "ä b'.py", f"{'n' * 250}.py", "-c.py")
    ]
    places = [Script(file, ("torch",), None).paths.folder for file in files]
    assert [place.name.rpartition("-")[0] for place in places] == [
        "train",
        "_",
        "ä_b_",
        "n" * 40,
        "-c",
    ]
    assert {place.parent for place in places} == {cache}


def test_an_environment_that_is_not_ours_stays(cache: Path) -> None:
    folder = make_unused(cache, "the user's", 30)
    (folder / ".venv" / "gpuinstall.json").unlink()

    remove_unused_scripts(SilentReporter())

    assert (folder / ".venv" / "lib").exists()
