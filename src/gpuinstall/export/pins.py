"""What the formats take out of a lock: its packages by their hashes, the family's versions, its backend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import canonicalize_name

from gpuinstall.backend import Backend
from gpuinstall.errors import UsageError
from gpuinstall.lock.target import Target
from gpuinstall.shell import joined
from gpuinstall.text import visible

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from packaging.pylock import Package, PackageArchive, PackageSdist, PackageWheel

    from gpuinstall.lock.lock import Lock

_SHA256 = re.compile(r"[0-9a-f]{64}")
_ADDRESS = re.compile(r"[A-Za-z][\w+.-]*:[\w.~:/?#\[\]@!$&'()*+,;=%-]+", re.ASCII)
"""The characters of RFC 3986: no space, which would end a requirement, no brace, by which pip finds a variable."""
_FOLDER = re.compile(r"(?!\.\.?(/|$))[\w.+-]+(/(?!\.\.?(/|$))[\w.+-]+)*", re.ASCII)

PLATFORM_NAMES = {
    ("linux", "x86_64"): "linux-64",
    ("linux", "aarch64"): "linux-aarch64",
    ("windows", "x86_64"): "win-64",
    ("windows", "arm64"): "win-arm64",
    ("macos", "x86_64"): "osx-64",
    ("macos", "arm64"): "osx-arm64",
}
"""Systems and processors, as conda calls them."""


class Pin(NamedTuple):
    """One requirement and the sha256 of each file that may serve it."""

    requirement: str
    hashes: tuple[str, ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The requirement and its options, as a requirements file has them."""
        return self.requirement, *(f"--hash=sha256:{digest}" for digest in self.hashes)


def local_folders(lock: Lock) -> dict[str, str]:
    """Return the packages of a lock that are in folders, each with the words by which pip and uv install it.

    pip takes no folder beside files that have hashes.
    """
    words: dict[str, str] = {}
    for package in lock.pylock.packages:
        if package.directory:
            editable = ["-e"] if package.directory.editable else []
            path = package.directory.path
            place = path if path.startswith((".", "/")) else f"./{path}"
            words[package.name] = joined([*editable, place])
    return words


def without_folders(lock: Lock) -> str:
    """Write, as lines of comment, what the pins of a lock leave out; empty if that is nothing."""
    lines = (f"# Without {name}: pip install --no-deps {words}" for name, words in local_folders(lock).items())
    return "".join(f"{visible(line)}\n" for line in lines)


def pins(lock: Lock, family: Collection[str]) -> Iterator[Pin]:
    """Write each package of a lock as a requirement, but what is in a folder."""
    for package in lock.pylock.packages:
        if package.directory:
            continue
        possible = (*(package.wheels or ()), package.sdist, package.archive)
        files = [file for file in possible if file and _SHA256.fullmatch(file.hashes.get("sha256", ""))]
        if not files:
            message = f"{package.name} in {lock.name} is not a file with a sha256"
            hint = f"Lock a release of {package.name}, or install it afterwards"
            raise UsageError("not-exportable", message, hint=hint)
        marker = f" ; {package.marker}" if package.marker else ""
        requirement = requirement_of(package, files, by_address=canonicalize_name(package.name) in family) + marker
        if not requirement.isprintable():
            raise _not_exportable(package, f"is not on one line: {requirement!r}")
        yield Pin(requirement, tuple(sorted({file.hashes["sha256"] for file in files})))


def backend_of(lock: Lock) -> Backend:
    """The backend of a lock; raise UsageError where neither its name nor torch's version says it."""
    _, _, local = lock.versions.get("torch", "").partition("+")
    try:
        return Backend.parse(local or Target.parse(lock.target).backend)
    except (UsageError, ValueError):
        message = f"{lock.name} does not say which build of torch it has"
        raise UsageError("not-exportable", message, hint="Rename it after its target: pylock.cu126.toml") from None


def systems_of(lock: Lock) -> dict[tuple[str, str], dict[str, str]]:
    """The systems and processors that a lock is for, with the values of its markers on each.

    Raise UsageError where it does not say its Python.
    """
    if lock.python is None:
        raise UsageError("not-exportable", f"{lock.name} does not say which Python it is for", hint="gpuinstall lock")
    values = {(os, arch): Target("cpu", os, arch).environment(lock.python) for os, arch in PLATFORM_NAMES}
    markers = lock.pylock.environments
    return {
        system: here
        for system, here in values.items()
        if not markers or any(marker.evaluate(dict(here)) for marker in markers)
    }


def name_for_others(lock: Lock) -> str:
    """What an environment of the lock is called: ``torch-cu126``."""
    return re.sub(r"[^\w-]", "-", lock.name.removesuffix(".toml").replace("pylock", "torch"), flags=re.ASCII)


def requirement_of(
    package: Package, files: Sequence[PackageWheel | PackageSdist | PackageArchive], *, by_address: bool
) -> str:
    """Write a package by its version, or by the address of its only file; raise UsageError where others cannot."""
    if package.version and not package.archive and not (by_address and len(files) == 1):
        return f"{package.name}=={package.version}"
    address, folder = files[0].url or "", (package.archive and package.archive.subdirectory) or ""
    if not address:
        raise _not_exportable(package, "comes from a local folder that others do not have")
    if not _ADDRESS.fullmatch(address):
        raise _not_exportable(package, f"has an invalid URL: {address!r}")
    if folder and not _FOLDER.fullmatch(folder):
        raise _not_exportable(package, f"has an invalid folder in its archive: {folder!r}")
    return f"{package.name} @ {address}" + (f"#subdirectory={folder}" if folder else "")


def _not_exportable(package: Package, reason: str) -> UsageError:
    hint = "gpuinstall lock --upgrade   # with packages from an index"
    return UsageError("not-exportable", f"{package.name} {reason}", hint=hint)
