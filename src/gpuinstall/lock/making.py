"""The making of locks: from what the sources list today, near to what the locks of a folder hold."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError, MachineError, NoBuildError, UsageError
from gpuinstall.finding import Reason
from gpuinstall.lock.declaration import digest
from gpuinstall.lock.live import ask_live_index
from gpuinstall.lock.package_names import PackageNames
from gpuinstall.lock.programs import misnamed_releases, names_programs
from gpuinstall.lock.request import LockRequest, VersionPins, agree_on_torch
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan import Rejected
from gpuinstall.plan.requirement import Asked, parse_requirement
from gpuinstall.text import some
from gpuinstall.web.answers import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError


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
    staying = (
        file for lock in held for file in lock.files if file.sha256 and file.package not in moving
    )
    locked = {file.name: file.sha256 or "" for file in staying}
    requests = [replace(request, locked=locked) for request in requests]
    for attempt in _attempts(requests, held, moving):
        answer = _resolve_live(attempt, session, newest=newest)
        if not isinstance(answer, Conflict):
            return [
                one.warned_of(_moved(one.versions, requests[0].request.preferred, moving))
                for one in answer
            ]
        error = answer.error
    raise error


def _resolve_live(
    requests: Sequence[LockRequest], session: Session, *, newest: bool
) -> list[Resolution] | Conflict:
    """Search among what the sources list today, and check that what has to be built can be built."""
    with ask_live_index(requests, session) as answers:
        # Loaded while the servers answer.
        from gpuinstall.lock.prebuilt import optional_extensions
        from gpuinstall.lock.search import glibc_notes, search_locks
        from gpuinstall.lock.source_builds import check_builds, source_builds, this_site
        from gpuinstall.lock.strangers import name_torch_source

        live, unreachable = answers()
    misnamed = misnamed_releases(
        requests[0].request.requirements, requests[0].catalog.family, session
    )
    live = [
        replace(request, pins=request.pins.within(*request.request.constraints, *misnamed))
        for request in live
    ]
    answer: list[Resolution] | Conflict
    try:
        if unreachable:
            answer = _from_cache(live, session, unreachable, newest=newest)
        else:
            answer = search_locks(live, session, newest=newest)
    except (NoBuildError, MachineError) as error:
        answer = Conflict(error)
    except InstallationError as error:
        if error.code == "unreachable":
            return _other_obstacle(requests, session, error, newest=newest)
        raise
    if isinstance(answer, Conflict):
        silent = session.client.unreachable(session.sources.torch_index)
        return _other_obstacle(requests, session, silent, newest=newest) if silent else answer
    for text in dict.fromkeys(filter(None, map(optional_extensions, answer))):
        session.reporter.step("Optional", text)
    if not unreachable:
        answer[0] = answer[0].warned_of(glibc_notes(answer, session))
    _name_own_indexes(answer, session)
    try:
        for resolution in answer:
            request = resolution.request
            site = this_site(resolution.choice, resolution.versions, request.machine, session)
            name_torch_source(resolution.files, resolution.choice.build.listed_at, session)
            check_builds(
                source_builds(resolution.document), site, session.reporter, here=request.builds_here
            )
    except NoBuildError as error:
        return Conflict(error)
    return answer


def _name_own_indexes(resolutions: Iterable[Resolution], session: Session) -> None:
    """Say which packages come from an index that only the user's own configuration names."""
    packages = dict[str, dict[str, None]]()
    for resolution in resolutions:
        for package in resolution.document["packages"]:
            if "index" in package:
                packages.setdefault(package["index"], {})[package["name"]] = None
    for index, names in packages.items():
        origin = session.sources.own_indexes[index]
        session.reporter.step("Index", f"{index}, as {origin} says: the source of {some([*names])}")


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


def _from_cache(
    requests: Sequence[LockRequest],
    session: Session,
    unreachable: UnreachableError,
    *,
    newest: bool,
) -> list[Resolution]:
    """Let uv resolve with what it holds; what the rules alone refuse is refused as ever."""
    from gpuinstall.lock.search import resolve_unchecked

    try:
        agree_on_torch(requests, newest=newest)
    except InstallationError:
        raise unreachable from None
    with suppress(InstallationError, NoBuildError):
        answer = resolve_unchecked(requests, session.from_cache(), newest=newest)
        if not isinstance(answer, Conflict):
            session.reporter.warn(
                f"{unreachable.host} cannot be reached, {unreachable.why}; using uv's cache"
            )
            return answer
    raise unreachable


def _attempts(
    requests: Sequence[LockRequest], held: Sequence[Lock], moving: Collection[str]
) -> Iterator[Sequence[LockRequest]]:
    """What to try one after the other: with the torch and the Python that are locked, then with any."""
    locked_versions = {name: version for lock in held for name, version in lock.versions.items()}
    preferred = {} if moving and held else _by_name(requests[0].request.preferred)
    # A lock that was made near to the same versions has weighed them: what came of them stays.
    near_to = {lock.evidence.get("preferred-digest", digest(())) for lock in held}
    is_weighed = near_to == {digest(requests[0].request.preferred)}
    versions = preferred | locked_versions if is_weighed else locked_versions | preferred
    for name in moving:
        if name not in versions:
            raise UsageError(
                "not-locked", f"no lock here has a package named {name}", hint="Check the name"
            )
        del versions[name]
    if not versions:
        yield requests
        return
    # A program that no lock was made for comes before torch: its version is chosen first.
    locked = frozenset(_by_name(requests[0].request.preferred)).union(
        *(lock.asked for lock in held)
    )
    # What is requested by its address, such as the project itself, has one version.
    named = [
        one for one in map(parse_requirement, requests[0].request.requirements) if one.url is None
    ]
    if moving or not names_programs(one.text for one in named if one.name not in locked):
        family = requests[0].catalog.family
        members = sorted(name for name in versions if name in family) if "torch" in versions else []
        rest = {name: version for name, version in versions.items() if name not in family}
        pins = VersionPins(tuple(f"{name}=={_public(versions[name])}" for name in members), rest)
        torch = None
        if "torch" in versions:
            torch = "" if is_weighed else preferred.get("torch", "")
        yield [replace(_with_locked_torch(request, held, torch), pins=pins) for request in requests]
    if not moving:
        yield [replace(request, pins=VersionPins((), versions)) for request in requests]


def _with_locked_torch(
    request: LockRequest, held: Sequence[Lock], torch: str | None
) -> LockRequest:
    """Ask for the Python of the lock of the same target, or of any, and for its torch or another, where that runs."""
    lock = next((lock for lock in held if lock.target == request.label), held[0] if held else None)
    pythons = (*([lock.python] if lock and lock.python else []), *request.request.preferred_pythons)
    request = replace(request, request=replace(request.request, preferred_pythons=pythons))
    if torch is not None and lock:
        torch = _public(torch or lock.versions.get("torch", ""))
    named = [
        one for one in map(parse_requirement, request.request.requirements) if one.name == "torch"
    ]
    pinned = (
        request.with_torch(torch) if torch and all(one.allows(torch) for one in named) else request
    )
    return request if isinstance(pinned.outcome, Rejected) else pinned


def _by_name(preferred: Iterable[str]) -> dict[str, str]:
    return {name: version for name, _, version in (text.partition("==") for text in preferred)}


def _moved(
    versions: Mapping[str, str], preferred: Iterable[str], moving: Collection[str]
) -> tuple[Reason, ...]:
    """Name what the project's own lock holds and this build cannot have."""
    pairs = [
        (name, was, versions.get(name, was))
        for name, was in _by_name(preferred).items()
        if name not in moving
    ]
    others = [
        f"{name} {now} (locked: {was})" for name, was, now in pairs if _public(now) != _public(was)
    ]
    message = f"versions differ from the project's own lock, which is incompatible with this build: {', '.join(others)}"
    return (Reason("team-lock-differs", message),) if others else ()


def _public(version: str) -> str:
    return version.partition("+")[0]
