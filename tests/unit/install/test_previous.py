"""Going back to the previous environment: only from one that is ours."""

from __future__ import annotations

import shutil
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gpuinstall.environments.paths import EnvironmentPaths
from gpuinstall.environments.records import forget, remember
from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.install.previous import remove, roll_back
from gpuinstall.install.scripts import Script
from gpuinstall.install.swap import swap_in
from gpuinstall.reporter import SilentReporter
from tests.unit.install.environments import make_environment, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnvironmentPaths:
    """A previous environment that was made here, and nothing in its place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = EnvironmentPaths(tmp_path / ".venv")
    make_environment(paths.previous, "previous")
    remember(paths.venv, "previous")
    return paths


def test_what_gpuinstall_did_not_make_is_not_replaced(paths: EnvironmentPaths) -> None:
    paths.venv.mkdir()
    (paths.venv / "pyvenv.cfg").touch()

    with pytest.raises(UsageError) as raised:
        roll_back(paths, 0, SilentReporter())

    assert (raised.value.code, raised.value.hint) == (
        "not-ours",
        f"mv {paths.venv} {paths.venv}.other   # then the same again",
    )
    assert (paths.venv / "pyvenv.cfg").exists()
    assert name_of(paths.previous) == "previous"


def test_what_others_made_comes_back_and_goes_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = EnvironmentPaths(tmp_path / "project" / ".venv")
    (paths.venv / "bin").mkdir(parents=True)
    (paths.venv / "thesis.txt").write_text("mine")
    make_environment(paths.staging, "ours")
    remember(paths.venv, "ours")
    swap_in(paths, paths.staging, SilentReporter())

    roll_back(paths, 0, SilentReporter())
    assert {path.name for path in paths.venv.iterdir()} == {"bin", "thesis.txt"}
    assert name_of(paths.previous) == "ours"

    roll_back(paths, 0, SilentReporter())
    assert name_of(paths.venv) == "ours"
    assert {path.name for path in paths.previous.iterdir()} == {"bin", "thesis.txt"}


def test_a_previous_that_came_with_the_folder_is_refused(paths: EnvironmentPaths) -> None:
    forget(paths.venv)
    for marker in ("previous", "inode:1", None):
        (paths.previous / "gpuinstall.json").unlink()
        if marker:
            shutil.rmtree(paths.previous)
            make_environment(paths.previous, marker)

        with pytest.raises(UsageError) as raised:
            roll_back(paths, 0, SilentReporter())

        assert raised.value.code == "not-made-here", marker


def test_the_previous_comes_back_to_an_empty_place(paths: EnvironmentPaths) -> None:
    roll_back(paths, 0, SilentReporter())

    assert name_of(paths.venv) == "previous"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no program that runs")
def test_the_environment_of_a_script_that_runs_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = Script(tmp_path / "train.py", ("torch",), None).paths
    make_environment(paths.venv, "script")
    with running_in(paths.folder):
        with pytest.raises(InstallationError, match="a program runs in") as raised:
            remove(paths, 0, SilentReporter(), previous_only=False, with_packages=True)
        assert raised.value.code == "busy"
        assert name_of(paths.venv) == "script"

    remove(paths, 0, SilentReporter(), previous_only=False, with_packages=True)

    assert not paths.venv.exists()


@contextmanager
def running_in(folder: Path) -> Iterator[None]:
    """Run a program in an environment of the cache, as ``gpuinstall run`` does."""
    code = f"from gpuinstall.in_use import hold; print(hold({str(folder)!r}), flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"True\n"
        yield
        program.kill()
