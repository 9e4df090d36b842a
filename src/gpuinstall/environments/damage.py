"""Find missing, truncated, and edited files of installed packages."""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from functools import cache
from os.path import exists, lexists
from pathlib import Path
from typing import Literal, NamedTuple

from gpuinstall.base.text import join_names
from gpuinstall.environments.packages import (
    InstalledPackage,
    compute_record_digest,
    file_size,
    find_written_files,
)

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
                return f"{name} is damaged: {self.files[0]} is empty"
            case "edited":
                return f"{name} was edited after its installation: {join_names(self.files)}"
            case "lost":
                are = "are" if len(self.files) > 1 else "is"
                count = f"{len(self.files)} of {self.total} files {are} missing or truncated"
                return f"{name} is damaged: {count}: {self.files[0]}"


def find_damage(
    packages: Iterable[InstalledPackage], *, with_edits: bool = True
) -> Iterator[Damage]:
    """Yield each damaged package with its missing, truncated, or edited files.

    Args:
        packages: The packages. Files that several packages write are ignored.
        with_edits: Whether to include edited files.
    """
    packages = tuple(packages)

    # Find the files of several packages only if a package is damaged.
    @cache
    def shared() -> set[str]:
        # Strings are faster than Path for 12,000 files.
        counts = Counter(
            f"{package.record.parent}{os.sep}{row.path}"
            for package in packages
            for row in package.read_files()
        )
        return {path for path, count in counts.items() if count > 1}

    for package in packages:
        damage = _find_loss(package, shared)
        if damage is None and with_edits:
            damage = _find_edits(package, shared)
        if damage:
            yield damage


def _find_edits(
    package: InstalledPackage, shared: Callable[[], Collection[str]]
) -> Damage | None:
    folder = package.record.parent
    edited = tuple(
        path
        for path in _find_edited_files(package)
        if str(folder / path) not in shared() and not path.endswith(CA_BUNDLE)
    )
    return _edited(package, edited) if edited else None


def _edited(package: InstalledPackage, files: tuple[str, ...]) -> Damage:
    paths = [package.record.parent / file for file in files]
    is_linked = any(exists(path) and path.stat().st_nlink > 1 for path in paths)
    return Damage(package, "edited", files, is_linked)


def _find_loss(
    package: InstalledPackage, shared: Callable[[], Collection[str]]
) -> Damage | None:
    if package.has_lost_record():
        # A power cut may have truncated cached files too.
        return Damage(package, "no-record", (f"{package.record.name}/RECORD",), True)
    folder = package.record.parent
    lost = tuple(
        path
        for path in package.find_damaged_files()
        if str(folder / path) not in shared()
    )
    if not lost:
        return None
    is_cut = any(exists(folder / path) for path in lost)
    total = sum(file.size > 0 for file in package.read_files())
    return Damage(package, "lost", lost, is_cut, total)


def is_configuration_lost(venv: Path) -> bool:
    """Return whether the ``pyvenv.cfg`` of an environment is empty."""
    return file_size(venv / "pyvenv.cfg") == 0


def _find_edited_files(package: InstalledPackage) -> Iterator[str]:
    """Yield the installed files whose digest differs from RECORD.

    Only files whose size or time differs are hashed. Missing and empty files are
    ignored. Scripts and data outside the packages folder are not checked.
    """
    folder = f"{package.record.parent}{os.sep}"
    unpacked = _modification_time(package.record / "METADATA")
    installed = _modification_time(package.record / "RECORD")
    for row in package.read_files():
        if not row.digest:
            continue
        with suppress(OSError):
            status = os.stat(folder + row.path)  # noqa: PTH116  creating a Path takes longer than the stat
            # A hard link to uv's cache has the time at which uv unpacked the wheel.
            written = unpacked if status.st_nlink > 1 else installed
            is_as_installed = (
                status.st_size == row.size and status.st_mtime_ns <= written
            )
            if is_as_installed or not status.st_size:
                continue
            if compute_record_digest(folder + row.path) != row.digest:
                yield row.path


_HASHED_SIZE = 1 << 20
"""The largest file in bytes that is always hashed.

Its times do not show an edit if the metadata was copied later. The 12,000 small files of
torch take about a second.
"""


def find_intact_files(
    packages: Iterable[InstalledPackage], root: Path, names: Collection[str]
) -> set[str]:
    """Return the installed files that match their hash in a RECORD.

    Large files, such as CUDA libraries, are hashed only if they were written after their
    metadata. Compiled modules and RECORD itself cannot contain a user's changes.

    Args:
        packages: The packages.
        root: The environment.
        names: The files to check, relative to ``root``.
    """
    intact = set[str]()
    for package in packages:
        unpacked = _modification_time(package.record / "METADATA")
        # Installers write these files last. RECORD may have been touched later.
        installed = min(
            _modification_time(package.record / name)
            for name in ("INSTALLER", "RECORD")
        )
        for name, row in find_written_files(package, root).items():
            if name not in names:
                continue
            path = f"{root}{os.sep}{name}"
            with suppress(OSError):
                status = os.lstat(path)
                is_compiled = name.endswith((".pyc", "/RECORD"))
                if not stat.S_ISREG(status.st_mode):
                    continue
                written = unpacked if status.st_nlink > 1 else installed
                # Programs cannot set the ctime of a file.
                is_as_installed = (
                    _HASHED_SIZE < status.st_size == row.size
                    and status.st_mtime_ns <= written
                    and status.st_ctime_ns <= installed
                    and bool(row.digest)
                )
                if (
                    is_as_installed
                    or is_compiled
                    or (row.digest and compute_record_digest(path) == row.digest)
                ):
                    intact.add(name)
    return intact


def find_differing_packages(
    packages: Collection[InstalledPackage], root: Path
) -> Iterator[Damage]:
    """Yield each package with its missing or differing files.

    Args:
        packages: The packages.
        root: The environment.
    """
    files = {package: find_written_files(package, root) for package in packages}
    names = {name for rows in files.values() for name in rows}
    intact = find_intact_files(packages, root, names)
    for package, rows in files.items():
        differing = {
            name: row.path
            for name, row in rows.items()
            if name not in intact and not name.endswith((".pyc", CA_BUNDLE))
        }
        missing = [path for name, path in differing.items() if not lexists(root / name)]
        if missing:
            lost = tuple(missing)
            yield Damage(package, "lost", lost, is_in_cache=False, total=len(rows))
        elif differing:
            # Modules are listed before scripts and data, such as "../../../bin/tool".
            edited = sorted(differing.values(), key=lambda path: path.startswith("../"))
            yield _edited(package, tuple(edited))


def _modification_time(file: Path) -> int:
    with suppress(OSError):
        return file.stat().st_mtime_ns
    return 0
