"""From requirements to a lock: resolve, check where every file comes from, find the hashes; the bytes come last."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import GpuInstallError
from gpuinstall.lock.document import files
from gpuinstall.lock.hashes import known_hashes
from gpuinstall.lock.project import Project
from gpuinstall.lock.provenance import check
from gpuinstall.lock.resolution import Resolver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.lock.document import LockedFile
    from gpuinstall.lock.hashes import Hashes
    from gpuinstall.lock.means import Means
    from gpuinstall.lock.target import Target
    from gpuinstall.web import Client


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
class Wish:
    """What to resolve: requirements, for a target and Python ``X.Y``, under constraints, near preferred versions."""

    requirements: tuple[str, ...]
    target: Target
    python: str
    constraints: tuple[str, ...] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)


def draft(wish: Wish, family: Family, means: Means) -> Draft:
    """Resolve a wish; raise InstallationError or NoBuildError where uv cannot."""
    target, tags = wish.target, wish.target.tags(wish.python)

    def wheels_of(package: str) -> tuple[Wheel, ...]:
        return fitting(family.wheels(package), target.backend, tags)

    asked = {str(canonicalize_name(Requirement(text).name)) for text in wish.requirements} & family.names
    pages = {package: wheels for package in sorted(asked) if (wheels := wheels_of(package))}
    more = sorted((_demanded(wish, pages.get("torch", ()), means.client) & family.names) - set(pages))
    pages |= {package: wheels for package in more if (wheels := wheels_of(package))}
    with tempfile.TemporaryDirectory(prefix="gpuinstall-") as folder:
        resolver = Resolver(Path(folder), means.python, means.environment, family.names, wheels_of)
        project = Project(wish.requirements, wish.python, pages, wish.constraints, wish.preferred)
        project, resolved = resolver.resolve(project, target)
    found = files(resolved)
    check(found, project.pages)
    hashes = known_hashes(found, family.hashes, means.cache, means.client)
    return Draft(target, wish.python, resolved, found, hashes)


def _demanded(wish: Wish, torches: Sequence[Wheel], client: Client) -> set[str]:
    """What the wheel of torch demands on the target, where its metadata are served: known so, it saves a resolution."""
    wanted = [one.specifier for one in map(Requirement, wish.requirements) if canonicalize_name(one.name) == "torch"]
    chosen = (wheel for wheel in torches if all(wheel.version in one for one in wanted))
    wheel = next((wheel for wheel in chosen if wheel.metadata), None)
    environment = {**wish.target.environment(wish.python), "extra": ""}
    with suppress(GpuInstallError, InvalidRequirement):
        metadata, _ = parse_email(client.text(f"{wheel.url}.metadata") or "" if wheel else "")
        demands = map(Requirement, metadata.get("requires_dist", ()))
        return {
            str(canonicalize_name(one.name)) for one in demands if not one.marker or one.marker.evaluate(environment)
        }
    return set()


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
