"""A running environment under Windows' rules for folders in use."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab import windows
from tests.lab.driver import RTX_4090
from tests.lab.workshop import Workshop

AGAIN = "Close the programs that use it, then run it again"
SLEEP = "print(flush=True); import time; time.sleep(600)"


@pytest.fixture
def workshop(stand_in, play, tmp_path):
    play(RTX_4090)
    (tmp_path / "temporary").mkdir()
    played = {windows.FOLDER: str(tmp_path), "TMPDIR": str(tmp_path / "temporary")}
    return Workshop.made(tmp_path, {**stand_in.environment(), **played})


@contextmanager
def running(program, folder):
    """Start a Python process that does not end."""
    command = [str(program), "-c", SLEEP]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL
    ) as started:
        assert started.stdout is not None
        started.stdout.readline()
        try:
            yield
        finally:
            started.kill()


def torch_in(workshop):
    return workshop.python("import torch; print(torch.__version__)").partition("+")[0]


def error(workshop, *arguments):
    return workshop.refusal(*arguments, exit_code=4)


@pytest.mark.heavy
def test_environment_in_use_can_be_changed(
    workshop,
):
    workshop.document("install", "torch==2.13.0")
    venv = workshop.folder / ".venv"
    with running(venv / "Scripts" / "python.exe", workshop.folder):
        workshop.document("install", "torch==2.14.1")
        assert torch_in(workshop) == "2.14.1"
        assert error(workshop, "env", "remove", "--yes")["hint"] == AGAIN
    with running(Path(sys.executable), venv / "Lib"):
        assert error(workshop, "env", "remove", "--yes")["hint"] == AGAIN
    assert torch_in(workshop) == "2.14.1"
    workshop.document("env", "remove", "--yes")
    assert workshop.entries() == {"pylock.cu126.toml"}
