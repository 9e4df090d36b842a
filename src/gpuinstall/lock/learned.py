"""The catalogue as the sources have it today, with the new builds read from their wheels."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import Version

from gpuinstall.base.backend import known_backend
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Companion, Release, Wheel
from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.catalog.live import companions_asked, live_catalog
from gpuinstall.catalog.narrowing import platforms, python
from gpuinstall.machine.vendors import vendor_for
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.wheels.learned.reader import Reader, listed_metadata
from gpuinstall.wheels.learned.store import LearnedStore, learned_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.sources import Sources
    from gpuinstall.sources.web import Client
    from gpuinstall.wheels.learned.row import LearnedRow

    Versions = dict[str, Companion]

MAX_TURNS = 3
"""How many new releases of torch are looked at, one a turn, before taking what is known."""
BUILDS_PER_TURN = 4
"""How many builds of a torch are read, all at once."""
COMPANION_RELEASES = 3
"""How many of the newest releases of a companion are asked which torch they require."""


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
    """Return the catalogue as the sources list it today, with new builds that may be the choice.

    Each turn reads the newest torch that is unread, until the choice is newer than all of them. Of builds that the
    catalogue has, nothing is read.

    Raises:
        InstallationError: if a source refuses us or sends what is no page.
    """
    backend = known_backend(request.backend)
    kinds = {backend.kind} if backend else set()
    catalog = catalog.serving(vendor_for(machine, kinds).kind)
    # A source may list builds of earlier runs otherwise by now: those that it lists are recalled below. One that was
    # marked as absent stays, so that it is not chosen again.
    shipped = [build for build in catalog.builds if build.learned is None or build.absent]
    live = live_catalog(
        replace(catalog, builds=tuple(shipped)),
        machine,
        request,
        reporter,
        sources=sources,
        client=client,
    )
    reader = Reader(sources, client, store or learned_store(), reporter)
    unread = [build for build in live.builds if build.unread]
    live = _with_rows(live, unread, reader.remembered)
    new = {build.torch for build in live.builds}.difference(live.releases)
    newest = sorted(new, reverse=True)[:MAX_TURNS]
    companions = companions_asked(request)
    live = _with_companions(
        live,
        newest,
        companions,
        sources=sources,
        client=client,
    )
    for _ in range(MAX_TURNS):
        if not any(build.unread for build in live.builds):
            break
        to_read = _to_read(choose(machine, request, live))
        if not to_read:
            break
        names = ", ".join(build.name for build in to_read)
        reporter.wait(f"reading {names}, which is not in the catalogue")
        live = _with_rows(live, to_read, reader.torch)
    return live


def _to_read(plan: Plan | Rejected) -> list[Build]:
    """Return the unread builds of the newest torch that nothing else speaks against; none if the choice is newer."""
    unread = [one.candidate for one in plan.rejected if one.reason.code == "not-in-catalogue"]
    readable = [build for build in unread if not build.obstacle]
    newest = max((build.torch for build in readable), default=None)
    if newest is None:
        return []
    if isinstance(plan, Plan) and plan.choice.build.torch > newest:
        return []
    return [build for build in readable if build.torch == newest][:BUILDS_PER_TURN]


def _with_rows(
    catalog: Catalog,
    builds: Sequence[Build],
    ask: Callable[[Build], LearnedRow | None],
) -> Catalog:
    """Replace builds by what their wheels say, or by the obstacle to asking one."""

    def answer(build: Build) -> Build:
        try:
            row = ask(build)
        except InstallationError as error:
            return replace(build, obstacle=error.message)
        if row is None:
            return build
        return replace(
            row.build(),
            pythons=build.pythons,
            glibc=build.glibc,
            macos=build.macos,
            source=build.source,
            labelled=build.labelled,
        )

    if not builds:
        return catalog
    answers = dict(zip(builds, side_by_side(answer, builds, BUILDS_PER_TURN), strict=True))
    return replace(catalog, builds=tuple(answers.get(build, build) for build in catalog.builds))


def _with_companions(
    catalog: Catalog,
    torches: Iterable[Version],
    names: Collection[str],
    *,
    sources: Sources,
    client: Client,
) -> Catalog:
    """Add the releases of torch that only a listing knows, with the companions that require them.

    A torch for which a companion has no release yet is added too, so that the choice passes it over.
    """
    if not names:
        return catalog
    releases = dict(catalog.releases)
    companions = dict(catalog.companions)
    for torch in torches:
        builds = [build for build in catalog.builds if build.torch == torch]
        fitting: dict[str, Versions] = {}
        for name in names:
            wheels = _listed(name, builds, sources, client)
            versions = _fitting_releases(torch, wheels, catalog, client)
            if versions is not None:
                fitting[name] = versions
        # A companion whose server does not tell its requirements is left to the resolution.
        if len(fitting) < len(names):
            continue
        releases[torch] = Release(
            torch=torch,
            released="",
            torchvision=tuple(fitting.get("torchvision", ())),
            torchaudio=tuple(fitting.get("torchaudio", ())),
        )
        for name, versions in fitting.items():
            for version, companion in versions.items():
                companions.setdefault((name, version), companion)
    return replace(
        catalog,
        releases=releases,
        companions=companions,
    )


def _listed(
    name: str,
    builds: Iterable[Build],
    sources: Sources,
    client: Client,
) -> list[Wheel]:
    """Return the wheels of a companion where those builds come from, for their platform."""
    listed: dict[Wheel, None] = {}
    for build in builds:
        wheels: Iterable[Wheel] = ()
        if build.source == DEFAULT_INDEX:
            wheels = default_wheels(sources, client, name)
        for wheel in wheels or family_wheels(sources, client, build.backend.tag, name):
            if (build.os, build.arch) in platforms(wheel.tags):
                listed[wheel] = None
    return list(listed)


def _fitting_releases(
    torch: Version,
    wheels: Iterable[Wheel],
    catalog: Catalog,
    client: Client,
) -> Versions | None:
    """Return the releases that run beside a torch, the newest first; None if a server does not tell."""
    by_version: dict[Version, list[Wheel]] = {}
    for wheel in wheels:
        if not wheel.version.is_prerelease:
            by_version.setdefault(Version(wheel.version.public), []).append(wheel)
    companions: Versions = {}
    for version in sorted(by_version, reverse=True)[:COMPANION_RELEASES]:
        same = by_version[version]
        requirements = _torch_requirements(same[0], client)
        if requirements is None:
            return None
        # torchaudio 2.11.0, the last, requires no torch: it runs beside every newer one. Of a release that the
        # catalogue does not know, that is not assumed.
        is_catalogued = (same[0].package, str(version)) in catalog.companions
        is_unbound = is_catalogued and not requirements
        if is_unbound or any(_allows(requirement, torch) for requirement in requirements):
            companions[str(version)] = _companion(same)
    return companions


def _companion(wheels: Iterable[Wheel]) -> Companion:
    places: set[str] = set()
    pythons = set()
    for wheel in wheels:
        places.update(f"{os}_{arch}" for os, arch in platforms(wheel.tags))
        pythons.add(python(wheel.tags))
    if None in pythons:
        return Companion(frozenset(places))
    return Companion(frozenset(places), frozenset(filter(None, pythons)))


def _torch_requirements(wheel: Wheel, client: Client) -> list[str] | None:
    """Return what a wheel requires of torch; None if its server does not tell."""
    metadata = listed_metadata(wheel.url, client)
    if metadata is None:
        return None
    requirements = map(str, metadata.get_all("Requires-Dist", ()))
    return [text for text in requirements if re.match(r"torch\b(?!-)", text)]


def _allows(requirement: str, torch: Version) -> bool:
    with suppress(InvalidRequirement):
        return Requirement(requirement).specifier.contains(torch, prereleases=True)
    return False
