"""Removing an environment: not while a program runs in it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.install.removal import remove
from gpuinstall.install.scripts import Script
from tests.unit.install.environments import make_environment, name_of


@pytest.mark.skipif(sys.platform == "win32", reason="Windows removes no program that runs")
def test_the_environment_of_a_script_that_runs_is_not_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    paths = Script(tmp_path / "train.py", ("torch",), None).paths
    make_environment(paths.venv, "script")
    with running_in(paths.folder):
        with pytest.raises(InstallationError, match="a program runs in") as raised:
            remove(paths, SilentReporter(), wait=0, previous_only=False, with_packages=True)
        assert raised.value.code == "busy"
        assert name_of(paths.venv) == "script"

    remove(paths, SilentReporter(), wait=0, previous_only=False, with_packages=True)

    assert not paths.venv.exists()


@contextmanager
def running_in(folder: Path) -> Iterator[None]:
    """Run a program in an environment of the cache, as ``gpuinstall run`` does."""
    code = f"from gpuinstall.base.in_use import hold; print(hold({str(folder)!r}), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"True\n"
        yield
        program.kill()
