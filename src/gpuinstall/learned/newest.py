"""The wheels of a requirement, found in the sources and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU, Backend
from gpuinstall.catalog.listing import default_wheels, family_wheels, read_listing
from gpuinstall.catalog.narrowing import listed_builds, platforms
from gpuinstall.errors import InstallationError
from gpuinstall.plan.requirement import ParsedRequirement, parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog, Wheel
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.row import LearnedRow

_AT_ONCE = 4


class Place(NamedTuple):
    """Where what is learned would run."""

    os: str
    arch: str
    backend: Backend | None = None
    """None: every one for torch, and the newest for the rest."""


def learn(
    text: str,
    place: Place,
    catalog: Catalog,
    reader: Reader,
) -> list[LearnedRow]:
    """Read the newest release that satisfies a requirement.

    Raises:
        InstallationError: if there is none to read.
    """
    requirement = parse_requirement(text)
    read = _torches if requirement.name == "torch" else _companions
    rows = read(requirement, place, catalog, reader)
    if rows:
        return rows
    backend = f" for {place.backend}" if place.backend else ""
    raise InstallationError(
        "no-wheel",
        f"no source lists a wheel of {requirement.text}{backend} for {place.os} {place.arch}",
        hint="Check the name, the version and the platform",
    )


def _torches(
    requirement: ParsedRequirement,
    place: Place,
    catalog: Catalog,
    reader: Reader,
) -> list[LearnedRow]:
    known = catalog.builds_for(place.os, place.arch)
    backends = {place.backend} if place.backend else {build.backend for build in known}
    tags = [backend.tag for backend in sorted(backends)]
    listing = read_listing(reader.sources, reader.client, tags, ("torch",))
    builds = []
    for build in listed_builds(catalog.builds, listing, place.os, place.arch):
        if place.backend and build.backend != place.backend:
            continue
        if requirement.allows(build.torch):
            builds.append(build)
    newest = max((build.torch for build in builds), default=None)
    to_read = [build for build in builds if build.torch == newest]
    return side_by_side(reader.torch, to_read, _AT_ONCE)


def _companions(
    requirement: ParsedRequirement,
    place: Place,
    catalog: Catalog,
    reader: Reader,
) -> list[LearnedRow]:
    """Read the newest wheel of the family's sources, or else of the default index."""
    backend = place.backend or _newest_backend(place, catalog)
    name = requirement.name
    wheels: tuple[Wheel, ...] = ()
    if name in catalog.family:
        wheels = family_wheels(reader.sources, reader.client, backend.tag, name)
    fitting = []
    for wheel in wheels or default_wheels(reader.sources, reader.client, name):
        if wheel.package != name or wheel.version.is_prerelease:
            continue
        if requirement.allows(wheel.version) and _is_for(wheel, place):
            fitting.append(wheel)
    if not fitting:
        return []
    newest = max(fitting, key=lambda wheel: wheel.version)
    return [reader.companion(newest, backend, f"{place.os}-{place.arch}")]


def _newest_backend(place: Place, catalog: Catalog) -> Backend:
    builds = [build for build in catalog.builds_for(place.os, place.arch) if build.toolkit]
    if not builds:
        return CPU
    newest = max(builds, key=lambda build: (build.torch, build.toolkit or (0, 0)))
    return newest.backend


def _is_for(wheel: Wheel, place: Place) -> bool:
    if any(tag.platform == "any" for tag in wheel.tags):
        return True
    return (place.os, place.arch) in platforms(wheel.tags)
