"""Record the files of an installation in a journal before changing any file.

The journal of a managed environment is next to it (``.venv.gpuinstall``). In an unmanaged
environment, it is in the packages folder (``.gpuinstall``)::

    lock           held by the running command
    staging-…      new packages; a command killed at this stage has changed nothing
    .new           a journal that is being written or removed
    changing       the current change; if killed, the next command completes it or rolls it back
    last           the last change, which ``env rollback`` undoes

A journal contains ``journal.json`` and ``previous_files``, with links to the removed and replaced
files. While an environment is being replaced, ``environment`` is its previous version.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import Any

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import parse_json, read_document, write_atomically
from gpuinstall.base.removal import is_folder, tree_size
from gpuinstall.base.values import Value
from gpuinstall.environments.environment import NAME
from gpuinstall.environments.records import find_recorded_path, record_identity
from gpuinstall.environments.stamp import read_file_stamp

_RECORD = "journal.json"


class Owner(Value):
    """The process that started a change."""

    host: str
    boot: str
    """The boot ID of the host. Empty if unknown."""
    process: int
    start: str
    """The start time of the process, in a system-specific unit."""

    @classmethod
    def from_current_process(cls) -> Owner:
        """Return a record that identifies the current process."""
        process = os.getpid()
        return cls(platform.node(), _read_boot_id(), process, _read_start_time(process))

    def is_on_other_host(self) -> bool:
        """Return whether the process runs on another host or container."""
        return self.host != platform.node()

    def is_running(self) -> bool:
        """Return whether the process is still running on this host."""
        start = _read_start_time(self.process)
        return bool(start) and self.boot == _read_boot_id() and self.start == start

    def read_restart_time(self) -> int:
        """Return the nanosecond time of a later host restart, or 0."""
        if not self.boot or self.boot == _read_boot_id():
            return 0
        return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _read_boot_id() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def _read_start_time(process: int) -> str:
    with suppress(OSError, IndexError):
        # The program's name, in parentheses, may contain any character.
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()[19]
    return ""


class Journal(Value):
    """Record of an environment change. Paths are relative to its root."""

    owner: Owner
    added: Mapping[str, tuple[int, ...]] = {}
    """The new files with their size and modification time."""
    own: tuple[str, ...] = ()
    """The files that gpuinstall, not a package, writes."""
    packages: Mapping[str, tuple[str, ...]] = {}
    """The previous and new version of each package. Empty if not installed."""
    modified: tuple[str, ...] = ()
    """The replaced or removed files that the user had modified."""
    is_rebuild: bool = False
    """Whether the whole environment was replaced."""
    identity: str = ""
    """The identity of the new environment, if it was replaced."""
    is_verified: bool = False
    """Whether the environment was completely changed and verified."""


def read_folder_identity(folder: Path) -> str:
    """Return an identifier that changes if a folder is recreated."""
    _, changed_ns, inode = read_file_stamp(str(folder / "pyvenv.cfg"))
    return f"{folder.stat().st_ino} {inode} {changed_ns}"


def describe_journal(folder: Path | None) -> dict[str, Any] | None:
    """Return the JSON description of a journal, with its size in bytes."""
    if folder is None or not is_journal(folder):
        return None
    return {"path": str(folder), "bytes": tree_size(folder)}


def is_journal(folder: Path) -> bool:
    """Return whether a folder is a journal."""
    return exists(folder / _RECORD)


def previous_files(folder: Path) -> Path:
    """Return the folder of a journal that contains the previous files."""
    return folder / "before"


def find_replaced_edits(folder: Path) -> list[str]:
    """Return modified files that only a journal has, relative to it."""
    journal = read_journal(folder)
    copies = previous_files(folder)
    return [
        (copies / name).relative_to(folder).as_posix()
        for name in (journal.modified if journal else ())
        if os.path.lexists(copies / name)
    ]


def replaced_environment(folder: Path) -> Path:
    """Return the path at which a journal keeps the replaced environment."""
    return folder / "environment"


def write_journal(journal: Journal, place: EnvironmentPaths, folder: Path) -> None:
    """Write a journal to disk, and record that this user wrote it.

    Args:
        journal: The journal.
        place: The changed environment.
        folder: The folder of the journal.

    Raises:
        InstallationError: The journal or the record cannot be written.
    """
    text = json.dumps(write_object(journal))
    record_identity(place.work, _text_digest(text))
    write_atomically(folder / _RECORD, text)
    sync_folder(folder)


def read_journal(folder: Path) -> Journal | None:
    """Read a journal of this user, even if its environment was moved."""
    with suppress(OSError, ValueError):
        text = read_document(folder / _RECORD, folder.parent)
        if is_folder(folder) and find_recorded_path(_text_digest(text)):
            return read_object(Journal, parse_json(text))
    return None


def is_damaged(folder: Path) -> bool:
    """Return whether a journal is missing, malformed, or lacks its files."""
    try:
        text = read_document(folder / _RECORD, folder.parent)
        journal = read_object(Journal, parse_json(text))
    except (FileNotFoundError, ValueError):
        return True
    except OSError:
        # It belongs to another user.
        return False
    return NAME in journal.own and not os.path.lexists(previous_files(folder) / NAME)


def adopt_journal(place: EnvironmentPaths) -> None:
    """Record the new path of a journal whose environment was moved."""
    with suppress(OSError, ValueError, InstallationError):
        digest = _text_digest(read_document(place.last_change / _RECORD, place.work))
        if find_recorded_path(digest):
            record_identity(place.work, digest)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to disk, if the system supports it."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Flush all data of a file system to disk.

    Flushing 17,000 files takes a few tenths of a second.
    """
    import ctypes

    if os.name != "posix":
        return
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        # macOS can sync only one file or all disks.
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        number = ctypes.get_errno() if syncfs(descriptor) else 0
    finally:
        os.close(descriptor)
    if number == errno.ENOSYS:
        # A sandbox may lack the call.
        os.sync()
    elif number:
        raise OSError(number, os.strerror(number), str(folder))
