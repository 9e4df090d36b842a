"""The making of locks: from what the sources list today, near to what the locks of a folder hold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.errors import (
    InstallationError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.text import some
from gpuinstall.lock.live import live_requests
from gpuinstall.lock.lock import Record
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request.lock_request import (
    LockRequest,
    VersionPins,
    agree_on_torch,
)
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan import Rejected
from gpuinstall.sources.web.client import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request.lock_request import Requests
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session


def resolve_locks(
    requests: Requests,
    session: Session,
    *,
    held: Sequence[Lock] = (),
    moving: Collection[str] = (),
) -> list[Resolution]:
    """Choose from what the sources list today and resolve.

    Args:
        requests: The locks to make.
        session: The clients of this run.
        held: Locks whose versions stay if nothing is against them.
        moving: The only packages that may move; torch stays unless it is among them.

    Raises:
        MachineError: if nothing fits a machine.
        NoBuildError: if nothing fits.
        InstallationError: if a source or uv fails.
        UsageError: if no lock has a package that is to move.
    """
    locked = {}
    for lock in held:
        for file in lock.files:
            if file.sha256 and file.package not in moving:
                locked[file.name] = file.sha256
    requests = [replace(request, locked=locked) for request in requests]
    for attempt in _attempts(requests, held, moving):
        answer = _resolve_live(attempt, session)
        if not isinstance(answer, Conflict):
            preferred = requests[0].request.preferred
            return [
                one.warned_of(_moved(one.versions, preferred, moving)) for one in answer
            ]
        error = answer.error
    if requests[0].request.relax:
        from gpuinstall.lock.concessions import resolve_relaxed

        return resolve_relaxed(requests, error, session, resolve=_resolve_live)
    raise error


def _attempts(
    requests: Requests,
    held: Sequence[Lock],
    moving: Collection[str],
) -> Iterator[Requests]:
    """Yield what to try one after the other: with the torch and the Python that are locked, then with any."""
    request = requests[0].request
    family = requests[0].catalog.family
    locked = dict[str, str]()
    for lock in held:
        locked |= lock.versions
    preferred = {} if moving and held else _by_name(request.preferred)
    # A lock that was made near to the same versions has weighed them: what came of them stays.
    digest = Record.of(request).preferred_digest
    is_weighed = bool(held) and all(
        lock.record.preferred_digest == digest for lock in held
    )
    versions = preferred | locked if is_weighed else locked | preferred
    for name in moving:
        if name not in versions:
            message = f"no lock here has a package named {name}"
            raise UsageError("not-locked", message, hint="Check the name")
        del versions[name]
    if not versions:
        yield requests
        return
    if moving or not _has_new_programs(request, held):
        torch = _public(versions.get("torch", ""))
        # Without a torch, nothing tells which build they were of.
        members = sorted(family & versions.keys()) if torch else []
        # The family is pinned: preferred alone, it would follow the first program that wants another torch.
        pins = VersionPins(
            constraints=tuple(f"{name}=={_public(versions[name])}" for name in members),
            preferred={name: versions[name] for name in versions if name not in family},
        )
        yield [
            replace(_with_locked_torch(one, held, torch), pins=pins) for one in requests
        ]
    if not moving:
        yield [replace(one, pins=VersionPins((), versions)) for one in requests]


def _has_new_programs(request: Request, held: Sequence[Lock]) -> bool:
    """Whether a program is requested that no lock was made for: its version is chosen before torch's."""
    locked = set(_by_name(request.preferred))
    for lock in held:
        locked |= requirement_names(lock.record.inputs)
    # What is requested by its address, such as the project itself, has one version.
    by_name = {one.name for one in request.parsed if one.url is None}
    return names_programs(by_name - locked)


def _with_locked_torch(
    request: LockRequest,
    held: Sequence[Lock],
    torch: str,
) -> LockRequest:
    """Ask for the Python of the lock of the same target, or of any, and for a torch, if there is one and it runs."""
    if held:
        lock = next((lock for lock in held if lock.target == request.label), held[0])
        if lock.python:
            pythons = (lock.python, *request.request.preferred_pythons)
            request = request.asking(preferred_pythons=pythons)
    if not torch:
        return request
    for requirement in request.request.parsed:
        if requirement.name == "torch" and not requirement.allows(torch):
            return request
    pinned = request.with_torch(torch)
    return request if isinstance(pinned.outcome, Rejected) else pinned


def _by_name(preferred: Iterable[str]) -> dict[str, str]:
    return dict(text.split("==", 1) for text in preferred)


def _public(version: str) -> str:
    return version.partition("+")[0]


def _resolve_live(
    requests: Requests,
    session: Session,
) -> list[Resolution] | Conflict:
    """Search among what the sources list today, and check that what has to be built can be built."""
    from gpuinstall.lock.request.strangers import name_torch_source
    from gpuinstall.lock.search import search_locks
    from gpuinstall.lock.source_builds import BuildSite, check_builds, source_builds

    live, unreachable = live_requests(requests, session)
    request = requests[0].request
    live = [one.within(*request.constraints) for one in live]
    answer: list[Resolution] | Conflict
    try:
        if unreachable:
            raise unreachable
        answer = search_locks(live, session)
    except InstallationError as error:
        if error.code != "unreachable":
            raise
        return _refused_anyway(requests, session, error)
    if isinstance(answer, Conflict):
        # What a silent index has may be all that is missing.
        silence = session.client.unreachable(session.sources.torch_index)
        return _refused_anyway(requests, session, silence) if silence else answer
    _name_own_indexes(answer, session)
    try:
        for one in answer:
            build = one.choice.build
            site = BuildSite(
                backend=build.backend,
                versions=one.versions,
                machine=one.request.machine,
                environ=session.environment,
            )
            name_torch_source(one.files, build.listed_at, session)
            builds = source_builds(one.document)
            check_builds(builds, site, session.reporter, here=one.request.builds_here)
    except NoBuildError as error:
        return Conflict(error)
    return answer


def _refused_anyway(
    requests: Requests,
    session: Session,
    silence: InstallationError,
) -> Conflict:
    """Return what the rules refuse also if every source answered; raise ``silence`` if that is nothing."""
    try:
        agree_on_torch(requests)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    if session.environment.get("UV_OFFLINE"):
        silence.why, silence.hint = OFFLINE
    raise silence


def _name_own_indexes(
    resolutions: Iterable[Resolution],
    session: Session,
) -> None:
    """Report which packages come from an index that only the user's own configuration names."""
    packages = dict[str, dict[str, None]]()
    for resolution in resolutions:
        for package in resolution.document["packages"]:
            if "index" in package:
                names = packages.setdefault(package["index"], {})
                names[package["name"]] = None
    for index, names in packages.items():
        origin = session.sources.own_indexes[index]
        session.reporter.step(
            "Index", f"{index}, as {origin} says: the source of {some([*names])}"
        )


def _moved(
    versions: Mapping[str, str],
    preferred: Iterable[str],
    moving: Collection[str],
) -> list[Reason]:
    """Return what the project's own lock holds and this build cannot have."""
    others = []
    for name, before in _by_name(preferred).items():
        now = versions.get(name, before)
        if name not in moving and _public(now) != _public(before):
            others.append(f"{name} {now} (locked: {before})")
    if not others:
        return []
    message = "versions differ from the project's own lock, which is incompatible with this build"
    return [Reason("team-lock-differs", f"{message}: {', '.join(others)}")]
