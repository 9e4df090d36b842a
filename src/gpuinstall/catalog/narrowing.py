"""The catalogue, sharpened by what the sources list today; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.backend import Backend, known_backend
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Wheel, index_arch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.tags import Tag

    from gpuinstall.catalog.listing import Listing

    _Key = tuple[Version, Backend]
    _Listed = Mapping[_Key, Mapping[str, list[Wheel]]]

_LEGACY_GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_WINDOWS = {"win_amd64": "x86_64", "win_arm64": "arm64"}


def narrow(catalog: Catalog, listing: Listing, os: str, arch: str) -> Catalog:
    """Return the catalogue with the builds of a platform as the sources list them today."""
    arch = index_arch(os, arch)
    return replace(catalog, builds=narrowed(catalog.builds, listing, os, arch), offered=offered(listing, os, arch))


def narrowed(builds: Iterable[Build], listing: Listing, os: str, arch: str) -> tuple[Build, ...]:
    """Return the builds of a platform as the sources have them, one for each source; other platforms stay.

    What the index has withdrawn, or no source that answers has, says so; what only the listing knows has its wheels.
    """
    every = tuple(builds)
    here = [build for build in every if (build.os, build.arch) == (os, arch)]
    listed = _by_build(listing.wheels, here, os, arch)
    narrow = [narrower for build in here for narrower in _narrowed(build, listed, listing)]
    catalogued = {(build.torch, build.backend) for build in here}
    kinds = {build.backend.kind for build in every}
    new = {
        (torch, backend): by_source
        for (torch, backend), by_source in listed.items()
        if (torch, backend) not in catalogued and backend.kind in kinds and not torch.is_prerelease
    }
    others = [build for build in every if (build.os, build.arch) != (os, arch)]
    return (*others, *narrow, *_unknown(new, os, arch))


def listed_builds(builds: Iterable[Build], listing: Listing, os: str, arch: str) -> tuple[Build, ...]:
    """Every build that the sources list for a platform, as if nobody knew it; ``builds`` are those known."""
    here = [build for build in builds if (build.os, build.arch) == (os, arch)]
    return tuple(_unknown(_by_build(listing.wheels, here, os, arch), os, arch))


def offered(listing: Listing, os: str, arch: str) -> dict[tuple[str, str], frozenset[str]]:
    """Map each companion and backend asked for to the versions, with labels, that are listed for a platform."""
    versions_of: dict[tuple[str, str], set[str]] = {
        (package, backend): set() for package in listing.packages - {"torch"} for backend in listing.backends
    }
    for wheel in listing.wheels:
        versions = versions_of.get((wheel.package, wheel.backend or ""))
        if versions is not None and (os, arch) in platforms(wheel.tags):
            versions.add(str(wheel.version))
    return {key: frozenset(versions) for key, versions in versions_of.items()}


def _by_build(wheels: Iterable[Wheel], builds: Iterable[Build], os: str, arch: str) -> _Listed:
    """Sort torch's wheels for a platform by build and, within it, by source, the first source first."""
    defaults = {build.torch: build.backend for build in builds if build.on_default_index}
    newest = max(defaults, default=Version("0"))
    by_build: dict[_Key, dict[str, list[Wheel]]] = defaultdict(lambda: defaultdict(list))
    for wheel in wheels:
        if wheel.package == "torch" and (os, arch) in platforms(wheel.tags):
            torch = Version(wheel.version.public)
            # What the default index has that is newer than all we know of is taken for what it was last.
            backend = known_backend(wheel.backend) or defaults.get(min(torch, newest))
            if backend is not None:
                by_build[torch, backend][wheel.source].append(wheel)
    return by_build


def _narrowed(build: Build, listed: _Listed, listing: Listing) -> Iterator[Build]:
    by_source = listed.get((build.torch, build.backend), {})
    own = {source: wheels for source, wheels in by_source.items() if source != DEFAULT_INDEX}
    if by_source:
        for source, wheels in (own or by_source).items():
            yield replace(
                build,
                source=source,
                pythons=_pythons(wheels),
                labelled=wheels[0].version.local is not None,
                macos=_macos_floor(wheels) or build.macos,
                confidence="low" if build.confidence == "unverified" else build.confidence,
            )
    elif build.backend.tag not in listing.backends and listing.index_answers:
        yield build
    elif build.on_default_index and not listing.default_listed:
        yield replace(build, source=DEFAULT_INDEX, labelled=False)
    else:
        yield replace(build, absent="withdrawn" if listing.index_answers else "unreachable")


def _unknown(listed: _Listed, os: str, arch: str) -> Iterator[Build]:
    for (torch, backend), by_source in listed.items():
        own = {source: wheels for source, wheels in by_source.items() if source != DEFAULT_INDEX}
        for source, wheels in (own or by_source).items():
            yield Build(
                torch=torch,
                backend=backend,
                os=os,
                arch=arch,
                toolkit=_toolkit(backend),
                pythons=_pythons(wheels),
                glibc=glibc_floor(wheels[0].tags),
                macos=_macos_floor(wheels),
                confidence="low",
                on_default_index=source == DEFAULT_INDEX,
                labelled=wheels[0].version.local is not None,
                source=source,
                unread=tuple(wheels),
            )


def _toolkit(backend: Backend) -> tuple[int, int] | None:
    """The toolkit that a tag tells of: a build is made with the release that its backend is named by."""
    numbers = [int(number) for number in (backend.version or "").split(".") if number]
    return (numbers[0], numbers[1]) if len(numbers) > 1 else None


def _pythons(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    pythons = {name for wheel in wheels if (name := python(wheel.tags)) is not None}
    return tuple(sorted(pythons, key=lambda name: (int(name.removesuffix("t").partition(".")[2]), name)))


def platforms(tags: Iterable[Tag]) -> frozenset[tuple[str, str]]:
    """The (os, arch) pairs that a wheel is for."""
    pairs = (_platform(tag.platform) for tag in tags)
    return frozenset(pair for pair in pairs if pair is not None)


def python(tags: Iterable[Tag]) -> str | None:
    """The CPython that a wheel is for, ``X.Y`` or, free-threaded, ``X.Yt``; None where it is not for one alone."""
    names = {_python(tag) for tag in tags}
    return names.pop() if len(names) == 1 else None


def glibc_floor(tags: Iterable[Tag]) -> str | None:
    """The oldest glibc that a wheel's platform tags promise, None where they promise nothing."""
    floors = [floor for tag in tags if (floor := _glibc(tag.platform)) is not None]
    return min(floors, key=lambda floor: [int(part) for part in floor.split(".")], default=None)


def _macos_floor(wheels: Iterable[Wheel]) -> str | None:
    """The oldest macOS that some of the wheels run on, None where they are for another system."""
    tags = {tag.platform for wheel in wheels for tag in wheel.tags}
    floors = (match.groups() for tag in tags if (match := re.match(r"macosx_([0-9]+)_([0-9]+)_", tag)))
    return ".".join(min(floors, key=lambda floor: [int(part) for part in floor], default=())) or None


def _platform(tag: str) -> tuple[str, str] | None:
    if tag in _WINDOWS:
        return "windows", _WINDOWS[tag]
    if match := re.fullmatch(r"(?:linux|manylinux[0-9_]*)_(x86_64|aarch64)", tag):
        return "linux", match[1]
    if match := re.fullmatch(r"macosx_[0-9]+_[0-9]+_(x86_64|arm64)", tag):
        return "macos", match[1]
    return None


def _python(tag: Tag) -> str | None:
    match = re.fullmatch(r"cp3([0-9]+)", tag.interpreter)
    if match is None or tag.abi == "abi3":
        return None
    return f"3.{match[1]}{'t' if tag.abi.endswith('t') else ''}"


def _glibc(tag: str) -> str | None:
    if match := re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag):
        return f"{match[1]}.{match[2]}"
    return _LEGACY_GLIBC.get(tag.partition("_")[0])
