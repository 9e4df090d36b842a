"""The catalogue as the sources have it today, with the new builds that may be the choice read from their wheels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import known_backend
from gpuinstall.catalog.listing import companions_asked, live_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.learned.companions import with_companions
from gpuinstall.learned.reader import Reader
from gpuinstall.learned.store import learned_store
from gpuinstall.plan import choose
from gpuinstall.threads import side_by_side
from gpuinstall.vendors import vendor_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.learned.row import LearnedRow
    from gpuinstall.learned.store import LearnedStore
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.reporter import Reporter
    from gpuinstall.request import Request
    from gpuinstall.sources import Sources
    from gpuinstall.web import Client

RELEASES = 3
"""How many new releases of torch to read, the newest first, before taking what is known."""
AT_ONCE = 4


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
    catalog = _served(catalog, machine, request)
    shipped = replace(catalog, builds=tuple(build for build in catalog.builds if build.learned is None or build.absent))
    live = live_catalog(shipped, machine, request, reporter, sources=sources, client=client)
    reader = Reader(sources, client, store or learned_store(), reporter)
    live = _with_rows(live, (build for build in live.builds if build.unread), reader.remembered)
    new = {build.torch for build in live.builds}.difference(live.releases)
    newest = sorted(new, reverse=True)[:RELEASES]
    live = with_companions(live, newest, companions_asked(request), sources=sources, client=client)
    for _ in range(RELEASES):
        wanted = _wanted(choose(machine, request, live)) if any(build.unread for build in live.builds) else []
        if not wanted:
            break
        reporter.wait(f"reading {', '.join(build.name for build in wanted)}, which the catalogue does not know")
        live = _with_rows(live, wanted, reader.torch)
    return live


def _wanted(plan: Plan) -> list[Build]:
    """The new builds of the newest torch that nothing else speaks against, if that is not older than the choice."""
    unread = (found.build for found in plan.rejected if found.code == "not-in-catalogue")
    open_ones = [build for build in unread if not build.obstacle]
    newest = max((build.torch for build in open_ones), default=None)
    if newest is None or (plan.choice and plan.choice.build.torch > newest):
        return []
    return [build for build in open_ones if build.torch == newest][:AT_ONCE]


def _with_rows(catalog: Catalog, builds: Iterable[Build], ask: Callable[[Build], LearnedRow | None]) -> Catalog:
    """Replace builds by what is said of them, or why nobody could be asked."""

    def answer(build: Build) -> Build:
        try:
            row = ask(build)
        except InstallationError as error:
            return replace(build, obstacle=error.message)
        return _learned(build, row) if row else build

    unread = tuple(builds)
    if not unread:
        return catalog
    answers = {id(build): found for build, found in zip(unread, side_by_side(answer, unread, AT_ONCE), strict=True)}
    return replace(catalog, builds=tuple(answers.get(id(build), build) for build in catalog.builds))


def _learned(build: Build, row: LearnedRow) -> Build:
    """The build as it is listed today, with what its wheel says."""
    return replace(
        row.build(),
        pythons=build.pythons,
        glibc=build.glibc,
        macos=build.macos,
        source=build.source,
        labelled=build.labelled,
    )


def _served(catalog: Catalog, machine: Machine, request: Request) -> Catalog:
    """The catalogue with the builds for the maker that is served."""
    asked = known_backend(request.backend)
    return catalog.serving(vendor_for(machine, {asked.kind} if asked else ()).kind)
