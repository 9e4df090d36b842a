"""The companions of a torch that nobody has catalogued: those that demand it in their own METADATA."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from email.parser import Parser
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.catalog.catalog import Companion, Release
from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.catalog.narrowing import platforms, python
from gpuinstall.errors import InstallationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.pages import Wheel
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client

    Versions = dict[str, Companion]

TRIED = 3
"""How many of the newest releases of a companion to ask whether they are for a torch."""


def with_companions(
    catalog: Catalog, torches: Iterable[Version], asked: Collection[str], *, sources: Sources, client: Client
) -> Catalog:
    """Add the releases of torch that only a listing knows, with those companions ``asked`` for that demand them.

    One whose companions do not say what they demand is left to the resolution.
    """
    releases, companions = dict(catalog.releases), dict(catalog.companions)
    for torch in torches if asked else ():
        builds = [build for build in catalog.builds if build.torch == torch]
        found = {name: _demanding(torch, _listed(name, builds, sources, client), catalog, client) for name in asked}
        told = {name: versions for name, versions in found.items() if versions is not None}
        if torch not in releases and told.keys() == found.keys():
            releases[torch] = Release(torch, "", tuple(told.get("torchvision", ())), tuple(told.get("torchaudio", ())))
            new = {(name, version): one for name, versions in told.items() for version, one in versions.items()}
            companions = new | companions
    return replace(catalog, releases=releases, companions=companions)


def _listed(name: str, builds: Iterable[Build], sources: Sources, client: Client) -> list[Wheel]:
    """The wheels of a companion where those builds come from, for their platform."""
    found: dict[Wheel, None] = {}
    for build in builds:
        by_default = build.source == DEFAULT_INDEX
        wheels = default_wheels(sources, client, name) if by_default else ()
        wheels = wheels or family_wheels(sources, client, build.backend.tag, name)
        found |= dict.fromkeys(wheel for wheel in wheels if (build.os, build.arch) in platforms(wheel.tags))
    return list(found)


def _demanding(torch: Version, wheels: Iterable[Wheel], catalog: Catalog, client: Client) -> Versions | None:
    """The newest releases that demand a torch, the newest first; None where one does not say what it demands."""
    by_version: dict[Version, list[Wheel]] = {}
    for wheel in wheels:
        if not wheel.version.is_prerelease:
            by_version.setdefault(Version(wheel.version.public), []).append(wheel)
    found: Versions = {}
    for version in sorted(by_version, reverse=True)[:TRIED]:
        same = by_version[version]
        demands = _demands(same[0], client)
        if demands is None:
            return None
        known = (same[0].package, str(version)) in catalog.companions
        if any(_is_for(demand, torch) for demand in demands) or (known and not demands):
            found[str(version)] = _companion(same)
    return found


def _demands(wheel: Wheel, client: Client) -> list[str] | None:
    """What a wheel says of torch; None where nobody can be asked."""
    with suppress(InstallationError):
        if page := client.page(f"{wheel.url}.metadata"):
            told = Parser().parsestr(page.text).get_all("Requires-Dist", ())
            return [text for text in told if re.match(r"torch\b(?!-)", text)]
    return None


def _is_for(demand: str, torch: Version) -> bool:
    with suppress(InvalidRequirement):
        return Requirement(demand).specifier.contains(torch, prereleases=True)
    return False


def _companion(wheels: Iterable[Wheel]) -> Companion:
    pythons = {python(wheel.tags) for wheel in wheels}
    places = {f"{os}_{arch}" for wheel in wheels for os, arch in platforms(wheel.tags)}
    return Companion(frozenset(places), None if None in pythons else frozenset(filter(None, pythons)))
