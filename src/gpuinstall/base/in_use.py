"""Temporary folders of a run.

A run locks a file in its folder. The operating system releases it, however the run
ends.
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
"""In seconds. A younger folder may not be locked yet."""


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary folder, after removing the folders of killed runs."""
    from filelock import FileLock

    remove_abandoned(parent)
    scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with ExitStack() as stack:
            with suppress(OSError, NotImplementedError):  # not all file systems lock
                stack.enter_context(FileLock(scratch / IN_USE))
            yield scratch
    finally:
        remove_path(scratch)


def remove_abandoned(parent: Path) -> None:
    """Remove the unlocked temporary folders of this user."""
    from filelock import FileLock

    for mark in parent.glob(f"{_PREFIX}*/{IN_USE}"):
        scratch = mark.parent
        # The lock of another run raises TimeoutError, an OSError.
        with suppress(OSError, NotImplementedError):
            is_new = time() - mark.lstat().st_mtime < _LEAST_AGE
            if is_new or not is_folder(scratch) or not is_trusted(scratch):
                continue
            with FileLock(mark, timeout=0):
                pass
            remove_path(scratch)
