"""Which folder of the cache a running program uses, so that nobody removes it meanwhile.

A file in the folder is locked by ``run`` and stays locked by the program that it becomes, until that
ends, however it ends. This module is imported before all that takes long to import.
"""

from __future__ import annotations

import os
import sys

if sys.platform != "win32":
    import fcntl

IN_USE = "in-use"
_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FIRST_DESCRIPTOR = 100
"""Shell scripts take lower ones for themselves (``exec 3>file``), which would end the lock."""
_descriptors: dict[str, int] = {}
"""The lock of each folder that this process holds."""


def hold(folder: str) -> bool:
    """Hold a folder as long as this process, or what it becomes, lives.

    Returns:
        Whether the folder is there and stays; False if it has been removed in this moment. True too
        if nothing can be locked: then nobody can remove it either.
    """
    if folder in _descriptors:
        return True
    descriptor = _open(folder)
    if descriptor is None:
        return os.path.isdir(folder)
    if not _lock(descriptor, alone=False):
        os.close(descriptor)
        return True
    if not _lies_in(folder, descriptor):
        os.close(descriptor)
        return False
    _descriptors[folder] = _kept_open(descriptor)
    return True


def claim(folder: str) -> bool:
    """Have a folder that this process holds for it alone, to change what others use; ``share`` ends it.

    Returns:
        Whether nobody else uses it. True too if nothing can be locked.
    """
    descriptor = _descriptors.get(folder)
    if descriptor is None or _lock(descriptor, alone=True):
        return True
    share(folder)  # a lock that cannot become exclusive is lost
    return False


def share(folder: str) -> None:
    """Let others use a folder that this process holds."""
    if folder in _descriptors:
        _lock(_descriptors[folder], alone=False)


def hold_alone(folder: str) -> int | None:
    """Hold a folder that nobody uses, to remove it.

    Returns:
        The descriptor to close; None if it is in use, or nobody can say.
    """
    descriptor = _open(folder)
    if descriptor is None:
        return None
    if _lock(descriptor, alone=True) and _lies_in(folder, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _open(folder: str) -> int | None:
    try:
        return os.open(os.path.join(folder, IN_USE), _FLAGS, 0o600)
    except OSError:
        return None


def _lock(descriptor: int, *, alone: bool) -> bool:
    if sys.platform == "win32":  # which removes no program that runs
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except OSError:
        return False
    return True


def _lies_in(folder: str, descriptor: int) -> bool:
    """Whether the folder still has the file that was opened: another run may have removed it."""
    try:
        status = os.lstat(os.path.join(folder, IN_USE))
    except OSError:
        return False
    return os.path.samestat(status, os.fstat(descriptor))


def _kept_open(descriptor: int) -> int:
    """Have what this process becomes inherit the lock; return the descriptor that it inherits."""
    if sys.platform == "win32":  # where the program is a child, and this process waits for it
        return descriptor
    try:
        inherited = fcntl.fcntl(descriptor, fcntl.F_DUPFD, _FIRST_DESCRIPTOR)
    except OSError:  # a limit of open files below that
        os.set_inheritable(descriptor, True)
        return descriptor
    os.close(descriptor)
    return inherited
