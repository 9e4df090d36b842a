"""A temporary folder of a run is another run's to remove once that has ended, however it ended."""

import os
import subprocess
import sys

import pytest

from gpuinstall.base.in_use import IN_USE, hold_alone, remove_abandoned, scratch_folder

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows has no such locks"
)
HOLDS = """
import sys
from pathlib import Path
from gpuinstall.base.in_use import hold_alone
print(hold_alone(Path(sys.argv[1])) is not None, flush=True)
input()
"""


def test_a_folder_is_held_until_the_run_ends(tmp_path):
    command = [sys.executable, "-c", HOLDS, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"True\n"
        assert hold_alone(tmp_path) is None
        program.kill()
    descriptor = hold_alone(tmp_path)
    assert descriptor is not None
    os.close(descriptor)


def test_a_folder_whose_lock_is_no_file_is_never_removed(tmp_path):
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / IN_USE).symlink_to("/dev/zero")
    (tmp_path / "folder" / IN_USE).mkdir(parents=True)
    assert hold_alone(tmp_path / "link") is None
    assert hold_alone(tmp_path / "folder") is None


def test_only_what_a_killed_run_left_is_removed(tmp_path):
    (tmp_path / "gpuinstall-notes").mkdir()
    for name in ("gpuinstall-killed", "gpuinstall-new"):
        (tmp_path / name / "uv").mkdir(parents=True)
        (tmp_path / name / IN_USE).touch()
    os.utime(tmp_path / "gpuinstall-killed" / IN_USE, (0, 0))
    with scratch_folder(tmp_path) as running:
        os.utime(running / IN_USE, (0, 0))
        (tmp_path / "gpuinstall-link").symlink_to(running)

        remove_abandoned(tmp_path)

        left = {entry.name for entry in tmp_path.iterdir()}
        assert left == {
            "gpuinstall-link",
            "gpuinstall-new",
            "gpuinstall-notes",
            running.name,
        }

    assert not running.exists()
