"""The catalogue as the sources have it today, with the new builds that may be the choice read from their wheels."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuinstall.backend import known_backend
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Companion, Release, Wheel
from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.catalog.live import companions_asked, live_catalog
from gpuinstall.catalog.narrowing import platforms, python
from gpuinstall.errors import InstallationError
from gpuinstall.learned.reader import Reader, listed_requirements
from gpuinstall.learned.store import LearnedStore, learned_store
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.threads import side_by_side
from gpuinstall.vendors import vendor_for

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.machine import Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client

    Versions = dict[str, Companion]

RELEASES = 3
"""How many new releases of torch to read, the newest first, before taking what is known."""
_AT_ONCE = 4
TRIED = 3
"""How many of the newest releases of a companion to ask whether they are for a torch."""


def learned_catalog(
    catalog: Catalog,
    machine: Machine,
    request: Request,
    reporter: Reporter,
    *,
    sources: Sources,
    client: Client,
    store: LearnedStore | None = None,
) -> Catalog:
    """Narrow the catalogue to what the sources list today, and read of the new builds those that may be the choice.

    The newest torch is read first, and no other once a build fits; nothing is read for what is known. Raise
    InstallationError where a source refuses us or talks nonsense.
    """
    backend = known_backend(request.backend)
    catalog = catalog.serving(vendor_for(machine, {backend.kind} if backend else ()).kind)
    shipped = replace(catalog, builds=tuple(build for build in catalog.builds if build.learned is None or build.absent))
    live = live_catalog(shipped, machine, request, reporter, sources=sources, client=client)
    reader = Reader(sources, client, store or learned_store(), reporter)
    live = _with_rows(live, (build for build in live.builds if build.unread), reader.remembered)
    new = {build.torch for build in live.builds}.difference(live.releases)
    newest = sorted(new, reverse=True)[:RELEASES]
    live = _with_companions(live, newest, companions_asked(request), sources=sources, client=client)
    for _ in range(RELEASES):
        wanted = _wanted(choose(machine, request, live)) if any(build.unread for build in live.builds) else []
        if not wanted:
            break
        reporter.wait(f"reading {', '.join(build.name for build in wanted)}, which is not in the catalogue")
        live = _with_rows(live, wanted, reader.torch)
    return live


def _wanted(plan: Plan | Rejected) -> list[Build]:
    """Return the new builds of the newest torch, if only that speaks against them and the choice is not newer."""
    unread = (one.candidate for one in plan.rejected if one.reason.code == "not-in-catalogue")
    readable = [build for build in unread if not build.obstacle]
    newest = max((build.torch for build in readable), default=None)
    if newest is None or (isinstance(plan, Plan) and plan.choice.build.torch > newest):
        return []
    return [build for build in readable if build.torch == newest][:_AT_ONCE]


def _with_rows(catalog: Catalog, builds: Iterable[Build], ask: Callable[[Build], LearnedRow | None]) -> Catalog:
    """Replace builds by what is said of them, or why nobody could be asked."""

    def answer(build: Build) -> Build:
        try:
            row = ask(build)
        except InstallationError as error:
            return replace(build, obstacle=error.message)
        if row is None:
            return build
        listed = replace(row.build(), pythons=build.pythons, glibc=build.glibc, macos=build.macos)
        return replace(listed, source=build.source, labelled=build.labelled)

    unread = tuple(builds)
    if not unread:
        return catalog
    answers = dict(zip(unread, side_by_side(answer, unread, _AT_ONCE), strict=True))
    return replace(catalog, builds=tuple(answers.get(build, build) for build in catalog.builds))


def _with_companions(
    catalog: Catalog, torches: Iterable[Version], named: Collection[str], *, sources: Sources, client: Client
) -> Catalog:
    """Add the releases of torch that only a listing knows, with those companions ``named`` that demand them."""
    releases, companions = dict(catalog.releases), dict(catalog.companions)
    for torch in torches if named else ():
        builds = [build for build in catalog.builds if build.torch == torch]
        demanding = {name: _demanding(torch, _listed(name, builds, sources, client), catalog, client) for name in named}
        if torch in releases or None in demanding.values():  # what does not say it is left to the resolution
            continue
        pairs = {name: tuple(versions or ()) for name, versions in demanding.items()}
        releases[torch] = Release(torch, "", pairs.get("torchvision", ()), pairs.get("torchaudio", ()))
        for name, versions in demanding.items():
            for version, companion in (versions or {}).items():
                companions.setdefault((name, version), companion)
    return replace(catalog, releases=releases, companions=companions)


def _listed(name: str, builds: Iterable[Build], sources: Sources, client: Client) -> list[Wheel]:
    """The wheels of a companion where those builds come from, for their platform."""
    listed: dict[Wheel, None] = {}
    for build in builds:
        by_default = build.source == DEFAULT_INDEX
        wheels = default_wheels(sources, client, name) if by_default else ()
        wheels = wheels or family_wheels(sources, client, build.backend.tag, name)
        listed |= dict.fromkeys(wheel for wheel in wheels if (build.os, build.arch) in platforms(wheel.tags))
    return list(listed)


def _demanding(torch: Version, wheels: Iterable[Wheel], catalog: Catalog, client: Client) -> Versions | None:
    """The newest releases that demand a torch, the newest first; None where one does not say what it demands."""
    by_version: dict[Version, list[Wheel]] = {}
    for wheel in wheels:
        if not wheel.version.is_prerelease:
            by_version.setdefault(Version(wheel.version.public), []).append(wheel)
    companions: Versions = {}
    for version in sorted(by_version, reverse=True)[:TRIED]:
        same = by_version[version]
        demands = _demands(same[0], client)
        if demands is None:
            return None
        catalogued = (same[0].package, str(version)) in catalog.companions
        if any(_is_for(demand, torch) for demand in demands) or (catalogued and not demands):
            pythons = {python(wheel.tags) for wheel in same}
            places = frozenset(f"{os}_{arch}" for wheel in same for os, arch in platforms(wheel.tags))
            every = None if None in pythons else frozenset(filter(None, pythons))
            companions[str(version)] = Companion(places, every)
    return companions


def _demands(wheel: Wheel, client: Client) -> list[str] | None:
    """Return what a wheel requires of torch; None if its server does not tell."""
    requirements = listed_requirements(wheel, client)
    return requirements and [text for text in requirements if re.match(r"torch\b(?!-)", text)]


def _is_for(demand: str, torch: Version) -> bool:
    with suppress(InvalidRequirement, RecursionError):
        return Requirement(demand).specifier.contains(torch, prereleases=True)
    return False
