"""What somebody wants to have read: the wheels of a requirement, found where the sources have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.backend import CPU
from gpuinstall.catalog.listing import default_wheels, family_wheels, read_listing
from gpuinstall.catalog.narrowing import listed_builds, platforms
from gpuinstall.errors import InstallationError
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from gpuinstall.backend import Backend
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Wheel
    from gpuinstall.learned.reader import Reader
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.plan.requirement import Asked

AT_ONCE = 4


class Place(NamedTuple):
    """Where what is learned would run: ``backend`` None is every one for torch, and the newest for the rest."""

    os: str
    arch: str
    backend: Backend | None = None


def learn(text: str, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    """Read the newest release that satisfies a requirement; raise InstallationError where there is none to read."""
    asked = parse_requirement(text)
    if asked.name == "torch":
        return _torches(asked, place, catalog, reader)
    builds = [build for build in catalog.builds_for(place.os, place.arch) if build.toolkit]
    build = max(builds, key=lambda build: (build.torch, build.toolkit or (0, 0)), default=None)
    backend = place.backend or (build.backend if build else CPU)
    here = [wheel for wheel in _listed(asked, backend, catalog, reader) if _suits(wheel, asked, place)]
    if not here:
        raise _missing(asked, place)
    newest = max(here, key=lambda wheel: wheel.version)
    return [reader.companion(newest, backend, f"{place.os}-{place.arch}")]


def _torches(asked: Asked, place: Place, catalog: Catalog, reader: Reader) -> list[LearnedRow]:
    known = {build.backend for build in catalog.builds_for(place.os, place.arch)}
    tags = [backend.tag for backend in ([place.backend] if place.backend else sorted(known))]
    listing = read_listing(reader.sources, reader.client, tags, ("torch",))
    found = [
        build
        for build in listed_builds(catalog.builds, listing, place.os, place.arch)
        if asked.allows(build.torch) and place.backend in {None, build.backend}
    ]
    if not found:
        raise _missing(asked, place)
    newest = max(build.torch for build in found)
    return side_by_side(reader.torch, (build for build in found if build.torch == newest), AT_ONCE)


def _listed(asked: Asked, backend: Backend, catalog: Catalog, reader: Reader) -> tuple[Wheel, ...]:
    sources, client, of_family = reader.sources, reader.client, asked.name in catalog.family
    own = family_wheels(sources, client, backend.tag, asked.name) if of_family else ()
    return own or default_wheels(sources, client, asked.name)


def _suits(wheel: Wheel, asked: Asked, place: Place) -> bool:
    of_it = wheel.package == asked.name and not wheel.version.is_prerelease and asked.allows(wheel.version)
    return of_it and ((place.os, place.arch) in platforms(wheel.tags) or _is_for_all(wheel))


def _is_for_all(wheel: Wheel) -> bool:
    return any(tag.platform == "any" for tag in wheel.tags)


def _missing(asked: Asked, place: Place) -> InstallationError:
    backend = f" for {place.backend}" if place.backend else ""
    message = f"no source lists a wheel of {asked.text}{backend} for {place.os} {place.arch}"
    return InstallationError("no-wheel", message, hint="check the name, the version and the platform")
