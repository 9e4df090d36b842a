"""What somebody wants to have read: the wheels of a requirement, found where the sources have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU, Backend
from gpuinstall.catalog.listing import default_wheels, family_wheels, read_listing
from gpuinstall.catalog.narrowing import listed_builds, platforms
from gpuinstall.errors import InstallationError
from gpuinstall.plan.requirement import Asked, parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.row import LearnedRow

_AT_ONCE = 4


class Place(NamedTuple):
    """Where what is learned would run: ``backend`` None is every one for torch, and the newest for the rest."""

    os: str
    arch: str
    backend: Backend | None = None


def learn(text: str, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    """Read the newest release that satisfies a requirement; raise InstallationError where there is none to read."""
    requirement = parse_requirement(text)
    read = _torches if requirement.name == "torch" else _companions
    if rows := read(requirement, place, catalog, reader):
        return rows
    backend = f" for {place.backend}" if place.backend else ""
    message = f"no source lists a wheel of {requirement.text}{backend} for {place.os} {place.arch}"
    raise InstallationError("no-wheel", message, hint="Check the name, the version and the platform")


def _torches(requirement: Asked, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    backends = [place.backend] if place.backend else {build.backend for build in catalog.builds_for(*place[:2])}
    listing = read_listing(reader.sources, reader.client, [backend.tag for backend in sorted(backends)], ("torch",))
    listed = listed_builds(catalog.builds, listing, place.os, place.arch)
    allowed = (build for build in listed if requirement.allows(build.torch))
    builds = [build for build in allowed if place.backend in {None, build.backend}]
    newest = max((build.torch for build in builds), default=None)
    return side_by_side(reader.torch, (build for build in builds if build.torch == newest), _AT_ONCE)


def _companions(requirement: Asked, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    """The newest wheel for a platform; where the family's sources have none, the default index's."""
    builds = [build for build in catalog.builds_for(place.os, place.arch) if build.toolkit]
    build = max(builds, key=lambda build: (build.torch, build.toolkit or (0, 0)), default=None)
    backend = place.backend or (build.backend if build else CPU)
    sources, client, name = reader.sources, reader.client, requirement.name
    own = family_wheels(sources, client, backend.tag, name) if name in catalog.family else ()
    released = (wheel for wheel in own or default_wheels(sources, client, name) if not wheel.version.is_prerelease)
    allowed = (wheel for wheel in released if wheel.package == name and requirement.allows(wheel.version))
    fitting = [
        wheel
        for wheel in allowed
        if place[:2] in platforms(wheel.tags) or any(tag.platform == "any" for tag in wheel.tags)
    ]
    newest = max(fitting, key=lambda wheel: wheel.version, default=None)
    return [reader.companion(newest, backend, f"{place.os}-{place.arch}")] if newest else []
