"""The making of locks: from what the sources list today, near to what the locks of a folder hold."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    UsageError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint
from gpuinstall.base.values import replace
from gpuinstall.base.versions import numbers
from gpuinstall.lock.file.lock import Lock, Record, version_conflicts
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.project import built_requirements
from gpuinstall.lock.solve.attempt import Resolutions, refusal_anyway, resolve_near
from gpuinstall.lock.solve.live import live_requests
from gpuinstall.lock.solve.problem import (
    Near,
    Requests,
    held_back_by,
    public,
)
from gpuinstall.lock.solve.relax import name_relax, resolve_relaxed
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.lock.uv.project import requirement_lines
from gpuinstall.plan import Plan
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.python import minor_version
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import OFFLINE

PYTHONS = 2
"""How many other Pythons are tried."""


def resolve_locks(
    requests: Requests,
    session: Session,
    *,
    locks: Sequence[Lock] = (),
    moving: Collection[str] = (),
    upgrade: bool = False,
    installed: Mapping[str, str] | None = None,
) -> Resolutions:
    """Choose from what the sources list today and resolve.

    Args:
        requests: The locks to make.
        session: The clients of this run.
        locks: Earlier locks, whose versions stay if nothing is against them.
        moving: The only packages that may move; torch stays unless it is among them.
        upgrade: Whether nothing of ``locks`` stays but its Python.
        installed: Versions that stay if nothing is against them, as no lock holds them.

    Raises:
        MachineError: if nothing fits a machine.
        NoBuildError: if nothing fits.
        InstallationError: if a source or uv fails.
        UsageError: if no lock has a package that is to move.
    """
    overridden = _overridden(requests, session)
    live, unreachable = live_requests(overridden, session)
    if unreachable:
        raise refusal_anyway(requests, unreachable, session)
    _refuse_lost_torch(live, locks, session)
    request = requests[0].request
    digests = {"" if upgrade else lock.record.build_files_digest for lock in locks}
    # uv goes by the times of a project's own files, and not by those of the lists that these name.
    if locks and request.build_files_digest not in {"", *digests}:
        built = built_requirements(request.requirements, session.folder)
        session.outdated.update(requirement_lines(built, session.folder))
    attempts = [*_nearness(live, locks, moving, upgrade=upgrade)]
    if installed:
        attempts = [Near(versions=installed)]
    reported = {pair for lock in locks for pair in lock.all_versions.items()}
    conflicts = []
    for near in attempts:
        answer = resolve_near(live, near, session, usual=requests, reported=reported)
        if isinstance(answer, Conflict):
            conflicts.append(answer)
            continue
        # With an upgrade nobody asks for the versions of the project's own lock.
        preferred = () if upgrade else live[0].request.preferred
        held_back = held_back_by(live, answer[0].choice.build.torch)
        return [
            one.with_warnings(_moved(one.versions, preferred, moving), held_back)
            for one in answer
        ]
    # The last keeps the least of earlier locks: its conflict is of what is requested.
    error = conflicts[-1].error
    elsewhere = _with_other_python(live, attempts[-1], error, session)
    if elsewhere:
        return elsewhere
    if live[0].request.relax:
        return resolve_relaxed(live, error, session)
    name_relax(live, error, session)
    raise error


def _refuse_lost_torch(
    requests: Requests,
    locks: Iterable[Lock],
    session: Session,
) -> None:
    """Refuse to lock again while the torch index has no answer, or no torch: another source's may be far older.

    Args:
        requests: What the sources list today.
        locks: The locks that are there.
        session: The run.

    Raises:
        InstallationError: if the torch of a lock is of a build that cannot be had for that reason.
    """
    index = session.sources.torch_index
    builds = [
        build
        for request in requests
        for build in request.catalog.builds_for(
            request.machine.os, request.machine.arch
        )
    ]
    listed = [str(build.source) for build in builds if not build.absent]
    is_empty = not any(source.startswith(index) for source in listed)
    for lock in locks:
        torch = lock.versions.get("torch")
        reasons = {build.absent for build in builds if build.name == torch}
        is_lost = is_empty or "unreachable" in reasons
        if reasons and None not in reasons and is_lost:
            mirror = "export GPUINSTALL_TORCH_INDEX=https://index.example/whl   # for a mirror that answers"
            error = InstallationError(
                "torch-index-lost",
                f"{index} does not have torch {torch} of {lock.name} now; the lock stays as it is",
                hint=f"Try again later\n{mirror}",
            )
            silent = session.client.unreachable(index)
            if silent:
                error.why = silent.why
            if session.environment.get("UV_OFFLINE"):
                error.why, error.hint = OFFLINE
            raise error


def _overridden(requests: Requests, session: Session) -> Requests:
    """Return requests in which what uv's settings have in place of requirements of the family limits our builds."""
    family = requests[0].catalog.family
    overrides = session.sources.overrides
    limits = tuple(one.constraint for one in overrides if one.name in family)
    return [
        one.asking(constraints=one.request.constraints + limits) for one in requests
    ]


def _nearness(
    requests: Requests,
    locks: Sequence[Lock],
    moving: Collection[str],
    *,
    upgrade: bool,
) -> Iterator[Near]:
    """Yield what stays in each attempt: torch with every version that was locked beside it, then what nothing is against.

    Args:
        requests: The requests, one for each target.
        locks: The locks that are there.
        moving: The packages that are to move.
        upgrade: Whether everything is to move.
    """
    near = Near(python=_kept_python(requests[0], locks))
    if upgrade:
        yield near
        return
    request = requests[0].request
    versions = _kept_versions(request, locks, moving)
    near = replace(near, versions=versions, hashes=_kept_hashes(locks, moving))
    torch = versions.get("torch")
    has_new_programs = not moving and _has_new_programs(requests[0], locks)
    # Without a torch, nothing tells which build the family's versions were of.
    torch_stays = torch and not has_new_programs and _may_have(requests[0], torch)
    if torch and torch_stays:
        by_target = {lock.target: lock.versions for lock in locks}
        # Both sides of a merge, and locks that differ without need, cannot stay as they are.
        is_whole = (
            not moving
            and len(by_target) == len(locks)
            and not version_conflicts(locks)
            and _are_weighed(request, locks)
        )
        members = requests[0].catalog.family & versions.keys()
        yield replace(
            near,
            pinned={name: versions[name] for name in sorted(members)},
            locks=by_target if is_whole else {},
        )
    if not moving or not torch_stays:
        yield near


def _kept_python(request: LockRequest, locks: Iterable[Lock]) -> str | None:
    """Return the Python of locks, if the request leaves it open."""
    demand = parse_request(request.request, request.catalog.family, request.machine)
    for lock in locks:
        if lock.python in demand.pythons:
            return lock.python
    return None


def _kept_versions(
    request: Request,
    locks: Sequence[Lock],
    moving: Collection[str],
) -> dict[str, str]:
    """Return the versions that locks hold, and those of the project's own lock, without those that are to move.

    Args:
        request: The request, with what the project's own lock prefers.
        locks: The locks that are there.
        moving: The packages that are to move.

    Raises:
        UsageError: if none has a package that is to move.
    """
    locked = dict[str, str]()
    for lock in locks:
        locked |= lock.versions
    preferred = {} if moving and locks else _by_name(request.preferred)
    is_weighed = _are_weighed(request, locks)
    versions = preferred | locked if is_weighed else locked | preferred
    for name in moving:
        if name not in versions:
            message = f"no lock here has a package named {name}"
            raise UsageError("not-locked", message, hint="Check the name")
        del versions[name]
    return versions


def _are_weighed(request: Request, locks: Iterable[Lock]) -> bool:
    """Whether locks were made from today's ``uv.lock`` or ``poetry.lock``: then their own versions count, not its."""
    digest = Record.of(request).preferred_digest
    return all(lock.record.preferred_digest == digest for lock in locks)


def _kept_hashes(locks: Sequence[Lock], moving: Collection[str]) -> dict[str, str]:
    """Return the sha256 of the files of locks, by name and by address."""
    hashes = {}
    for lock in locks:
        for file in lock.files:
            if file.sha256 and file.package not in moving:
                hashes[file.name] = file.sha256
                # What lies here may be another file by now.
                if not file.url.startswith("file:"):
                    hashes[file.url] = file.sha256
    return hashes


def _may_have(request: LockRequest, torch: str) -> bool:
    """Whether a request allows a version of torch and it runs."""
    for requirement in request.request.requirements:
        if requirement.name == "torch" and not requirement.allows(torch):
            return False
    return isinstance(request.outcome_with(torch=public(torch)), Plan)


def _has_new_programs(request: LockRequest, locks: Sequence[Lock]) -> bool:
    """Whether a program is requested that no lock was made for: its version is chosen before torch's."""
    locked = set(_by_name(request.request.preferred))
    for lock in locks:
        locked |= lock.requested
    # What is requested by its address, such as the project itself, has one version; what is tied to torch goes with it.
    new = [
        one.name
        for one in request.request.requirements
        if one.url is None and one.name not in locked
    ]
    return any(not request.catalog.is_tied(name) for name in new)


def _by_name(preferred: Iterable[Constraint]) -> dict[str, str]:
    return {one.name: one.pinned or "" for one in preferred}


def _with_other_python(
    requests: Requests,
    near: Near,
    error: GpuInstallError,
    session: Session,
) -> Resolutions | None:
    """Resolve for another Python that is installed, if nothing fixes it; None if that does not help either.

    Args:
        requests: The requests, one for each target.
        near: What stays.
        error: What the usual Python came to.
        session: The run.
    """
    first = requests[0]
    is_fixed = first.request.python or near.python or len(requests) > 1
    # Which there is only of a plan.
    is_conflict = error.code in {"requirements-conflict", "only-binary"}
    if is_fixed or not is_conflict:
        return None
    usual = first.plan.choice.python
    pythons = set(map(minor_version, first.machine.pythons or ()))
    newest_first = sorted(pythons - {usual}, key=numbers, reverse=True)
    for python in newest_first[:PYTHONS]:
        answer = resolve_near(requests, replace(near, python=python), session)
        if not isinstance(answer, Conflict) and answer[0].choice.python == python:
            message = f"Python {python} is taken: for {usual} {error.message}"
            reason = Reason("other-python", message)
            return [one.with_warnings([reason]) for one in answer]
    return None


def _moved(
    versions: Mapping[str, str],
    preferred: Iterable[Constraint],
    moving: Collection[str],
) -> list[Reason]:
    """Return what the project's own lock holds and this build cannot have.

    Args:
        versions: What was resolved.
        preferred: The versions of the project's own lock.
        moving: The packages that were to move.
    """
    others = []
    for name, before in _by_name(preferred).items():
        now = versions.get(name, before)
        if name not in moving and public(now) != public(before):
            others.append(f"{name} {now} (locked: {before})")
    if not others:
        return []
    message = "versions differ from the project's own lock, which is incompatible with this build"
    return [Reason("team-lock-differs", f"{message}: {', '.join(others)}")]
