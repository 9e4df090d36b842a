"""Folders in use: a temporary one is another run's to remove once its own has ended; programs that use a folder."""

import os
import subprocess
import sys
from pathlib import Path
from time import time

import pytest

from gpuinstall.base.in_use import (
    IN_USE,
    programs_in,
    remove_abandoned,
    scratch_folder,
)

HOLDS = """
import sys
from pathlib import Path
from gpuinstall.base.in_use import scratch_folder
with scratch_folder(Path(sys.argv[1])) as scratch:
    print(scratch, flush=True)
    input()
"""


def test_a_folder_is_held_until_the_run_ends(tmp_path):
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
    """Make the temporary folder of a run that was killed some seconds after 1970."""
    (folder / "uv").mkdir(parents=True)
    (folder / IN_USE).touch()
    os.utime(folder / IN_USE, (seconds, seconds))
    return folder


def test_only_what_a_killed_run_left_is_removed(tmp_path):
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
def test_temporary_folders_of_other_users_stay(tmp_path):
    made(tmp_path / "gpuinstall-mine")
    theirs = made(tmp_path / "gpuinstall-theirs")
    os.chown(theirs, 65534, 65534)
    remove_abandoned(tmp_path)
    assert [*tmp_path.iterdir()] == [theirs]


@pytest.mark.skipif(sys.platform != "linux", reason="processes of Linux")
def test_programs_that_use_a_folder_are_named(tmp_path):
    used = tmp_path / "my env"
    (used / "bin").mkdir(parents=True)
    (used / "bin" / "python").symlink_to(sys.executable)
    (used / "a file").write_bytes(bytes(4096))
    sleep = "print(flush=True); input()"
    maps = f"import mmap; file = open({str(used / 'a file')!r}); held = mmap.mmap(file.fileno(), 0, prot=1); "
    programs = {
        "started from it": {"args": [used / "bin" / "python", "-c", sleep]},
        "works in it": {"args": [sys.executable, "-c", sleep], "cwd": used},
        "has loaded a file": {"args": [sys.executable, "-c", maps + sleep]},
    }
    for name, words in programs.items():
        with subprocess.Popen(
            **words, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as program:
            assert program.stdout is not None
            program.stdout.readline()
            named = "".join(programs_in(used))
            program.kill()
        assert f"(process {program.pid})" in named, name
    assert programs_in(used) == []
