"""A lock as a requirements file: every file by its hash, the family by its addresses, so that no index is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from packaging.pylock import Package, PackageArchive, PackageSdist, PackageWheel

    from gpuinstall.lock.lock import Lock


@dataclass(frozen=True)
class Pin:
    """One requirement and the sha256 of each file that may serve it."""

    requirement: str
    hashes: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The requirement and its options, as a requirements file has them."""
        return self.requirement, *(f"--hash=sha256:{digest}" for digest in self.hashes)


def requirements(lock: Lock, family: Collection[str]) -> str:
    """Write a lock as a requirements file; raise UsageError where a package has no address that others can use."""
    head = f"# From {lock.name}, for Python {lock.python or lock.pylock.requires_python or 'of any version'}.\n"
    return head + "".join(" \\\n    ".join(pin.words) + "\n" for pin in pins(lock, family))


def pins(lock: Lock, family: Collection[str]) -> Iterator[Pin]:
    """Write each package of a lock as a requirement."""
    for package in lock.pylock.packages:
        files = _files(package)
        if not files:
            raise _not_a_file(lock, package)
        marker = f" ; {package.marker}" if package.marker else ""
        requirement = _requirement(package, files, by_address=canonicalize_name(package.name) in family)
        yield Pin(requirement + marker, tuple(sorted({str(file.hashes["sha256"]) for file in files})))


def _requirement(
    package: Package, files: list[PackageWheel | PackageSdist | PackageArchive], *, by_address: bool
) -> str:
    if package.version and not package.archive and not (by_address and len(files) == 1):
        return f"{package.name}=={package.version}"
    if not files[0].url:
        raise UsageError(
            "not-exportable",
            f"{package.name} comes from a folder, which others do not have",
            hint="make the lock from an index: gpuinstall lock --upgrade",
        )
    folder = package.archive and package.archive.subdirectory
    return f"{package.name} @ {files[0].url}{f'#subdirectory={folder}' if folder else ''}"


def _files(package: Package) -> list[PackageWheel | PackageSdist | PackageArchive]:
    files = (*(package.wheels or ()), package.sdist, package.archive)
    return [file for file in files if file is not None and "sha256" in file.hashes]


def _not_a_file(lock: Lock, package: Package) -> UsageError:
    message = f"{package.name} in {lock.name} is no file with a sha256"
    return UsageError("not-exportable", message, hint=f"lock a release of {package.name}, or install it afterwards")
