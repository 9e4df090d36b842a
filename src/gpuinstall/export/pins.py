"""What the formats take out of a lock: its packages by their hashes, the family's versions, its backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name

from gpuinstall.backend import Backend
from gpuinstall.errors import UsageError
from gpuinstall.lock.target import Target

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from packaging.pylock import Package, PackageArchive, PackageSdist, PackageWheel

    from gpuinstall.lock.lock import Lock

SYSTEMS = (
    ("linux", "x86_64"),
    ("linux", "aarch64"),
    ("windows", "x86_64"),
    ("windows", "arm64"),
    ("macos", "x86_64"),
    ("macos", "arm64"),
)


@dataclass(frozen=True)
class Pin:
    """One requirement and the sha256 of each file that may serve it."""

    requirement: str
    hashes: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The requirement and its options, as a requirements file has them."""
        return self.requirement, *(f"--hash=sha256:{digest}" for digest in self.hashes)


def pins(lock: Lock, family: Collection[str]) -> Iterator[Pin]:
    """Write each package of a lock as a requirement."""
    for package in lock.pylock.packages:
        files = _files(package)
        if not files:
            raise _not_a_file(lock, package)
        marker = f" ; {package.marker}" if package.marker else ""
        requirement = _requirement(package, files, by_address=canonicalize_name(package.name) in family)
        yield Pin(requirement + marker, tuple(sorted({str(file.hashes["sha256"]) for file in files})))


def backend_of(lock: Lock) -> Backend:
    """The backend of a lock; raise UsageError where neither its name nor torch's version says it."""
    _, _, local = lock.versions.get("torch", "").partition("+")
    try:
        return Backend.parse(local or Target.parse(lock.target).backend)
    except (UsageError, ValueError):
        message = f"{lock.name} does not say which build of torch it holds"
        raise UsageError("not-exportable", message, hint="name it for its target: pylock.cu126.toml") from None


def systems_of(lock: Lock) -> dict[tuple[str, str], dict[str, str]]:
    """The systems and processors that a lock is for, with the values of its markers on each.

    Raise UsageError where it does not say its Python.
    """
    if lock.python is None:
        raise UsageError("not-exportable", f"{lock.name} does not say which Python it is for", hint="gpuinstall lock")
    values = {(os, arch): Target("cpu", os, arch).environment(lock.python) for os, arch in SYSTEMS}
    markers = lock.pylock.environments
    return {
        system: here
        for system, here in values.items()
        if not markers or any(marker.evaluate(dict(here)) for marker in markers)
    }


def name_for_others(lock: Lock) -> str:
    """What an environment of the lock is called: ``torch-cu126``."""
    return lock.name.removesuffix(".toml").replace("pylock", "torch").replace(".", "-")


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
