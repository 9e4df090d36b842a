"""From requirements to a lock: resolve, check where every file comes from, find the hashes; the bytes come last."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.backend import CPU
from gpuinstall.lock.document import files
from gpuinstall.lock.hashes import known_hashes
from gpuinstall.lock.project import Project
from gpuinstall.lock.provenance import check
from gpuinstall.lock.resolution import Resolver
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.document import LockedFile
    from gpuinstall.lock.hashes import Hashes
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session


@dataclass(frozen=True)
class Family:
    """The names of the PyTorch family, what its sources list of each, and what their files are known to hash to.

    ``wheels`` gives nothing where a package is to come from the default index.
    """

    names: frozenset[str]
    wheels: Callable[[str], Sequence[Wheel]]
    hashes: Callable[[], Mapping[str, str]]


@dataclass(frozen=True)
class Draft:
    """A resolution whose files are known and checked, but not all hashed."""

    target: Target
    python: str
    resolved: Mapping[str, Any]
    files: tuple[LockedFile, ...]
    hashes: Hashes

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {package["name"]: package["version"] for package in self.resolved["packages"] if "version" in package}

    @property
    def builds_from_source(self) -> bool:
        """Say whether some package has no wheel for the target."""
        return any(not file.name.endswith(".whl") for file in self.files)


@dataclass(frozen=True)
class ResolveRequest:
    """What to resolve: requirements, for a target and Python ``X.Y``, under constraints, near preferred versions."""

    requirements: tuple[str, ...]
    target: Target
    python: str
    constraints: tuple[str, ...] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)


def draft(wish: ResolveRequest, family: Family, session: Session) -> Draft:
    """Resolve a wish; raise InstallationError or NoBuildError where uv cannot."""
    target, tags = wish.target, wish.target.tags(wish.python)

    def wheels_of(package: str) -> tuple[Wheel, ...]:
        return fitting(family.wheels(package), target.backend, tags)

    wanted = expected(wish.requirements, target.backend, family.names)
    pages = {package: wheels for package in wanted if (wheels := wheels_of(package))}
    with tempfile.TemporaryDirectory(prefix="gpuinstall-") as folder:
        resolver = Resolver(Path(folder), session.python, session.environment, family.names, wheels_of)
        project = Project(wish.requirements, wish.python, pages, wish.constraints, wish.preferred)
        project, resolved = resolver.resolve(project, target)
    found = files(resolved)
    check(found, project.pages)
    hashes = known_hashes(found, family.hashes, session.cache, session.client)
    return Draft(target, wish.python, resolved, found, hashes)


def expected(requirements: Iterable[str], backend: str, family: Collection[str]) -> list[str]:
    """The members of the family that a resolution will meet: those asked for, and what torch demands on Linux."""
    asked = {parse_requirement(text).name for text in requirements} | ({"triton"} if backend != CPU.tag else set())
    return sorted(asked & set(family))


def fitting(wheels: Sequence[Wheel], backend: str, tags: Sequence[Tag]) -> tuple[Wheel, ...]:
    """Of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    rank = {tag: place for place, tag in enumerate(tags)}
    best: dict[str, tuple[int, Wheel]] = {}
    for wheel in wheels:
        places = [rank[tag] for tag in wheel.tags if tag in rank]
        if not places or wheel.backend not in {backend, None}:
            continue
        key = str(wheel.version)
        if key not in best or min(places) < best[key][0]:
            best[key] = min(places), wheel
    return tuple(wheel for _, wheel in best.values())
