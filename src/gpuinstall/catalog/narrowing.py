"""The catalogue, sharpened by what the sources list today; pure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.catalog.build import CPU, DEFAULT_INDEX, Build
from gpuinstall.catalog.tags import glibc_floor, platforms, python
from gpuinstall.versions import CudaVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuinstall.catalog.listing import Listing
    from gpuinstall.catalog.pages import Wheel

    Key = tuple[Version, str]
    Listed = Mapping[Key, Mapping[str, list[Wheel]]]


def narrowed(builds: Iterable[Build], listing: Listing, os: str, arch: str) -> tuple[Build, ...]:
    """Return the builds of a platform as the sources have them, one for each source; other platforms stay.

    What the index has withdrawn, or no source that answers has, says so; so does what only the listing knows.
    """
    known = tuple(builds)
    here = [build for build in known if (build.os, build.arch) == (os, arch)]
    listed = _by_build(listing.wheels, here, os, arch)
    narrow = [narrower for build in here for narrower in _narrowed(build, listed, listing)]
    new = _unknown(listed, {(build.torch, build.backend) for build in here}, os, arch)
    return (*(build for build in known if (build.os, build.arch) != (os, arch)), *narrow, *new)


def offered(listing: Listing, os: str, arch: str) -> dict[tuple[str, str], frozenset[str]]:
    """Map each companion and backend that was asked for to the versions that the sources list for a platform."""
    found: dict[tuple[str, str], set[str]] = {
        (package, backend): set() for package in listing.packages - {"torch"} for backend in listing.backends
    }
    for wheel in listing.wheels:
        versions = found.get((wheel.package, wheel.backend or ""))
        if versions is not None and (os, arch) in platforms(wheel.tags):
            versions.add(wheel.version.public)
    return {key: frozenset(versions) for key, versions in found.items()}


def _by_build(wheels: Iterable[Wheel], builds: Iterable[Build], os: str, arch: str) -> Listed:
    """Sort torch's wheels for a platform by build and, within it, by source, the first source first."""
    defaults = {build.torch: build.backend for build in builds if build.on_default_index}
    found: dict[Key, dict[str, list[Wheel]]] = defaultdict(lambda: defaultdict(list))
    for wheel in wheels:
        if wheel.package == "torch" and (os, arch) in platforms(wheel.tags):
            torch = Version(wheel.version.public)
            backend = wheel.backend or defaults.get(torch)
            if backend is not None:
                found[torch, backend][wheel.source].append(wheel)
    return found


def _narrowed(build: Build, listed: Listed, listing: Listing) -> Iterator[Build]:
    by_source = listed.get((build.torch, build.backend), {})
    own = {source: wheels for source, wheels in by_source.items() if source != DEFAULT_INDEX}
    if by_source:
        yield from (_as_listed(build, source, wheels) for source, wheels in (own or by_source).items())
    elif build.backend not in listing.backends and listing.index_answers:
        yield build
    elif build.on_default_index and not listing.default_listed:
        yield replace(build, source=DEFAULT_INDEX, labelled=False)
    else:
        yield replace(build, absent="withdrawn" if listing.index_answers else "unreachable")


def _as_listed(build: Build, source: str, wheels: list[Wheel]) -> Build:
    return replace(
        build,
        source=source,
        pythons=_pythons(wheels),
        labelled=wheels[0].version.local is not None,
        confidence="low" if build.confidence == "unverified" else build.confidence,
    )


def _unknown(listed: Listed, known: set[Key], os: str, arch: str) -> Iterator[Build]:
    for (torch, backend), by_source in listed.items():
        if (torch, backend) not in known and not torch.is_prerelease and backend.startswith((CPU, "cu")):
            for source, wheels in by_source.items():
                yield Build(
                    torch=torch,
                    backend=backend,
                    os=os,
                    arch=arch,
                    toolkit=_toolkit(backend),
                    pythons=_pythons(wheels),
                    glibc=glibc_floor(wheels[0].tags),
                    confidence="unverified",
                    labelled=wheels[0].version.local is not None,
                    source=source,
                    unknown=True,
                )


def _pythons(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    found = {name for wheel in wheels if (name := python(wheel.tags)) is not None}
    return tuple(sorted(found, key=lambda name: (int(name.removesuffix("t").partition(".")[2]), name)))


def _toolkit(backend: str) -> CudaVersion | None:
    digits = backend.removeprefix("cu")
    return CudaVersion(int(digits[:-1]), int(digits[-1])) if digits.isdecimal() and len(digits) > 1 else None
