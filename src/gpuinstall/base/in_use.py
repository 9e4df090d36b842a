"""Temporary folders of a run.

A file in a temporary folder is locked as long as its run lives, however it ends.
"""

from __future__ import annotations

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
