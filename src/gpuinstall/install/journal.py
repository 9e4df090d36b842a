"""The journal of a change: who makes it, what comes, and what was there before; on the disk before a file changes.

It lies beside an environment of ours (``.venv.gpuinstall``), and with the packages of one of others (``.gpuinstall``)::

    lock           held by the run that works there
    staging-…      what is about to come is unpacked and proven; a run that dies here has changed nothing yet
    .new           a journal is being made, or removed
    changing       files change: whoever finds it finishes the change, or puts back what was there
    last           the last change, which ``env rollback`` takes back

A journal holds ``journal.json`` and ``before``, with links to the files that go or are replaced. That of an environment
that was replaced holds the replaced one whole instead, as ``environment``.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import Any

import msgspec

from gpuinstall.base.codec import read_object
from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import parse_json, read_document, write_atomically
from gpuinstall.base.removal import is_folder, size_of
from gpuinstall.base.values import Value
from gpuinstall.environments.records import is_vouched, vouch

_RECORD = "journal.json"


class Owner(Value):
    """The run that has begun a change."""

    host: str
    boot: str
    """What tells one start of the host from another; empty if the system does not say."""
    process: int
    start: str
    """When the process was started, as the system counts; empty if it does not say."""

    @classmethod
    def this_run(cls) -> Owner:
        """Return this run."""
        process = os.getpid()
        return cls(platform.node(), _boot(), process, _start(process))

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs, or ran, on another host or in another container: whether it is dead cannot be seen here."""
        return self.host != platform.node()

    @property
    def is_alive(self) -> bool:
        """Whether it still runs on this host."""
        start = _start(self.process)
        return bool(start) and self.boot == _boot() and self.start == start

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}"


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def _start(process: int) -> str:
    with suppress(OSError, IndexError):
        # The name of the program, in brackets, may hold anything.
        text = Path(f"/proc/{process}/stat").read_text("utf-8", "replace")
        return text.rpartition(")")[2].split()[19]
    return ""


class Journal(Value):
    """A change. All paths are below the root of the environment."""

    owner: Owner
    comes: Mapping[str, tuple[int, ...]] = {}
    """The files that come, with the size and the modification time of each, by which it is known again."""
    own: tuple[str, ...] = ()
    """Files that only gpuinstall writes: what lies there is never the user's."""
    packages: Mapping[str, tuple[str, ...]] = {}
    """The version of each package before and after; empty if it was not there, or goes."""
    users: tuple[str, ...] = ()
    """The files among those before that the user has changed, or that no installer wrote."""
    kept: str = ""
    """The name of the folder that these are kept in."""
    is_rebuild: bool = False
    """Whether the whole environment was replaced."""
    inode: int = 0
    """The number of the folder that then takes its place."""
    is_proven: bool = False
    """Whether the change is complete and proven, and is never put back by itself."""


def journal_entry(folder: Path | None) -> dict[str, Any] | None:
    """Return a journal as documents have it, with the bytes that it holds; None if there is none."""
    if folder is None or not exists(folder):
        return None
    return {"path": str(folder), "bytes": size_of(folder)}


def before(folder: Path) -> Path:
    """Return where a journal has the files that were there before."""
    return folder / "before"


def replaced_environment(folder: Path) -> Path:
    """Return where a journal has the environment that was replaced as a whole."""
    return folder / "environment"


def write_journal(journal: Journal, place: EnvironmentPaths, folder: Path) -> None:
    """Write a journal into a folder, vouched for, onto the disk.

    Args:
        journal: The journal.
        place: The environment that it is of.
        folder: The folder.

    Raises:
        InstallationError: it cannot be written, or not be vouched for.
    """
    text = msgspec.json.encode(journal).decode()
    vouch(*_voucher(text, place))
    write_atomically(folder / _RECORD, text)
    sync_folder(folder)


def read_journal(folder: Path, place: EnvironmentPaths) -> Journal | None:
    """Return the journal in a folder; None if there is none that this user has written for this environment.

    Args:
        folder: The folder.
        place: The environment whose journals lie there.
    """
    with suppress(OSError, ValueError):
        text = read_document(folder / _RECORD, place.work)
        if is_folder(folder) and is_vouched(*_voucher(text, place)):
            return read_object(Journal, parse_json(text))
    return None


def adopt_journal(place: EnvironmentPaths, earlier: Path) -> None:
    """Vouch for the journal of an environment that this user has moved from ``earlier``, with what lies beside it."""
    with suppress(OSError, ValueError, InstallationError):
        text = read_document(place.last_change / _RECORD, place.work)
        _, digest = _voucher(text, place)
        if is_vouched(EnvironmentPaths(earlier).work, digest):
            vouch(place.work, digest)


def _voucher(text: str, place: EnvironmentPaths) -> tuple[Path, str]:
    """Return the place of a journal, and its record in this user's state folder."""
    return place.work, hashlib.sha256(text.encode()).hexdigest()


def sync_folder(folder: Path) -> None:
    """Have the disk hold the names in a folder; not every system can be told to."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sync_file_system(folder: Path) -> None:
    """Have the disk hold all that was written to the file system of a folder: for 17,000 files some tenths of a second."""
    import ctypes

    if os.name != "posix":
        return
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        # macOS has nothing between one file and all disks.
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if syncfs(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(descriptor)
