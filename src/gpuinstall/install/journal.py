"""Record the files of an installation in a journal before changing any file.

The journal of a managed environment is next to it (``.venv.gpuinstall``). In an unmanaged
environment, it is in the packages folder (``.gpuinstall``)::

    lock           held by the running command; it stays on a shared file system
    staging-…      new packages; a command killed at this stage has changed nothing
    .new-…         a journal that is being written or removed
    changing       the current change; if killed, the next command completes it or rolls it back
    last           the last change, which ``env rollback`` undoes

While a change runs, the file ``.venv/.gpuinstall`` has the path of ``changing``. A journal
contains ``journal.json`` and ``previous_files``, with links to the removed and replaced
files. While an environment is being replaced, its files are moved to ``leaving``. When this
folder is complete, it is renamed to ``environment``, and the files of ``new`` are moved into the
environment. Then ``environment`` is renamed to ``.venv.previous``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from os.path import exists
from pathlib import Path
from typing import Any

from gpuinstall.base.codec import read_object, write_object
from gpuinstall.base.environment_paths import JOURNAL, EnvironmentPaths
from gpuinstall.base.files import (
    leads_outside,
    open_atomically,
    parse_json,
    read_document,
    write_atomically,
)
from gpuinstall.base.removal import (
    is_folder,
    is_link,
    iter_files,
    remove_path,
    tree_size,
)
from gpuinstall.base.values import Value
from gpuinstall.environments.environment import NAME
from gpuinstall.environments.records import find_recorded_path, record_identity
from gpuinstall.environments.running import Owner
from gpuinstall.environments.stamp import STAMP_NAME, read_boot_id, read_file_stamp

_ORIGIN = "origin"
"""File of a committed journal with boot ID and environment's inode."""


class Journal(Value):
    """Record of an environment change. Paths are relative to its root."""

    owner: Owner
    """The process that began the change."""
    added: Mapping[str, tuple[int, ...]] = {}
    """The new files with their size and modification time."""
    own: tuple[str, ...] = ()
    """The files that gpuinstall, not a package, writes."""
    packages: Mapping[str, tuple[str, ...]] = {}
    """The previous and new version of each package. Empty if not installed."""
    locks: Mapping[str, tuple[str, ...]] = {}
    """Previous and new text of each lock file. Empty if missing."""
    modified: tuple[str, ...] = ()
    """The replaced or removed files that the user had modified."""
    is_rebuild: bool = False
    """Whether the whole environment was replaced."""
    is_from_previous: bool = False
    """Whether it was replaced by the previous environment."""
    identity: str = ""
    """The identity of the new environment, if it was replaced."""
    is_verified: bool = False
    """Whether the environment was completely changed and verified."""
    is_rollback: bool = False
    """Whether the change undid the previous one, file by file."""


def read_folder_identity(folder: Path) -> str:
    """Return an identifier that changes if an environment is recreated."""
    _, changed_ns, inode = read_file_stamp(str(folder / "pyvenv.cfg"))
    return f"{inode} {changed_ns}"


def needs_recovery(place: EnvironmentPaths) -> bool:
    """Return whether the next command must recover or compare a change."""
    if place.has_unfinished_change():
        return True
    is_checked = not is_journal(place.last_change) or has_same_origin(place)
    return not is_checked and os.access(place.work, os.W_OK)


_TEMPORARY_FOLDER = r"(staging|\.new|\.discarded)-[0-9a-f]{8}"
_TEMPORARY_FILE = r"\..{1,40}\.[0-9a-f]{8}"
"""The pattern for names of gpuinstall's temporary files."""
_DAY_S = 86400


def find_leftovers(place: EnvironmentPaths) -> list[Path]:
    """Return the staging folders and temporary files of all commands."""
    found = []
    for path in place.work.iterdir() if is_folder(place.work) else ():
        pattern = _TEMPORARY_FOLDER if is_folder(path) else _TEMPORARY_FILE
        if re.fullmatch(pattern, path.name):
            found.append(path)
    if place.is_managed:
        stamps = place.venv.glob(f".{STAMP_NAME}.*")
        found += [one for one in stamps if re.fullmatch(_TEMPORARY_FILE, one.name)]
    return found


def remove_leftovers(place: EnvironmentPaths, *, is_alone: bool = True) -> None:
    """Remove the staging folders and temporary files of killed commands.

    Args:
        place: The environment, which this command has locked.
        is_alone: Whether the lock excludes all other commands. Otherwise, only this command's folders, and leftovers
            that are older than a day, are removed.
    """
    for own in (place.scratch, place.staging):
        remove_path(own)
    for path in find_leftovers(place):
        _, changed_ns, _ = read_file_stamp(str(path))
        if is_alone or changed_ns < time.time_ns() - _DAY_S * 10**9:
            remove_path(path)


def has_same_origin(place: EnvironmentPaths) -> bool:
    """Return whether the host has not restarted since the last change."""
    return read_commit_origin(place.last_change) == _find_origin(place)


def read_commit_origin(folder: Path) -> tuple[str, str]:
    """Return boot ID and environment's inode of a committed journal."""
    boot, inode = "", ""
    with suppress(OSError, ValueError):
        boot, _, inode = read_document(folder / _ORIGIN, folder.parent).partition(" ")
    return boot, inode


def write_commit_origin(place: EnvironmentPaths, folder: Path) -> None:
    """Write the boot ID and the environment's inode into a journal."""
    write_atomically(folder / _ORIGIN, " ".join(_find_origin(place)), is_cached=True)


def _find_origin(place: EnvironmentPaths) -> tuple[str, str]:
    return read_boot_id(), str(read_file_stamp(str(place.root))[2])


def describe_journal(folder: Path | None) -> dict[str, Any] | None:
    """Return the JSON description of a journal, with its size in bytes."""
    if folder is None or not is_journal(folder):
        return None
    return {"path": str(folder), "bytes": tree_size(folder)}


def is_journal(folder: Path) -> bool:
    """Return whether a folder is a journal."""
    return exists(folder / JOURNAL)


def previous_files(folder: Path) -> Path:
    """Return the folder of a journal that contains the previous files."""
    return folder / "before"


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
        InstallationError: The journal cannot be written.
    """
    with replaced_journal(journal, place, folder):
        pass


@contextmanager
def replaced_journal(
    journal: Journal, place: EnvironmentPaths, folder: Path, *, is_cached: bool = False
) -> Iterator[None]:
    """Write a journal, which becomes visible at the end of a block.

    Args:
        journal: The journal.
        place: The changed environment.
        folder: The folder of the journal.
        is_cached: Whether the block flushes it to disk.
    """
    text = json.dumps(write_object(journal))
    record_identity(place.work, text_digest(text))
    with open_atomically(folder / JOURNAL, is_cached=is_cached) as file:
        file.write(text.encode())
        file.flush()
        yield


def read_journal(folder: Path, *, is_trusted: bool = True) -> Journal | None:
    """Read a journal, even if its environment was moved.

    Args:
        folder: The folder of the journal.
        is_trusted: Whether to read a journal that the state folder does not list, such as one
            of another container, if its paths are inside the environment and it has no links.
    """
    with suppress(OSError, ValueError):
        _, journal = _parse_journal(folder)
        copies = previous_files(folder)
        is_safe = is_trusted and not any(
            map(leads_outside, (*journal.added, *journal.own, *journal.modified))
        )
        is_safe = is_safe and not any(map(is_link, (copies, *iter_files(copies))))
        if is_folder(folder) and (is_safe or is_recorded_journal(folder)):
            return journal
    return None


def is_recorded_journal(folder: Path) -> bool:
    """Return whether this user's state folder lists a journal."""
    text, _ = _parse_journal(folder)
    return find_recorded_path(text_digest(text)) is not None


def _parse_journal(folder: Path) -> tuple[str, Journal]:
    text = read_document(folder / JOURNAL, folder.parent)
    return text, read_object(Journal, parse_json(text))


def is_damaged(folder: Path) -> bool:
    """Return whether a journal is missing, malformed, or lacks its files."""
    try:
        _, journal = _parse_journal(folder)
    except (FileNotFoundError, ValueError):
        return True
    except OSError:
        # It belongs to another user.
        return False
    return NAME in journal.own and not os.path.lexists(previous_files(folder) / NAME)


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text."""
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
