"""What the sources list today of what locks are requested for, with the new builds read from their wheels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.backend import CPU, known_backend
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Companion, Release, Wheel
from gpuinstall.catalog.listing import COMPANIONS, default_wheels, family_wheels, index_names
from gpuinstall.catalog.live import companions_asked, live_catalog
from gpuinstall.catalog.narrowing import platforms, python
from gpuinstall.lock.programs import names_programs, torch_requirements
from gpuinstall.machine.vendors import vendor_for
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.sources.web import UnreachableError
from gpuinstall.sources.web.client import ways_to_network
from gpuinstall.wheels.learned.reader import Reader, listed_metadata
from gpuinstall.wheels.learned.store import LearnedStore, learned_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.sources import Sources
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client
    from gpuinstall.wheels.learned.row import LearnedRow

ANSWERS_AT_ONCE = 32

MAX_TURNS = 3
"""How many new releases of torch are looked at, one a turn, before taking what is known."""

BUILDS_PER_TURN = 4
"""How many builds of a torch are read, all at once."""

COMPANION_RELEASES = 3
"""How many of the newest releases of a companion are asked which torch they require."""


def live_requests(
    requests: Sequence[LockRequest],
    session: Session,
) -> tuple[list[LockRequest], UnreachableError | None]:
    """Return every request with its catalogue narrowed to what the sources list, and a default index that is silent.

    What is to be reported of the sources is reported once, and not if the default index is unreachable.
    """
    unreachable = _ask_at_once(requests, session)
    reporter: Reporter = SilentReporter() if unreachable else session.reporter
    live = []
    for request in requests:
        catalog = learned_catalog(
            request.catalog,
            request.machine,
            request.request,
            reporter,
            sources=session.sources,
            client=session.client,
        )
        live.append(replace(request, catalog=catalog))
        reporter = SilentReporter()
    if unreachable is None:
        for text in _losses(requests, live, session):
            session.reporter.warn(text)
    return live, unreachable


def _ask_at_once(requests: Sequence[LockRequest], session: Session) -> UnreachableError | None:
    """Ask for every page that is known to be needed; return why the default index does not answer, if it does not.

    An index may be 50 ms away, and the pages of a lock with six targets are twenty. The client asks for each once; what
    fails is told where its answer is used.
    """
    sources, client = session.sources, session.client
    with ThreadPoolExecutor(ANSWERS_AT_ONCE) as pool:
        reached = pool.submit(_reach_default_index, session)
        pool.submit(default_wheels, sources, client, "torch")
        for request in requests:
            requirements = request.request.requirements
            family = request.catalog.family
            names = requirement_names(requirements)
            for name in names - family:
                pool.submit(session.known_page, name)
            if request.request.backend is None:
                pool.submit(client.page, f"{sources.torch_index}/torch/")
            usual = request.outcome
            if isinstance(usual, Rejected):
                continue
            backend = usual.choice.build.backend
            needed = names & family | {"torch"}
            if names_programs(requirements):
                needed |= COMPANIONS
            if backend != CPU:
                needed |= {"triton"} & family
            pool.submit(index_names, sources, client, backend.tag)
            for name in needed:
                pool.submit(family_wheels, sources, client, backend.tag, name)
        return reached.result()


def _losses(
    requests: Iterable[LockRequest],
    live: Iterable[LockRequest],
    session: Session,
) -> Iterable[str]:
    """Return what a torch index that does not answer would give."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent is None:
        return ()
    losses = dict[str, None]()
    for request, live_request in zip(requests, live, strict=True):
        usual = request.outcome
        now = live_request.outcome
        if isinstance(usual, Rejected) or isinstance(now, Rejected):
            continue
        best = usual.choice.build.name
        here = now.choice.build.name
        if here != best:
            text = f"{silent.host} is unreachable, so the build is {here} instead of {best}"
            losses[text] = None
    return losses


def _reach_default_index(session: Session) -> UnreachableError | None:
    """Return why the default index does not answer; None if it does, or uv is offline.

    uv alone tries for up to a minute. A certificate that we do not trust is left to uv, which may know another
    authority.
    """
    address = session.default_index or ""
    if session.environment.get("UV_OFFLINE") or not address.startswith(("http://", "https://")):
        return None
    try:
        session.client.head(f"{address}/")
    except UnreachableError as error:
        if error.untrusted:
            return None
        hints = dict.fromkeys((error.hint or "", ways_to_network()))
        error.hint = "\n".join(hints)
        return error
    return None


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
    companions = companions_asked(request)
    new = {build.torch for build in live.builds}.difference(live.releases)
    for torch in sorted(new, reverse=True)[:MAX_TURNS] if companions else ():
        live = _with_release(live, torch, companions, sources, client)
    for _ in range(MAX_TURNS):
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

    answers = dict(zip(builds, side_by_side(answer, builds, BUILDS_PER_TURN), strict=True))
    return replace(catalog, builds=tuple(answers.get(build, build) for build in catalog.builds))


def _with_release(
    catalog: Catalog,
    torch: Version,
    companions: Iterable[str],
    sources: Sources,
    client: Client,
) -> Catalog:
    """Add a release of torch that only a listing knows, with the companions that require it.

    A torch for which a companion has no release yet is added too, so that the choice passes it over. One with a
    companion whose server does not tell its requirements is left to the resolution.
    """
    builds = [build for build in catalog.builds if build.torch == torch]
    known = dict(catalog.companions)
    versions: dict[str, tuple[str, ...]] = {}
    for name in companions:
        wheels = _wheels_beside(name, builds, sources, client)
        fitting = _releases_beside(torch, wheels, catalog, client)
        if fitting is None:
            return catalog
        versions[name] = tuple(fitting)
        for version, companion in fitting.items():
            known.setdefault((name, version), companion)
    release = Release(
        torch=torch,
        released="",
        torchvision=versions.get("torchvision", ()),
        torchaudio=versions.get("torchaudio", ()),
    )
    return replace(catalog, releases={**catalog.releases, torch: release}, companions=known)


def _wheels_beside(
    name: str,
    builds: Iterable[Build],
    sources: Sources,
    client: Client,
) -> list[Wheel]:
    """Return the final wheels of a companion where those builds come from, for their platform."""
    listed: dict[Wheel, None] = {}
    for build in builds:
        wheels: Iterable[Wheel] = ()
        if build.source is DEFAULT_INDEX:
            wheels = default_wheels(sources, client, name)
        for wheel in wheels or family_wheels(sources, client, build.backend.tag, name):
            is_for_platform = (build.os, build.arch) in platforms(wheel.tags)
            if is_for_platform and not wheel.version.is_prerelease:
                listed[wheel] = None
    return list(listed)


def _releases_beside(
    torch: Version,
    wheels: Iterable[Wheel],
    catalog: Catalog,
    client: Client,
) -> dict[str, Companion] | None:
    """Return the releases that run beside a torch, the newest first; None if a server does not tell."""
    by_version: dict[Version, list[Wheel]] = {}
    for wheel in wheels:
        by_version.setdefault(Version(wheel.version.public), []).append(wheel)
    companions: dict[str, Companion] = {}
    for version in sorted(by_version, reverse=True)[:COMPANION_RELEASES]:
        same = by_version[version]
        metadata = listed_metadata(same[0].url, client)
        if metadata is None:
            return None
        requires = map(str, metadata.get_all("Requires-Dist", ()))
        allowed = [one.allows(torch) for one in torch_requirements(requires)]
        # torchaudio 2.11.0, the last, requires no torch: it runs beside every newer one. Of a release that the
        # catalogue does not know, that is not assumed.
        is_catalogued = (same[0].package, str(version)) in catalog.companions
        if any(allowed) or (is_catalogued and not allowed):
            places = {f"{os}_{arch}" for wheel in same for os, arch in platforms(wheel.tags)}
            pythons = {python(wheel.tags) or "any" for wheel in same}
            companions[str(version)] = Companion(frozenset(places), frozenset(pythons))
    return companions
