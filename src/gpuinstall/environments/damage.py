"""Find missing, truncated, and edited files of installed packages.

For some minutes, the times of folders show that no file was added, removed, or replaced,
but not that one was changed in place.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from os.path import exists
from pathlib import Path
from time import time_ns
from typing import Literal, NamedTuple

from gpuinstall.base.cache import JsonCache
from gpuinstall.base.files import leads_outside, own_cache_folder
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value
from gpuinstall.environments.packages import (
    InstalledPackage,
    RecordedFile,
    compute_record_digest,
    file_size,
    find_written_files,
)
from gpuinstall.environments.stamp import FileStamp, read_boot_id, read_file_stamp

FileDamage = Literal["lost", "edited"]
Kind = Literal["no-record", "lost", "edited"]
CA_BUNDLE = "cacert.pem"
"""certifi's CA bundle, to which companies and images add certificates."""


class Damage(NamedTuple):
    """Damaged files of a package."""

    package: InstalledPackage
    kind: Kind
    files: tuple[str, ...]
    """The damaged files, relative to the packages folder."""
    is_in_cache: bool
    """Whether the installer's cache may also be damaged."""
    total: int = 0
    """The number of the package's files if some are missing or truncated."""

    @property
    def message(self) -> str:
        """A one-line description of the damage."""
        name = f"{self.package.name} {self.package.version}"
        match self.kind:
            case "no-record":
                fault = self.package.find_record_fault()
                return f"{name} is damaged: {self.files[0]} {fault}"
            case "edited":
                return f"{name} was edited after its installation: {join_names(self.files)}"
            case "lost":
                are = "are" if len(self.files) > 1 else "is"
                count = f"{len(self.files)} of {self.total} files {are} missing or truncated"
                return f"{name} is damaged: {count}: {self.files[0]}"


class Hashing(Enum):
    """The files to compare with their hashes in RECORD."""

    NONE = 0
    NEWER = 1
    """Files whose size differs, or that were written after the package."""
    ALL = 2
    """All files except large ones that were not written after the package."""


class InstallTimes(NamedTuple):
    """The times at which a package was written, in nanoseconds."""

    unpacked: int
    """The time of hard links to uv's cache."""
    installed: int

    @classmethod
    def of(cls, package: InstalledPackage) -> InstallTimes:
        """Read the times of a package's metadata."""
        # Installers write these files last. RECORD may have been touched later.
        last = (_modification_time(package.record / one) for one in _LAST_WRITTEN)
        unpacked = _modification_time(package.record / "METADATA")
        return cls(unpacked, min(filter(None, last), default=0))


_LAST_WRITTEN = ("INSTALLER", "RECORD")
_HASHED_SIZE = 1 << 20
"""The largest file in bytes that is always hashed with ``Hashing.ALL``.

Its times do not show an edit if the metadata was copied later. The 12,000 small files of
torch take about a second.
"""


def _compare_file(
    path: str, row: RecordedFile, times: InstallTimes, hashing: Hashing
) -> FileDamage | None:
    """Compare an installed file with its RECORD entry.

    Compiled modules and RECORD itself cannot contain a user's changes.

    Args:
        path: The file.
        row: The entry.
        times: The times at which the package was written.
        hashing: The files to hash.

    Returns:
        None: the file is unchanged. Without its hash, an edit is not found.
    """
    is_strict = hashing is Hashing.ALL
    is_generated = path.endswith((".pyc", "/RECORD"))
    try:
        status = os.lstat(path) if is_strict else os.stat(path)  # noqa: PTH116  creating a Path takes longer than the stat
    except OSError:
        return "lost" if is_strict or (row.size and not is_generated) else None
    is_regular = stat.S_ISREG(status.st_mode)
    if is_regular and is_generated:
        return None
    if not is_strict and (status.st_size < row.size or hashing is Hashing.NONE):
        return "lost" if status.st_size < row.size else None
    written = times.unpacked if status.st_nlink > 1 else times.installed
    is_same = status.st_size == row.size and status.st_mtime_ns <= written
    if is_strict:
        # Programs cannot set the ctime of a file.
        is_same &= status.st_size > _HASHED_SIZE
        is_same &= status.st_ctime_ns <= times.installed
    has_digest = bool(row.digest) and is_regular
    if has_digest and not is_same:
        with suppress(OSError):
            is_same = compute_record_digest(path) == row.digest
    if is_strict:
        return None if is_same and has_digest else "edited"
    return None if is_same or not row.digest else "edited"


def find_damage(
    packages: Iterable[InstalledPackage], hashing: Hashing = Hashing.NEWER
) -> Iterator[Damage]:
    """Yield each damaged package with its missing, truncated, or edited files.

    A file that several packages write is intact if it equals one of their entries.

    Args:
        packages: The packages.
        hashing: The files to hash.
    """
    packages = tuple(packages)

    # Find the files of several packages only if a package is damaged.
    @cache
    def entries() -> dict[str, list[tuple[RecordedFile, InstallTimes]]]:
        found = defaultdict(list)
        for package in packages:
            times = InstallTimes.of(package)
            for path, row in _list_files(package).items():
                found[path].append((row, times))
        return found

    for package in packages:
        if package.find_record_fault():
            # A power cut may have truncated cached files too.
            record = (f"{package.record.name}/RECORD",)
            yield Damage(package, "no-record", record, is_in_cache=True)
            continue
        times = InstallTimes.of(package)
        files = _list_files(package)
        damaged: dict[str, list[str]] = {"lost": [], "edited": []}
        for path, row in files.items():
            kind = _compare_file(path, row, times, hashing)
            if kind and all(
                _compare_file(path, *entry, hashing) for entry in entries()[path]
            ):
                damaged[kind].append(path)
        yield from _describe_damage(package, files, **damaged)


def _list_files(package: InstalledPackage) -> dict[str, RecordedFile]:
    """Return the rows of RECORD by the paths of their files."""
    # Strings are faster than Path for 12,000 files.
    folder = f"{package.record.parent}{os.sep}"
    return {folder + row.path: row for row in package.read_record()}


def _describe_damage(
    package: InstalledPackage,
    files: Mapping[str, RecordedFile],
    lost: Iterable[str],
    edited: Iterable[str],
) -> Iterator[Damage]:
    """Yield the lost or else the edited files of a package, if any.

    Args:
        package: The package.
        files: Its RECORD entries by path.
        lost: The missing and truncated files.
        edited: The files with other contents.
    """
    if lost:
        paths = tuple(files[path].path for path in lost)
        total = sum(row.size > 0 for row in files.values())
        yield Damage(package, "lost", paths, any(map(exists, lost)), total)
        return
    # certifi's CA bundle may have additional certificates.
    edited = [path for path in edited if not path.endswith(CA_BUNDLE)]
    # Modules are listed before scripts and data, such as "../../../bin/tool".
    paths = tuple(sorted((files[one].path for one in edited), key=leads_outside))
    if paths:
        is_linked = any(Path(one).lstat().st_nlink > 1 for one in edited)
        yield Damage(package, "edited", paths, is_linked)


def is_configuration_lost(venv: Path) -> bool:
    """Return whether the ``pyvenv.cfg`` of an environment is empty."""
    return file_size(venv / "pyvenv.cfg") == 0


def find_intact_files(
    packages: Iterable[InstalledPackage], root: Path, names: set[str]
) -> set[str]:
    """Return the installed files that match their hash in a RECORD.

    Args:
        packages: The packages.
        root: The environment.
        names: The files to check, relative to ``root``.
    """
    intact = set[str]()
    for package in packages:
        # Locating the 12,000 files of torch takes 30 ms.
        if intact == names:
            break
        times = InstallTimes.of(package)
        files = find_written_files(package, root)
        for name in files.keys() & names - intact:
            path = f"{root}{os.sep}{name}"
            if not _compare_file(path, files[name], times, Hashing.ALL):
                intact.add(name)
    return intact


def _modification_time(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0


COMPARED_S = 600
"""Seconds after which all files are compared again."""

_SETTLED_NS = 2_000_000_000
"""The age of a folder's time from which each later change alters the time."""


class _Folders(Value):
    """The compared folders of an environment."""

    boot: str
    """The ID of the boot. A power cut can truncate files."""
    stamps: Mapping[str, FileStamp]
    """The stamps of each RECORD and of the folders of its files, by path."""


def has_same_folders(venv: Path, packages: Iterable[InstalledPackage]) -> bool:
    """Return whether no folder changed since all files were compared."""
    known = _open_cache().get(str(venv), COMPARED_S)
    if known is None or known.boot != read_boot_id():
        return False
    return known.stamps.keys() >= {f"{one.record}/RECORD" for one in packages} and all(
        read_file_stamp(path) == stamp for path, stamp in known.stamps.items()
    )


def remember_folders(venv: Path, packages: Iterable[InstalledPackage]) -> None:
    """Cache the folders of intact packages, unless one has just changed."""
    paths = set[str]()
    for package in packages:
        place = package.record.parent
        folders = {row.path.rpartition("/")[0] for row in package.read_record()}
        paths.add(f"{package.record}/RECORD")
        paths.update(f"{place}/{folder}" for folder in folders)
    stamps = {path: read_file_stamp(path) for path in paths}
    boot = read_boot_id()
    newest = max((time for _, time, _ in stamps.values()), default=0)
    if boot and newest < time_ns() - _SETTLED_NS:
        _open_cache().put(str(venv), _Folders(boot, stamps))


def _open_cache() -> JsonCache[_Folders]:
    return JsonCache(own_cache_folder() / "intact", _Folders)
