"""A folder of the cache that a program uses stays, until that ends, however it ends."""

import os
import subprocess
import sys

import pytest

from gpuinstall.base.in_use import IN_USE, claim, hold, hold_alone, share

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows removes no program that runs"
)
BECOMES_CAT = """
import os, sys
from gpuinstall.base.in_use import hold
assert hold(sys.argv[1])
os.execvp("sh", ["sh", "-c", "exec 3>&-; echo held; exec cat"])
"""


def test_a_folder_is_held_until_the_program_that_the_process_became_ends(tmp_path):
    command = [sys.executable, "-c", BECOMES_CAT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        assert hold_alone(str(tmp_path)) is None
        program.kill()
    descriptor = hold_alone(str(tmp_path))
    assert descriptor is not None
    os.close(descriptor)


def test_a_folder_that_is_removed_in_the_moment_is_not_held(tmp_path):
    assert not hold(str(tmp_path / "gone"))


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_folder_whose_lock_is_no_file_is_never_removed(tmp_path, kind):
    place = tmp_path / IN_USE
    match kind:
        case "pipe":
            os.mkfifo(place)
        case "link":
            place.symlink_to("/dev/zero")
        case _:
            place.mkdir()
    assert hold(str(tmp_path))
    assert hold_alone(str(tmp_path)) is None


def test_a_folder_that_another_program_uses_cannot_be_claimed(tmp_path):
    command = [sys.executable, "-c", BECOMES_CAT, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        assert hold(str(tmp_path))
        assert not claim(str(tmp_path))
        program.kill()
    assert claim(str(tmp_path))
    share(str(tmp_path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"held\n"
        program.kill()
