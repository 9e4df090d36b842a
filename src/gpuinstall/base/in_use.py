"""Temporary folders: which of them a run uses, so that another one does not take it for abandoned.

A file in the folder is locked as long as the run lives, however it ends.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from gpuinstall.base.files import is_folder, is_of_this_user, remove_path

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "gpuinstall-"
IN_USE = "in-use"
_LEAST_AGE = 60
"""In seconds."""
_FLAGS = (
    os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a new folder of this run alone, which goes with it; those of runs that were killed go first."""
    remove_abandoned(parent)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    # Until this run ends, or is killed, no other one takes the folder for abandoned.
    descriptor = hold_alone(scratch)
    try:
        yield scratch
    finally:
        remove_path(scratch)
        if descriptor is not None:
            os.close(descriptor)


def remove_abandoned(parent: Path) -> None:
    """Remove the temporary folders of this user's runs that were killed; a run has locked its own."""
    for mark in parent.glob(f"{_PREFIX}*/{IN_USE}"):
        scratch = mark.parent
        with suppress(OSError):
            # One that is being made is not locked yet.
            is_new = time() - mark.lstat().st_mtime < _LEAST_AGE
            if is_new or not is_folder(scratch) or not is_of_this_user(scratch):
                continue
            descriptor = hold_alone(scratch)
            if descriptor is not None:
                remove_path(scratch)
                os.close(descriptor)


def hold_alone(folder: Path) -> int | None:
    """Hold a folder that nobody uses, to work in it or to remove it.

    Returns:
        The descriptor to close; None if it is in use, or the system cannot say.
    """
    if os.name == "nt":  # which has no such locks, and removes no file that is open
        return None
    try:
        descriptor = os.open(folder / IN_USE, _FLAGS, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another run may have removed the file meanwhile.
        if os.path.samestat((folder / IN_USE).lstat(), os.fstat(descriptor)):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
