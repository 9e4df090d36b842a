"""The making of locks: of what the sources list today, or close to what the locks of a folder hold."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall import process, uv
from gpuinstall.backend import CPU
from gpuinstall.catalog.listing import default_wheels, family_wheels, index_names
from gpuinstall.errors import InstallationError, MachineError, NoBuildError, UsageError
from gpuinstall.lock.package_names import PackageNames
from gpuinstall.lock.programs import FIRST_PAGES, fetch_pages, misnamed_releases, names_programs
from gpuinstall.lock.request import LockRequest, VersionPins, agree_on_torch
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan import Refusal
from gpuinstall.plan.requirement import Asked, parse_requirement
from gpuinstall.plan.values import Reason
from gpuinstall.reporter import Reporter, SilentReporter
from gpuinstall.web import UnreachableError
from gpuinstall.web.answers import OFFLINE, ways_to_network

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session


TORCHES = 3
"""How many versions of torch to try that extensions have files for, where the rest goes with none of theirs."""


def resolve_locks(
    requests: Sequence[LockRequest],
    session: Session,
    *,
    held: Sequence[Lock] = (),
    moving: Collection[str] = (),
    newest: bool = False,
) -> list[Resolution]:
    """Choose from what the sources list today and resolve; the versions of ``held`` stay where nothing is against them.

    With ``moving`` those packages alone may move, and torch only with them; with ``newest`` each lock has its own
    torch. Raise MachineError or NoBuildError where nothing fits, InstallationError where a source or uv fails, and
    UsageError for a package that is to move and that no lock has.
    """
    staying = (file for lock in held for file in lock.files if file.sha256 and file.package not in moving)
    locked = {file.name: file.sha256 or "" for file in staying}
    requests = [replace(request, locked=locked) for request in requests]
    for attempt in _attempts(requests, held, moving):
        answer = _resolve_live(attempt, session, newest=newest)
        if not isinstance(answer, Conflict):
            return [one.warned_of(_moved(one.versions, requests[0].request.preferred, moving)) for one in answer]
        error = answer.error
    raise error


def _resolve_live(requests: Sequence[LockRequest], session: Session, *, newest: bool) -> list[Resolution] | Conflict:
    with ask_live_index(requests, session) as answers:
        # Loaded while the servers answer.
        from gpuinstall.lock.source_builds import check_builds, source_builds, this_site
        from gpuinstall.lock.strangers import name_torch_source

        live, unreachable = answers()
    misnamed = misnamed_releases(requests[0].request.requirements, requests[0].catalog.family, session)
    live = [replace(request, pins=request.pins.within(*request.request.constraints, *misnamed)) for request in live]
    answer: list[Resolution] | Conflict
    try:
        if unreachable:
            answer = _from_cache(live, session, unreachable, newest=newest)
        else:
            answer = _agree_with_extensions(live, session, newest=newest)
    except (NoBuildError, MachineError) as error:
        answer = Conflict(error)
    except InstallationError as error:
        if error.code == "unreachable":
            return _other_obstacle(requests, session, error, newest=newest)
        raise
    if isinstance(answer, Conflict):
        silent = session.client.unreachable(session.sources.torch_index)
        return _other_obstacle(requests, session, silent, newest=newest) if silent else answer
    try:
        for resolution in answer:
            request = resolution.request
            site = this_site(resolution.choice, resolution.versions, request.machine, session)
            name_torch_source(resolution.files, resolution.choice.build.source or "", session)
            check_builds(source_builds(resolution.document), site, session.reporter, here=request.builds_here)
    except NoBuildError as error:
        return Conflict(error)
    return answer


def _other_obstacle(
    requests: Sequence[LockRequest],
    session: Session,
    silence: InstallationError,
    *,
    newest: bool,
) -> Conflict:
    """Return what would refuse the requests also if every source answered; raise ``silence`` if nothing would.

    That is a version that the default index does not have, or what the rules say of the catalogue.
    """
    first, sources = requests[0], session.sources
    from_default_index = list[Asked]()
    if not (sources.find_links or sources.has_further_indexes):
        for requirement in map(parse_requirement, first.request.requirements):
            # With a marker it may not be wanted here.
            is_plain = requirement.url is None and requirement.marker is None
            if is_plain and requirement.name not in first.catalog.family:
                from_default_index.append(requirement)
    names = PackageNames(session)
    for requirement in from_default_index:
        if missing := names.missing_version(requirement):
            return missing
    try:
        agree_on_torch(requests, newest=newest)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    if session.environment.get("UV_OFFLINE"):
        silence.why, silence.hint = OFFLINE
    raise silence


def _agree_with_extensions(
    requests: Sequence[LockRequest], session: Session, *, newest: bool
) -> list[Resolution] | Conflict:
    """Choose extensions that were named and torch together, then the rest; where that fails, with an older torch."""
    from gpuinstall.lock.agreement import agree_with_code
    from gpuinstall.lock.prebuilt import optional_extensions, with_brought, with_prebuilt, without_torch

    conflicts: list[Conflict] = []
    for _ in range(TORCHES):
        try:
            prebuilt = with_prebuilt(requests, session)
        except NoBuildError as error:
            conflicts.append(Conflict(error))
            break
        answer = agree_with_code(prebuilt.requests, session, newest=newest)
        if not isinstance(answer, Conflict):
            brought = with_brought(prebuilt.requests, answer, session)
            again = agree_with_code(brought, session, newest=newest) if brought else answer
            answer = answer if isinstance(again, Conflict) else again
            for text in dict.fromkeys(filter(None, map(optional_extensions, answer))):
                session.reporter.step("Optional", text)
            return [one.warned_of(prebuilt.remarks) for one in answer]
        conflicts.append(answer)
        if prebuilt.torch is None:
            break
        requests = [without_torch(request, prebuilt.torch) for request in requests]
    return conflicts[0]


def _from_cache(
    requests: Sequence[LockRequest], session: Session, unreachable: UnreachableError, *, newest: bool
) -> list[Resolution]:
    """Let uv resolve with what it holds; what the rules alone refuse is refused as ever."""
    from gpuinstall.lock.agreement import agree

    try:
        agree_on_torch(requests, newest=newest)
    except InstallationError:
        raise unreachable from None
    with suppress(InstallationError, NoBuildError):
        answer = agree(requests, session.from_cache(), newest=newest)
        if not isinstance(answer, Conflict):
            session.reporter.warn(f"{unreachable.host} cannot be reached, {unreachable.why}; using uv's cache")
            return answer
    raise unreachable


def _attempts(
    requests: Sequence[LockRequest], held: Sequence[Lock], moving: Collection[str]
) -> Iterator[Sequence[LockRequest]]:
    """What to try one after the other: with the torch and the Python that are locked, then with any."""
    versions = {name: version for lock in held for name, version in lock.versions.items()}
    preferred = {} if moving and held else _by_name(requests[0].request.preferred)
    versions |= preferred
    for name in moving:
        if name not in versions:
            raise UsageError("not-locked", f"no lock here has a package named {name}", hint="Check the name")
        del versions[name]
    if not versions:
        yield requests
        return
    # A program that no lock was made for comes before torch: its version is chosen first.
    locked = frozenset(_by_name(requests[0].request.preferred)).union(*(lock.asked for lock in held))
    named = requests[0].request.requirements
    if moving or not names_programs(text for text in named if parse_requirement(text).name not in locked):
        family = requests[0].catalog.family
        members = sorted(name for name in versions if name in family) if "torch" in versions else []
        rest = {name: version for name, version in versions.items() if name not in family}
        pins = VersionPins(tuple(f"{name}=={_public(versions[name])}" for name in members), rest)
        torch = preferred.get("torch", "") if "torch" in versions else None
        yield [replace(_with_locked_torch(request, held, torch), pins=pins) for request in requests]
    if not moving:
        yield [replace(request, pins=VersionPins((), versions)) for request in requests]


def _with_locked_torch(request: LockRequest, held: Sequence[Lock], torch: str | None) -> LockRequest:
    """Ask for the Python of the lock of the same target, or of any, and for its torch or another, where that runs."""
    lock = next((lock for lock in held if lock.target == request.label), held[0] if held else None)
    pythons = (*([lock.python] if lock and lock.python else []), *request.request.preferred_pythons)
    request = replace(request, request=replace(request.request, preferred_pythons=pythons))
    if torch is not None and lock:
        torch = _public(torch or lock.versions.get("torch", ""))
    named = [one for one in map(parse_requirement, request.request.requirements) if one.name == "torch"]
    pinned = request.with_torch(torch) if torch and all(one.allows(torch) for one in named) else request
    return request if isinstance(pinned.outcome, Refusal) else pinned


def _by_name(preferred: Iterable[str]) -> dict[str, str]:
    return {name: version for name, _, version in (text.partition("==") for text in preferred)}


def _moved(versions: Mapping[str, str], preferred: Iterable[str], moving: Collection[str]) -> tuple[Reason, ...]:
    """Name what the project's own lock holds and this build cannot have."""
    pairs = [(name, was, versions.get(name, was)) for name, was in _by_name(preferred).items() if name not in moving]
    others = [f"{name} {now} (locked: {was})" for name, was, now in pairs if _public(now) != _public(was)]
    message = f"versions differ from the project's own lock, which is incompatible with this build: {', '.join(others)}"
    return (Reason("team-lock-differs", message),) if others else ()


def _public(version: str) -> str:
    return version.partition("+")[0]


LISTS_AT_ONCE = 32


@dataclass
class PostponedWarnings(SilentReporter):
    """Keeps warnings until it is known whether they are true."""

    reporter: Reporter
    warnings: list[str] = field(default_factory=list)

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say what was done at once."""
        self.reporter.step(label, text, seconds)

    def warn(self, text: str) -> None:
        """Keep a warning."""
        self.warnings.append(text)


LiveRequests = tuple[list["LockRequest"], "UnreachableError | None"]
"""Every request with its catalogue narrowed to what the sources list, and a default index that does not answer."""


@contextmanager
def ask_live_index(requests: Sequence[LockRequest], session: Session) -> Iterator[Callable[[], LiveRequests]]:
    """Ask for every page that is known to be needed at once, and give what reads the answers.

    Meanwhile uv looks at its interpreter. What is to be said of the sources is said once, and not where the default
    index is unreachable.
    """
    sources, client = session.sources, session.client
    with ThreadPoolExecutor(LISTS_AT_ONCE) as pool:
        pool.submit(process.run, uv.look(session.python), env=session.environment)
        client.prepare()
        reached = pool.submit(_reach_default_index, session)
        pool.submit(fetch_pages, requests[0].request.requirements, requests[0].catalog.family, session)
        pool.submit(default_wheels, sources, client, "torch")
        for backend in {request.request.backend for request in requests} - {None}:
            pool.submit(index_names, sources, client, str(backend))
        pages = [pool.submit(family_wheels, sources, client, *page) for page in _first_pages(requests)]

        def read() -> LiveRequests:
            for page in pages:
                page.result()
            postponed = PostponedWarnings(session.reporter)
            reporters = [postponed, *[SilentReporter()] * (len(requests) - 1)]
            from gpuinstall.learned.live import learned_catalog

            live = []
            for request, reporter in zip(requests, reporters, strict=True):
                wanted = request.catalog, request.machine, request.request, reporter
                live.append(replace(request, catalog=learned_catalog(*wanted, sources=sources, client=client)))
            unreachable = reached.result()
            if unreachable is None:
                for text in (*postponed.warnings, *_losses(requests, live, session)):
                    session.reporter.warn(text)
            return live, unreachable

        yield read


def _losses(requests: Iterable[LockRequest], live: Iterable[LockRequest], session: Session) -> Iterable[str]:
    """Say what a torch index that does not answer would give."""
    silent = session.client.unreachable(session.sources.torch_index)
    if silent is None:
        return ()
    pairs = ((one.outcome.choice, other.outcome.choice) for one, other in zip(requests, live, strict=True))
    names = ((best.build.name, here.build.name) for best, here in pairs if best and here)
    until = f"{silent.host} is unreachable, so the build is"
    return dict.fromkeys(f"{until} {here} instead of {best}" for best, here in names if best != here)


def _reach_default_index(session: Session) -> UnreachableError | None:
    """Ask the default index whether it is there, unless uv is to ask nobody; None where it answers.

    uv alone tries for up to a minute. A certificate that we do not trust is left to uv, which may know another
    authority.
    """
    if session.environment.get("UV_OFFLINE"):
        return None
    address = session.default_index
    try:
        if address and address.startswith(("http://", "https://")):
            session.client.head(f"{address}/")
    except UnreachableError as error:
        error.hint = "\n".join(dict.fromkeys((error.hint or "", ways_to_network())))
        return None if error.untrusted else error
    return None


def _first_pages(requests: Sequence[LockRequest]) -> list[tuple[str, str]]:
    """The backends and packages of the pages that a resolution needs first, as far as the backends are given."""
    pages = set()
    for request in requests:
        requirements, backend = request.request.requirements, request.request.backend
        named = {parse_requirement(text).name for text in requirements} | ({"triton"} if backend != CPU.tag else set())
        first = FIRST_PAGES if names_programs(requirements) else ("torch",)
        if backend:
            pages |= {(backend, package) for package in (*first, *(named & request.catalog.family))}
    return sorted(pages)
