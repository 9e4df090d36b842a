"""Temporary files in memory, for a session that ends in minutes: it makes 800,000 of them, and none is to last."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made there
ROOM = 8 << 30
"""The bytes that have to be free: a session takes three gigabytes."""


def move_in() -> Callable[[], object]:
    """Let this process and its children keep temporary files in memory; return what takes them away.

    A folder that the user named stays, as does the disk where memory is short or no program may be started from it.
    """
    if "TMPDIR" in os.environ or not has_room():
        return lambda: None
    folder = Path(tempfile.mkdtemp(prefix="gpuinstall-tests-", dir=MEMORY))
    folder.chmod(0o711)  # a test of another user's rights lets that user in
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # A program of one purpose removes so many several times faster than Python. PATH may change before it starts.
    remove = shutil.which("rm") or "rm"
    return lambda: subprocess.run([remove, "-rf", folder], check=False)


def has_room() -> bool:
    """Whether a session's temporary files fit into memory, and programs among them can be started."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    status = os.statvfs(MEMORY)
    may_execute = not status.f_flag & os.ST_NOEXEC
    return may_execute and status.f_bavail * status.f_frsize >= ROOM
