"""Folders in use: temporary ones, by a run, so that another does not take them for abandoned; any, by programs.

A file in a temporary folder is locked as long as its run lives, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import time

from gpuinstall.base.owners import is_trusted
from gpuinstall.base.removal import is_folder, remove_path

_PREFIX = "gpuinstall-"
IN_USE = "in-use"
_LEAST_AGE = 60
"""In seconds."""


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder for this run alone, which goes with it; folders of killed runs go first."""
    from filelock import FileLock

    remove_abandoned(parent)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with ExitStack() as stack:
            # Until this run ends, or is killed, no other one takes the folder for abandoned. Not every file system
            # has locks.
            with suppress(OSError, NotImplementedError):
                stack.enter_context(FileLock(scratch / IN_USE))
            yield scratch
    finally:
        remove_path(scratch)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of this user's runs that were killed; a run has locked its own."""
    from filelock import FileLock

    for mark in parent.glob(f"{_PREFIX}*/{IN_USE}"):
        scratch = mark.parent
        # A lock that another run holds is a TimeoutError, which is an OSError.
        with suppress(OSError, NotImplementedError):
            # One that is being made is not locked yet.
            is_new = time() - mark.lstat().st_mtime < _LEAST_AGE
            if is_new or not is_folder(scratch) or not is_trusted(scratch):
                continue
            with FileLock(mark, timeout=0):
                pass
            remove_path(scratch)


def programs_in(folder: Path) -> list[str]:
    """Return this user's programs that were started from a folder, work in it or have loaded a file of it.

    Args:
        folder: The folder.

    Returns:
        Their names and numbers, as people read them.
    """
    if sys.platform == "linux":
        return [
            f"{_name_of(process)} (process {process.name})"
            for process in sorted(Path("/proc").glob("[0-9]*"))
            if _uses(process, os.path.realpath(folder))
        ]
    if os.name == "nt":
        return []  # Windows removes nothing that is in use
    # It tells how a program was started; where it works, and what it has loaded, it does not.
    command = ["ps", "-xww", "-o", "command="]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if f"{folder}/" in line]


def _uses(process: Path, folder: str) -> bool:
    """Whether a process of Linux uses a folder; one of another user does not tell."""
    with suppress(OSError):
        working = os.readlink(process / "cwd")
        words = (process / "cmdline").read_text("utf-8", "surrogateescape").split("\0")
        # A script of the environment is the second word of its Python.
        started = [os.path.join(working, word) for word in words[:2]]
        if any(f"{path}/".startswith(f"{folder}/") for path in (working, *started)):
            return True
        return f" {folder}/" in (process / "maps").read_text("utf-8", "surrogateescape")
    return False


def _name_of(process: Path) -> str:
    with suppress(OSError):
        return (process / "comm").read_text("utf-8", "replace").strip()
    return "a program"
