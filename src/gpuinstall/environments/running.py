"""Find out whether an interrupted change may still be running.

The operating system's lock decides. Only a lock of another machine, or a file system without
locks, requires the identity of the process in the journal.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from contextlib import suppress
from pathlib import Path

from gpuinstall.base.codec import read_object
from gpuinstall.base.environment_paths import JOURNAL, EnvironmentPaths
from gpuinstall.base.files import read_json, try_lock
from gpuinstall.base.removal import read_file_system_type
from gpuinstall.base.values import Value
from gpuinstall.environments.stamp import read_boot_id, read_file_stamp

_LOCAL = {
    "aufs",
    "bcachefs",
    "btrfs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
    "fuseblk",
    "jfs",
    "ntfs3",
    "overlay",
    "ramfs",
    "reiserfs",
    "tmpfs",
    "vfat",
    "xfs",
    "zfs",
}
"""The types of file systems that only one machine mounts."""
_REMOTE = 4
"""The type of a network drive on Windows (``DRIVE_REMOTE``)."""
_WITHOUT_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of file systems that have no locks."""


class Owner(Value):
    """A process that changes an environment."""

    pid: int
    host: str
    boot: str
    """The boot ID, which containers of a host share. Empty if unknown."""
    start: str
    """The start time of the process. Empty if unknown."""

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        number = os.getpid()
        return cls(number, platform.node(), read_boot_id(), _read_start(number))


class ForeignChange(Value):
    """A change that another process may still be making."""

    host: str
    time: str
    """The time of its journal."""
    is_elsewhere: bool
    """Whether another machine began it. Its lock may be invisible here."""


def try_lock_file(descriptor: int) -> tuple[bool, bool]:
    """Lock an open file unless another process did.

    Returns:
        Whether this process may continue, and whether the file system has locks.

    Raises:
        OSError: The file system fails.
    """
    try:
        return try_lock(descriptor), True
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
    return True, False


def is_shared_file_system(folder: Path) -> bool:
    """Return whether other machines may use the file system of a folder."""
    if os.name == "nt":
        import ctypes

        kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  unknown to mypy on Linux
        drive, _ = os.path.splitdrive(folder)
        return bool(kernel.GetDriveTypeW(f"{drive}\\") == _REMOTE)
    return read_file_system_type(folder) not in _LOCAL


def find_foreign_change(
    place: EnvironmentPaths, *, has_locks: bool
) -> ForeignChange | None:
    """Return a change that another process may still be making, if any.

    Args:
        place: The environment, whose lock no visible process holds.
        has_locks: Whether the file system has locks.
    """
    file = place.current_change / JOURNAL
    owner = None
    with suppress(OSError, ValueError):
        owner = read_object(Owner, read_json(file, place.work).get("owner"))
    if owner is None:
        return None
    is_shared = is_shared_file_system(place.work)
    here = Owner.here()
    is_elsewhere = owner.boot != here.boot
    if owner == here or (has_locks and not is_shared):
        return None
    if is_elsewhere:
        may_run = is_shared
    else:
        may_run = owner.start != "" and owner.start == _read_start(owner.pid)
    if not may_run:
        return None
    _, written_ns, _ = read_file_stamp(str(file))
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(written_ns // 10**9))
    return ForeignChange(owner.host, clock, is_elsewhere)


def read_restart_time(boot: str) -> int:
    """Return the nanosecond time of a host restart after a boot, or 0."""
    if boot == read_boot_id():
        return 0
    # Windows' only clock since the boot is the monotonic one.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    uptime_ns = time.clock_gettime_ns(clock) if clock else time.monotonic_ns()
    return time.time_ns() - uptime_ns


def _read_start(number: int) -> str:
    """Return the start time of a process. Empty if unknown or not running."""
    with suppress(OSError):
        # The name in parentheses may contain spaces.
        text = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()[19]
    return ""
