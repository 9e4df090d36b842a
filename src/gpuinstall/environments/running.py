"""Identify the process that changes an environment.

On a file system without locks, the file with its identity is the lock.
"""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from os.path import exists
from pathlib import Path

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import JOURNAL, EnvironmentPaths
from gpuinstall.base.files import read_json
from gpuinstall.base.removal import read_file_system_type
from gpuinstall.base.values import Value
from gpuinstall.environments.stamp import read_boot_id, read_file_stamp

ABANDONED_S = 600
"""The seconds after which an untouched file belongs to no running command."""
_LOCAL = {
    "bcachefs",
    "btrfs",
    "exfat",
    "ext2",
    "ext3",
    "ext4",
    "f2fs",
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


class Owner(Value):
    """A process that changes an environment."""

    pid: int
    host: str
    boot: str
    """The boot ID, which containers of a host share. Empty if unknown."""
    namespace: str
    """The namespace in which the process ID is valid. Empty if unknown."""
    start: str
    """The start time of the process. Empty if unknown."""

    @classmethod
    def here(cls) -> Owner:
        """Return this process."""
        number = os.getpid()
        start = _read_start(number)
        return cls(number, platform.node(), read_boot_id(), _read_namespace(), start)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    def to_json(self) -> str:
        """Return the text of the file with this identity."""
        return json.dumps(write_object(self))


def read_owner(place: EnvironmentPaths) -> Owner | None:
    """Return the process that locked an environment last, if known."""
    with suppress(OSError, ValueError):
        return read_object(Owner, read_json(place.owner_file, place.work))
    return None


def find_running_owner(
    place: EnvironmentPaths, now_ns: int, *, is_locked: bool
) -> Owner | None:
    """Return the process that may still be changing an environment, if any.

    On a local file system, the lock decides. Locks of other hosts may be invisible, but a
    running command touches its files.

    Args:
        place: The environment.
        now_ns: The current time of the file system, whose clock may differ from this host's.
        is_locked: Whether this process has locked the environment's lock file.
    """
    owner, here = read_owner(place), Owner.here()
    # An earlier lock of this process may have failed to remove the file.
    if owner is None or (is_locked and owner == here):
        return None
    is_new = now_ns - read_touched(place) < ABANDONED_S * 10**9
    if owner.boot != here.boot:
        # Virtual machines may have the same name.
        is_alone = is_locked and read_file_system_type(place.work) in _LOCAL
        may_run = is_new and not is_alone
    elif owner.start and owner.namespace == here.namespace:
        may_run = _read_start(owner.pid) == owner.start
    else:
        # Locks are visible in all containers of a host.
        may_run = is_new and not is_locked
    return owner if may_run else None


def read_touched(place: EnvironmentPaths) -> int:
    """Return the nanosecond time at which a command touched its files."""
    journal = place.current_change / JOURNAL
    file = journal if exists(journal) else place.owner_file
    _, touched_ns, _ = read_file_stamp(str(file))
    return touched_ns


def read_restart_time(boot: str) -> int:
    """Return the nanosecond time of a host restart after a boot, or 0."""
    if boot == read_boot_id():
        return 0
    # Windows' only clock since the boot is the monotonic one.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    uptime_ns = time.clock_gettime_ns(clock) if clock else time.monotonic_ns()
    return time.time_ns() - uptime_ns


def _read_namespace() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _read_start(number: int) -> str:
    """Return the start time of a process. Empty if unknown or not running."""
    with suppress(OSError):
        # The name in parentheses may contain spaces.
        text = Path(f"/proc/{number}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()[19]
    return ""
