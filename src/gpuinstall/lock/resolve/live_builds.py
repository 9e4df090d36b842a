"""Find torch builds that package indexes currently list."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from gpuinstall.base.errors import InstallationError, UnreachableError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import is_http_url, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.base.versions import known_backend
from gpuinstall.catalog import Build
from gpuinstall.catalog.listing import read_live_catalog
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.resolve.question import create_question
from gpuinstall.machine.vendors import create_rules
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.alternatives import list_unselectable_backends
from gpuinstall.sources import Sources
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import Client, Page, network_hint
from gpuinstall.wheels.learned.reader import Reader, make_reader
from gpuinstall.wheels.learned.row import WheelRow

MAX_TURNS = 3
"""Maximum number of new torch releases to read, one per iteration."""

BUILDS_PER_TURN = 4
"""Maximum number of builds of one torch to read, all concurrently."""


def add_live_builds(
    requests: Sequence[LockRequest],
    session: Session,
) -> tuple[list[LockRequest], UnreachableError | None]:
    """Return the requests with the builds that the sources list.

    The second value is the error of an unreachable default index. In this case, other
    findings about the sources are not reported.
    """
    addresses, client = session.sources.addresses, session.client
    unreachable = None
    if not session.sourcing.offline:
        default = session.find_default_index() or ""
        is_original = not addresses.default_index
        reads: list[Callable[[], UnreachableError | None]] = [
            partial(_check_default_index, default, client, is_original=is_original),
            *(
                partial(
                    _read_first_pages,
                    one,
                    session.sources,
                    client,
                    session.find_page_if_reachable,
                )
                for one in requests
            ),
        ]
        unreachable, *_ = map_concurrently(lambda read: read(), reads)
    reporter = Reporter() if unreachable else session.reporter
    sources, live = session.find_listed_sources(), []
    for request in requests:
        reader = make_reader(session, reporter)
        live.append(add_listed_builds(request, sources, client, reader))
        reporter = Reporter()
    silent = client.unreachable(addresses.torch_index)
    if silent and not unreachable:
        why = f"{silent.host} is unreachable; without it"
        if session.sourcing.offline:
            why = f"this run is offline; without {silent.host}"
        for text in dict.fromkeys(_find_unavailable_builds(requests, live, why)):
            session.reporter.warn(text)
    return live, unreachable


def _find_unavailable_builds(
    requests: Iterable[LockRequest],
    live: Iterable[LockRequest],
    why: str,
) -> Iterator[str]:
    """Yield the better builds that an unreachable torch index would provide.

    Args:
        requests: The requests, with the builds of the catalog.
        live: The same requests, with the builds that the sources currently list.
        why: The reason why the torch index was not read.
    """
    for request, live_request in zip(requests, live, strict=True):
        usual = request.outcome
        now = live_request.outcome
        if isinstance(usual, Rejected) or isinstance(now, Rejected):
            continue
        best = usual.choice.build.name
        here = now.choice.build.name
        if here != best:
            yield f"{why}, the best build is {here} instead of {best}"


def _read_first_pages(
    request: LockRequest,
    sources: Sources,
    client: Client,
    find_page: Callable[[str], Page | None],
) -> None:
    """Request the pages that every resolution needs, all at once.

    Later reads report the errors.
    """
    plan = request.outcome
    if isinstance(plan, Rejected):
        return
    needed = create_question(request, plan)
    reads: list[Callable[[], object]] = []
    if sources.uv.selects_latest:
        names = requirement_names(one for one in needed.programs if not one.url)
        reads += [partial(find_page, name) for name in names]
    if is_http_url(sources.addresses.torch_index):
        place = f"{sources.addresses.torch_index}/{plan.choice.build.backend.tag}"
        names = needed.requested & request.catalog.family
        if request.machine.os == "linux":
            names |= {"triton"}
        urls = [f"{place}/", *(f"{place}/{name}/" for name in names)]
        reads += [partial(client.page, url) for url in urls]

    def read_or_ignore(read: Callable[[], object]) -> None:
        with suppress(InstallationError):
            read()

    map_concurrently(read_or_ignore, reads)


def _check_default_index(
    address: str, client: Client, *, is_original: bool
) -> UnreachableError | None:
    """Return the error of an unreachable default index.

    The result is None if the index responds, or if uv may trust a certificate that
    gpuinstall does not trust.

    Args:
        address: The address of the index.
        client: The HTTP client.
        is_original: Whether no setting replaces uv's own default index.
    """
    if not is_http_url(address):
        return None
    try:
        # The catalog needs this page too. A recent one is validated while uv runs.
        client.page(f"{address}/torch/")
    except UnreachableError as error:
        hints = [*error.fixes, network_hint()]
        if is_original:
            hints.append("Set UV_DEFAULT_INDEX if you use a mirror")
        error.fixes = tuple(dict.fromkeys(hints))
        return error
    except InstallationError:
        return None  # the index responds
    return None


def add_listed_builds(
    request: LockRequest, sources: Sources, client: Client, reader: Reader
) -> LockRequest:
    """Return a request with the builds that the sources currently list.

    Each iteration inspects the latest torch version that was not inspected, until the
    selected version is later. Builds in the catalog are not inspected.

    Args:
        request: The request.
        sources: The sources, with the default index.
        client: The HTTP client.
        reader: Reads the builds, and reports them.

    Raises:
        InstallationError: A source refuses the request, or its page is malformed.
    """
    live = _read_listed_builds(request, sources, client, reader.reporter)
    unread = [build for build in live.catalog.builds if build.unread]
    if unread:
        live = _add_inspected_builds(live, unread, reader.find_cached_row)
    for _ in range(MAX_TURNS):
        to_read = _select_builds_to_read(live.outcome)
        if not to_read:
            break
        names = ", ".join(build.name for build in to_read)
        reader.reporter.wait(f"inspecting {names} (not in the catalog)")
        live = _add_inspected_builds(live, to_read, reader.read_torch_row)
    return live


def _read_listed_builds(
    request: LockRequest, sources: Sources, client: Client, reporter: Reporter
) -> LockRequest:
    """Return a request with the builds that the sources list, uninspected."""
    backend = known_backend(request.request.backend)
    kinds = {backend.kind} if backend else set()
    rules = create_rules(request.machine, request.catalog, kinds)
    catalog = rules.catalog
    # Builds from previous runs are read again if the sources still list them. Builds
    # marked as absent are kept, so that they are not selected again.
    shipped = [
        build for build in catalog.builds if build.learned is None or build.absent
    ]
    read = partial(
        read_live_catalog,
        replace(catalog, builds=tuple(shipped)),
        request.machine,
        request.request,
        sources=sources,
        client=client,
    )
    excluded = list_unselectable_backends(request.outcome, rules)
    live = replace(request, catalog=read(reporter, excluded=excluded))
    if isinstance(live.outcome, Rejected) and isinstance(request.outcome, Plan):
        # The refusal suggests the CPU build only if its index lists it.
        excluded = list_unselectable_backends(live.outcome, rules)
        live = replace(request, catalog=read(Reporter(), excluded=excluded))
    return live


def _select_builds_to_read(plan: Plan | Rejected) -> list[Build]:
    """Return builds to inspect for the latest uninspected torch version."""
    unread = [one for one in plan.rejected if one.reason.code == "not-in-catalogue"]
    readable = [one.candidate for one in unread if not one.candidate.obstacle]
    newest = max((build.torch for build in readable), default=None)
    if newest is None:
        return []
    if isinstance(plan, Plan) and plan.choice.build.torch > newest:
        return []
    return [build for build in readable if build.torch == newest][:BUILDS_PER_TURN]


def _add_inspected_builds(
    request: LockRequest,
    builds: Sequence[Build],
    ask: Callable[[Build], WheelRow | None],
) -> LockRequest:
    """Replace builds with facts from their wheels, or mark them unreadable.

    Args:
        request: The request.
        builds: The builds to replace.
        ask: Returns the row of a build; None if unknown.
    """

    def read_row(build: Build) -> Build:
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
            is_labeled=build.is_labeled,
        )

    learned = map_concurrently(read_row, builds, BUILDS_PER_TURN)
    answers = dict(zip(builds, learned, strict=True))
    catalog = request.catalog
    all_builds = tuple(answers.get(build, build) for build in catalog.builds)
    return replace(request, catalog=replace(catalog, builds=all_builds))
