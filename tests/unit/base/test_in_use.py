"""A temporary folder of a run is another run's to remove once that has ended, however it ended."""

import os
import subprocess
import sys
from pathlib import Path

from gpuinstall.base.in_use import IN_USE, remove_abandoned, scratch_folder

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
