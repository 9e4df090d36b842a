"""The dependency groups of a uv project that stand for its locks: one for each backend."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import UsageError
from gpuinstall.export.backend import backend_of
from gpuinstall.export.constraints import family_versions

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from gpuinstall.lock.lock import Lock


@dataclass(frozen=True)
class Group:
    """The dependency group of one backend: its requirements, the packages they name, and its Python."""

    backend: str
    requirements: tuple[str, ...]
    packages: tuple[str, ...]
    python: str

    @property
    def name(self) -> str:
        """The name of the group."""
        return f"torch-{self.backend}"

    @property
    def index(self) -> str:
        """The name of its index."""
        return f"gpuinstall-{self.backend}"


def groups(locks: Iterable[Lock], family: Collection[str]) -> tuple[Group, ...]:
    """Make a group of the locks of each backend; raise UsageError where a lock does not say its backend."""
    by_backend: dict[str, list[Lock]] = defaultdict(list)
    for lock in locks:
        by_backend[backend_of(lock)].append(lock)
    return tuple(_group(backend, together, family) for backend, together in sorted(by_backend.items()))


def _group(backend: str, locks: Sequence[Lock], family: Collection[str]) -> Group:
    held: dict[tuple[str, str], list[Lock]] = defaultdict(list)
    for lock in locks:
        for package, version in family_versions(lock, family).items():
            held[package, version.partition("+")[0]].append(lock)
    requirements = [
        f"{package}=={version}{_marker(package, holders, locks)}" for (package, version), holders in held.items()
    ]
    pythons = {str(lock.pylock.requires_python or "") for lock in locks}
    if len(pythons) > 1:
        names = ", ".join(lock.name for lock in locks)
        raise UsageError("pythons-differ", f"{names} are for different Pythons", hint="gpuinstall lock --upgrade")
    packages = sorted({package for package, _ in held})
    return Group(backend, tuple(requirements), tuple(packages), pythons.pop())


def _marker(package: str, holders: Sequence[Lock], locks: Sequence[Lock]) -> str:
    """Say where a requirement applies: everywhere, if it was asked for; else only where a lock holds it."""
    asked = {canonicalize_name(Requirement(text).name) for lock in locks for text in (*lock.inputs, "torch")}
    if package in asked and len(holders) == len(locks):
        return ""
    places = [str(marker).replace('"', "'") for lock in holders for marker in lock.pylock.environments or ()]
    return f" ; {' or '.join(places)}" if places else ""
