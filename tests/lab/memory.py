"""Temporary files in memory: a session creates 800,000 of them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own is made there
ROOM = 8 << 30
"""The required free bytes of memory. A session uses 3 GB."""


def move_in() -> Callable[[], object]:
    """Keep temporary files of this process and its children in memory.

    A folder that the user set has precedence. The disk is used if memory is short or
    mounted noexec.

    Returns:
        The command that removes the files, or None.
    """
    if "TMPDIR" in os.environ or not has_room():
        return lambda: None
    folder = Path(tempfile.mkdtemp(prefix="gpuinstall-tests-", dir=MEMORY))
    folder.chmod(0o711)  # Tests with another user's permissions enter this folder.
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # rm is several times faster than Python. PATH may change before it starts.
    remove = shutil.which("rm") or "rm"
    return lambda: subprocess.run([remove, "-rf", folder], check=False)


def has_room() -> bool:
    """Return whether memory has enough space and allows programs."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return False
    status = os.statvfs(MEMORY)
    may_execute = not status.f_flag & os.ST_NOEXEC
    return may_execute and status.f_bavail * status.f_frsize >= ROOM
