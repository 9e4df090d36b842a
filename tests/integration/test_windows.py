"""Tests of commands under Windows' rules for files and programs."""

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.test_install import leftovers
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
def test_install_upgrade_and_rollback_leave_no_files(workshop):
    workshop.document("install", "torch==2.13.0")
    assert workshop.entries() == {".venv", "pylock.cu126.toml"}
    assert (workshop.folder / ".venv" / "gpuinstall-constraints.txt").is_file()
    workshop.document("install", "torch==2.14.1")
    assert (torch_in(workshop), leftovers(workshop)) == ("2.14.1", set())
    workshop.document("env", "rollback")
    assert leftovers(workshop) == set()
    code = "import sys, torch; print(sys.prefix, torch.__version__)"
    done = workshop.run("run", "python", "-c", code)
    assert done.out.strip() == f"{workshop.folder / '.venv'} 2.13.0+cu126", (
        "the environment's Python, and not the tool's own"
    )
    assert workshop.run("run", "no-such-program").status == 2
    assert [*(workshop.folder.parent / "temporary").iterdir()] == []


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


@pytest.mark.heavy
def test_file_in_use_is_not_replaced(workshop):
    workshop.document("install", "torch==2.13.0")
    site = next((workshop.folder / ".venv").glob("lib/python*/site-packages"))
    with (site / "torch" / "__init__.py").open():
        refused = error(workshop, "install", "torch==2.14.1")
        assert "The process cannot access the file" in refused["message"]
        # Commands that do not change this file continue.
        workshop.document("install", "numpy")
    assert torch_in(workshop) == "2.13.0"
    workshop.document("install", "torch==2.14.1")
    assert (torch_in(workshop), leftovers(workshop)) == ("2.14.1", set())


@pytest.mark.heavy
def test_lock_sync_and_remove_leave_no_files(workshop):
    workshop.document("lock", "torch==2.13.0", "numpy")
    workshop.document("sync")
    assert (
        workshop.python("import numpy, torch; print(torch.__version__)")
        == "2.13.0+cu126"
    )
    workshop.document("remove", "numpy")
    assert (torch_in(workshop), leftovers(workshop)) == ("2.13.0", set())
    assert [*(workshop.folder.parent / "temporary").iterdir()] == []
