"""Two folders change places in one stroke of the kernel, where it can."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
_UNSUPPORTED = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP}


def exchange(one: Path, other: Path) -> bool:
    """Exchange two folders of one file system; False where the system cannot. Raise OSError where it may not."""
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform == "linux":
        return _call("renameat2", _AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE))
    if sys.platform == "darwin":
        return _call("renamex_np", names[0], names[1], ctypes.c_uint(_RENAME_SWAP))
    return False


def _call(function: str, *arguments: object) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), function, None)
    if rename is None:
        return False
    if rename(*arguments) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number))
