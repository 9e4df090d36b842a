"""The catalogue, sharpened by what the sources list today; pure."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.backend import Backend, known_backend
from gpuinstall.catalog.catalog import (
    DEFAULT_INDEX,
    Build,
    Catalog,
    Wheel,
    index_arch,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from packaging.tags import Tag

    from gpuinstall.catalog.catalog import WheelSource
    from gpuinstall.catalog.listing import Listing

    _Key = tuple[Version, Backend]
    _Sources = Mapping[WheelSource, list[Wheel]]
    _Listed = Mapping[_Key, _Sources]

_LEGACY_GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_WINDOWS = {"win_amd64": "x86_64", "win_arm64": "arm64"}


def narrow(
    catalog: Catalog,
    listing: Listing,
    os: str,
    arch: str,
) -> Catalog:
    """Return the catalogue with the builds of a platform as the sources list them today."""
    arch = index_arch(os, arch)
    return replace(
        catalog,
        builds=narrowed(catalog.builds, listing, os, arch),
        offered=offered(listing, os, arch),
    )


def narrowed(
    builds: Iterable[Build],
    listing: Listing,
    os: str,
    arch: str,
) -> tuple[Build, ...]:
    """Return the builds of a platform as the sources have them, one for each source.

    Other platforms stay. A build that the index has withdrawn, or that no source that answers has,
    is marked so; a build that only the listing knows has its wheels.
    """
    other_platforms = []
    known = []
    kinds = set()
    for build in builds:
        kinds.add(build.backend.kind)
        if (build.os, build.arch) == (os, arch):
            known.append(build)
        else:
            other_platforms.append(build)

    listed = _by_build(listing.wheels, known, os, arch)
    as_listed: list[Build] = []
    known_keys = set()
    for build in known:
        key = build.torch, build.backend
        known_keys.add(key)
        as_listed += _as_listed(build, listed.get(key, {}), listing)

    new = {}
    for key, by_source in listed.items():
        torch, backend = key
        if key in known_keys or torch.is_prerelease:
            continue
        if backend.kind in kinds:
            new[key] = by_source
    return (*other_platforms, *as_listed, *_unknown(new, os, arch))


def offered(
    listing: Listing,
    os: str,
    arch: str,
) -> dict[tuple[str, str], frozenset[str]]:
    """Return the versions, with labels, listed for a platform, by companion and backend."""
    offered: dict[tuple[str, str], frozenset[str]] = {}
    for package in listing.packages - {"torch"}:
        for backend in listing.backends:
            offered[package, backend] = frozenset()
    for wheel in listing.wheels:
        key = wheel.package, wheel.backend or ""
        if key in offered and (os, arch) in platforms(wheel.tags):
            offered[key] |= {str(wheel.version)}
    return offered


def _by_build(
    wheels: Iterable[Wheel],
    known: Iterable[Build],
    os: str,
    arch: str,
) -> _Listed:
    """Return torch's wheels for a platform by build and source, the first source first."""
    defaults = {build.torch: build.backend for build in known if build.on_default_index}
    newest = max(defaults, default=Version("0"))
    by_build: dict[_Key, dict[WheelSource, list[Wheel]]] = defaultdict(lambda: defaultdict(list))
    for wheel in wheels:
        if wheel.package != "torch" or (os, arch) not in platforms(wheel.tags):
            continue
        torch = Version(wheel.version.public)
        # On the default index a torch newer than all that are known is taken for what it was last.
        backend = known_backend(wheel.backend) or defaults.get(min(torch, newest))
        if backend is not None:
            by_build[torch, backend][wheel.source].append(wheel)
    return by_build


def _without_default(by_source: _Sources) -> _Sources:
    """Return the sources without the default index, unless it is the only one."""
    own = dict(by_source)
    own.pop(DEFAULT_INDEX, None)
    return own or by_source


def _as_listed(
    build: Build,
    by_source: _Sources,
    listing: Listing,
) -> Iterator[Build]:
    for source, wheels in _without_default(by_source).items():
        yield replace(
            build,
            source=source,
            pythons=_pythons(wheels),
            labelled=wheels[0].version.local is not None,
            macos=_macos_floor(wheels) or build.macos,
            confidence="low" if build.confidence == "unverified" else build.confidence,
        )
    if by_source:
        return
    was_asked_for = build.backend.tag in listing.backends
    if not was_asked_for and listing.index_answers:
        yield build
    elif build.on_default_index and not listing.default_listed:
        yield replace(
            build,
            source=DEFAULT_INDEX,
            labelled=False,
        )
    else:
        yield replace(build, absent="withdrawn" if listing.index_answers else "unreachable")


def _unknown(
    listed: _Listed,
    os: str,
    arch: str,
) -> Iterator[Build]:
    for (torch, backend), by_source in listed.items():
        for source, wheels in _without_default(by_source).items():
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


def unknown_builds(
    wheels: Iterable[Wheel],
    known: Collection[Build],
    os: str,
    arch: str,
) -> Iterator[Build]:
    """Yield the builds of a platform that wheels of torch are of, but for those that are ``known``."""
    known_keys = {(build.torch, build.backend) for build in known}
    listed = _by_build(wheels, known, os, arch)
    yield from _unknown({key: listed[key] for key in listed.keys() - known_keys}, os, arch)


def _toolkit(backend: Backend) -> tuple[int, int] | None:
    """Return the release that a tag names: a build is made with the toolkit of its backend."""
    match = re.match(r"(\d+)\.(\d+)", backend.version or "")
    if match is None:
        return None
    return int(match[1]), int(match[2])


def _pythons(wheels: Iterable[Wheel]) -> tuple[str, ...]:
    names = {python(wheel.tags) for wheel in wheels}
    return tuple(sorted(filter(None, names), key=_python_key))


def _python_key(name: str) -> tuple[int, str]:
    minor = name.removesuffix("t").partition(".")[2]
    return int(minor), name


def _macos_floor(wheels: Iterable[Wheel]) -> str | None:
    """Return the oldest macOS that some of the wheels run on; None for another system."""
    floors = []
    for wheel in wheels:
        for tag in wheel.tags:
            match = re.match(r"macosx_([0-9]+)_([0-9]+)_", tag.platform)
            if match:
                floors.append(f"{match[1]}.{match[2]}")
    return min(
        floors,
        key=Version,
        default=None,
    )


def platforms(tags: Iterable[Tag]) -> frozenset[tuple[str, str]]:
    """Return the (os, arch) pairs that a wheel is for."""
    found = {_platform(tag.platform) for tag in tags}
    return frozenset(filter(None, found))


def _platform(tag: str) -> tuple[str, str] | None:
    if tag in _WINDOWS:
        return "windows", _WINDOWS[tag]
    linux = re.fullmatch(r"(?:linux|manylinux[0-9_]*)_(x86_64|aarch64)", tag)
    if linux:
        return "linux", linux[1]
    macos = re.fullmatch(r"macosx_[0-9]+_[0-9]+_(x86_64|arm64)", tag)
    if macos:
        return "macos", macos[1]
    return None


def python(tags: Iterable[Tag]) -> str | None:
    """Return the one CPython that a wheel is for: ``X.Y`` or, free-threaded, ``X.Yt``."""
    names = {_python(tag) for tag in tags}
    if len(names) > 1:
        return None
    return next(iter(names), None)


def _python(tag: Tag) -> str | None:
    match = re.fullmatch(r"cp3([0-9]+)", tag.interpreter)
    if match is None or tag.abi == "abi3":
        return None
    name = f"3.{match[1]}"
    return f"{name}t" if tag.abi.endswith("t") else name


def glibc_floor(tags: Iterable[Tag]) -> str | None:
    """Return the oldest glibc that a wheel's platform tags allow; None if they name none."""
    floors = {_glibc(tag.platform) for tag in tags}
    return min(
        filter(None, floors),
        key=Version,
        default=None,
    )


def _glibc(tag: str) -> str | None:
    match = re.match(r"manylinux_([0-9]+)_([0-9]+)_", tag)
    if match:
        return f"{match[1]}.{match[2]}"
    return _LEGACY_GLIBC.get(tag.partition("_")[0])
