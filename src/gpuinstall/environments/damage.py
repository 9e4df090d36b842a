"""Compare the files of packages with RECORD.

Only packages that change, packages that uv has just unpacked, and all packages in ``doctor``
and ``verify --deep`` are compared.
"""

from __future__ import annotations

import os
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from gpuinstall.base.files import leads_outside
from gpuinstall.base.text import join_names
from gpuinstall.environments.packages import (
    InstalledPackage,
    RecordedFile,
    compute_record_digest,
    file_size,
    find_written_files,
)

FileDamage = Literal["missing", "truncated", "modified"]
Kind = Literal["no-record", "missing", "truncated", "modified"]
CA_BUNDLE = "cacert.pem"
"""certifi's CA bundle, to which companies and images add certificates."""


class Damage(NamedTuple):
    """Files of a package that differ from its RECORD."""

    package: InstalledPackage
    kind: Kind
    files: tuple[str, ...]
    """The files, relative to the packages folder."""
    is_in_cache: bool
    """Whether the installer's cache may have the same files."""
    total: int = 0
    """The number of the package's files that are not empty."""

    @property
    def message(self) -> str:
        """A one-line description of the damage."""
        name = f"{self.package.name} {self.package.version}"
        match self.kind:
            case "no-record":
                fault = self.package.find_record_fault()
                return f"{name} is damaged: {self.files[0]} {fault}"
            case "modified":
                return f"{name} was modified after its installation: {join_names(self.files)}"
            case _:
                are = "are" if len(self.files) > 1 else "is"
                count = f"{len(self.files)} of {self.total} files {are} {self.kind}"
                return f"{name} is damaged: {count}: {self.files[0]}"

    def is_named_in(self, text: str) -> bool:
        """Return whether an error mentions a top-level module of the files."""
        modules = {file.partition("/")[0].removesuffix(".py") for file in self.files}
        return any(module in text for module in modules)


class InstallTimes(NamedTuple):
    """The times at which a package was written, in nanoseconds."""

    unpacked: int
    """The time of links to uv's cache."""
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
"""The largest file in bytes that is always hashed in a strict comparison.

Its times do not show an edit if the metadata was copied later. The 12,000 small files of
torch take about a second.
"""


def _compare_file(
    path: str, row: RecordedFile, times: InstallTimes, *, is_strict: bool = False
) -> FileDamage | None:
    """Compare a file with its RECORD entry.

    Compiled modules and RECORD itself cannot contain a user's changes. A link is followed,
    because it may be uv's link mode.

    Args:
        path: The file.
        row: The entry.
        times: The times at which the package was written.
        is_strict: Whether to hash all files, except large ones that were not written after the package.

    Returns:
        None: the file is unchanged. Without its hash, an edit is found only in a strict comparison.
    """
    is_generated = path.endswith((".pyc", "/RECORD"))
    try:
        status = os.lstat(path)
        is_linked = stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
        if stat.S_ISLNK(status.st_mode):
            status = os.stat(path)  # noqa: PTH116  creating a Path takes longer than the stat
    except OSError:
        return "missing" if is_strict or (row.size and not is_generated) else None
    if not stat.S_ISREG(status.st_mode):
        return "modified"
    if is_generated:
        return None
    if status.st_size < row.size:
        return "truncated"
    written = times.unpacked if is_linked else times.installed
    is_same = status.st_size == row.size and status.st_mtime_ns <= written
    if is_strict:
        # Programs cannot set the ctime of a file.
        is_same &= status.st_size > _HASHED_SIZE
        is_same &= status.st_ctime_ns <= times.installed
    if not row.digest:
        return "modified" if is_strict else None
    if not is_same:
        with suppress(OSError):
            is_same = compute_record_digest(path) == row.digest
    return None if is_same else "modified"


def find_damage(packages: Iterable[InstalledPackage]) -> Iterator[Damage]:
    """Yield the missing, truncated, and modified files of each package.

    The size of every file is compared, and the content of files that were modified after
    the package. A file that several packages write is intact if it equals one of their entries.
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
        damaged: dict[FileDamage, list[str]] = {}
        for path, row in files.items():
            kind = _compare_file(path, row, times)
            if kind and all(_compare_file(path, *entry) for entry in entries()[path]):
                damaged.setdefault(kind, []).append(path)
        total = sum(row.size > 0 for row in files.values())
        for kind in sorted(damaged):
            # certifi's CA bundle may have additional certificates.
            paths = [
                path
                for path in damaged[kind]
                if kind != "modified" or not path.endswith(CA_BUNDLE)
            ]
            # Modules are listed before scripts and data, such as "../../../bin/tool".
            names = tuple(sorted((files[one].path for one in paths), key=leads_outside))
            if names:
                # An installer may also have copied a truncated file.
                is_in_cache = kind == "truncated" or any(map(_is_linked, paths))
                yield Damage(package, kind, names, is_in_cache, total)


def _is_linked(path: str) -> bool:
    with suppress(OSError):
        status = os.lstat(path)
        return stat.S_ISLNK(status.st_mode) or status.st_nlink > 1
    return False


def _list_files(package: InstalledPackage) -> dict[str, RecordedFile]:
    """Return the rows of RECORD by the paths of their files."""
    # Strings are faster than Path for 12,000 files.
    folder = f"{package.record.parent}{os.sep}"
    return {folder + row.path: row for row in package.read_record()}


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
            if not _compare_file(path, files[name], times, is_strict=True):
                intact.add(name)
    return intact


def _modification_time(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0
