"""Removal of abandoned temporary folders."""

import os
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from gpuinstall.base.removal import (
    IN_USE,
    remove_abandoned,
    scratch_folder,
)

HOLDS = """
import sys
from pathlib import Path
from gpuinstall.base.removal import scratch_folder
with scratch_folder(Path(sys.argv[1])) as scratch:
    print(scratch, flush=True)
    input()
"""


def test_temporary_directory_is_kept_while_in_use(tmp_path):
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        scratch = Path(program.stdout.readline().strip())
        os.utime(scratch / IN_USE, (0, 0))
        remove_abandoned(tmp_path)
        assert scratch.is_dir()
        program.kill()
    remove_abandoned(tmp_path)
    assert not scratch.exists()


def made(folder, seconds=0):
    """Create the temporary folder of a run killed some seconds after 1970."""
    (folder / "uv").mkdir(parents=True)
    (folder / IN_USE).touch()
    os.utime(folder / IN_USE, (seconds, seconds))
    return folder


def test_only_folders_of_killed_runs_are_removed(tmp_path):
    new, notes = (
        made(tmp_path / "gpuinstall-new", time()),
        tmp_path / "gpuinstall-notes",
    )
    notes.mkdir()
    made(tmp_path / "gpuinstall-killed")
    with scratch_folder(tmp_path) as running:
        os.utime(running / IN_USE, (0, 0))
        link = tmp_path / "gpuinstall-link"
        link.symlink_to(running)

        remove_abandoned(tmp_path)

        assert {*tmp_path.iterdir()} == {link, new, notes, running}

    assert not running.exists()


@pytest.mark.root
def test_temporary_folders_of_other_users_are_kept(tmp_path):
    made(tmp_path / "gpuinstall-mine")
    theirs = made(tmp_path / "gpuinstall-theirs")
    os.chown(theirs, 65534, 65534)
    remove_abandoned(tmp_path)
    assert [*tmp_path.iterdir()] == [theirs]
