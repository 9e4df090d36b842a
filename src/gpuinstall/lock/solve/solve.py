"""The making of locks: from what the sources list today, near to what the locks of a folder hold."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement, requirement_names
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import replace
from gpuinstall.base.versions import numbers
from gpuinstall.lock.file.lock import Record, version_conflicts
from gpuinstall.lock.request.lock_request import plan_or_raise
from gpuinstall.lock.solve.extensions import with_files
from gpuinstall.lock.solve.live import live_requests
from gpuinstall.lock.solve.loop import Loop
from gpuinstall.lock.solve.problem import (
    Near,
    held_back_by,
    pose_together,
    public,
    without_versions,
)
from gpuinstall.lock.solve.refusal import refusal
from gpuinstall.lock.solve.remarks import Remarks
from gpuinstall.lock.uv.builds import (
    BuildSite,
    check_builds,
    report_builds,
    source_builds,
)
from gpuinstall.lock.uv.errors import Conflict, all_or_conflict
from gpuinstall.lock.uv.resolution import checked
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.python import minor_version
from gpuinstall.plan.values import PROGRAM_HELD_BACK
from gpuinstall.sources.web.client import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.lock.request.lock_request import LockRequest, Requests
    from gpuinstall.lock.solve.problem import Problem
    from gpuinstall.lock.uv.resolution import Resolution
    from gpuinstall.sources.session import Session

    Resolutions = list[Resolution]

TARGETS_AT_ONCE = 6
"""For how many targets uv resolves side by side: more of them only wait for the same cores."""

PROPOSALS = 4
"""How many versions of torch the first of several targets proposes."""

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
    metadata: tuple[Mapping[str, Any], ...] = (),
) -> Resolutions:
    """Choose from what the sources list today and resolve.

    Args:
        requests: The locks to make.
        session: The clients of this run.
        locks: Earlier locks, whose versions stay if nothing is against them.
        moving: The only packages that may move; torch stays unless it is among them.
        upgrade: Whether nothing of ``locks`` stays but its Python.
        installed: Versions that stay if nothing is against them, as no lock holds them.
        metadata: Rows that stand in place of the METADATA of projects in folders.

    Raises:
        MachineError: if nothing fits a machine.
        NoBuildError: if nothing fits.
        InstallationError: if a source or uv fails.
        UsageError: if no lock has a package that is to move.
    """
    live, unreachable = live_requests(_overridden(requests, session), session)
    if unreachable:
        raise _refusal_anyway(requests, unreachable, session)
    reported: dict[str, str] = {}
    for lock in locks:
        reported |= lock.all_versions
    near = Near(versions=installed or {}, reported=reported, metadata=metadata)
    attempts: Iterable[Near] = [near]
    if not installed:
        attempts = _nearness(near, live, locks, moving, upgrade=upgrade)
    for near in attempts:
        answer = resolve_near(live, near, session, usual=requests)
        if isinstance(answer, Conflict):
            error = answer.error
            continue
        preferred = live[0].request.preferred
        held_back = held_back_by(live, answer[0].choice.build.torch)
        return [
            one.warned_of(_moved(one.versions, preferred, moving)).remarked(held_back)
            for one in answer
        ]
    elsewhere = _with_other_python(live, near, error, session)
    return elsewhere or _relaxed(live, error, session)


def _relaxed(
    requests: Requests,
    error: GpuInstallError,
    session: Session,
) -> Resolutions:
    """Resolve without some of the pins, if that is requested; raise why there is no answer, with the option if it helps."""
    from gpuinstall.lock.solve.relax import name_relax, resolve_relaxed

    if requests[0].request.relax:
        return resolve_relaxed(requests, error, session)
    name_relax(requests, error, session)
    raise error


def _overridden(requests: Requests, session: Session) -> Requests:
    """Return requests in which what uv's settings have in place of requirements of the family limits our builds."""
    family = requests[0].catalog.family
    overrides = map(parse_requirement, session.sources.overrides)
    limits = tuple(one.text for one in overrides if one.name in family)
    return [
        one.asking(constraints=(*one.request.constraints, *limits)) for one in requests
    ]


def _nearness(
    near: Near,
    requests: Requests,
    locks: Sequence[Lock],
    moving: Collection[str],
    *,
    upgrade: bool,
) -> Iterator[Near]:
    """Yield what to keep: the torch with every version that was locked beside it, else what nothing is against."""
    near = replace(near, python=_kept_python(requests[0], locks))
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
        is_whole = len(by_target) == len(locks) and not version_conflicts(locks)
        is_whole = is_whole and _are_weighed(request, locks)
        members = requests[0].catalog.family & versions.keys()
        yield replace(
            near,
            torch=public(torch),
            pinned={name: versions[name] for name in sorted(members)},
            locks=by_target if is_whole and not moving else {},
        )
    if not moving or not torch_stays:
        yield near


def _kept_python(request: LockRequest, locks: Iterable[Lock]) -> str | None:
    """Return the Python of locks, if the request leaves it open."""
    demand = parse_request(request.request, request.catalog.family, request.machine)
    for lock in locks:
        if lock.python and demand.suits(lock.python):
            return lock.python
    return None


def _kept_versions(
    request: Request,
    locks: Sequence[Lock],
    moving: Collection[str],
) -> dict[str, str]:
    """Return the versions that locks hold, and those of the project's own lock, without those that are to move.

    Raises:
        UsageError: if none has a package that is to move.
    """
    locked = dict[str, str]()
    for lock in locks:
        locked |= lock.versions
    preferred = {} if moving and locks else _by_name(request.preferred)
    is_weighed = bool(locks) and _are_weighed(request, locks)
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
    for file in chain.from_iterable(lock.files for lock in locks):
        if file.sha256 and file.package not in moving:
            hashes[file.name] = hashes[file.url] = file.sha256
    return hashes


def _may_have(request: LockRequest, torch: str) -> bool:
    """Whether a request allows a version of torch and it runs."""
    for requirement in request.request.parsed:
        if requirement.name == "torch" and not requirement.allows(torch):
            return False
    return isinstance(request.outcome_with(torch=public(torch)), Plan)


def _has_new_programs(request: LockRequest, locks: Sequence[Lock]) -> bool:
    """Whether a program is requested that no lock was made for: its version is chosen before torch's."""
    locked = set(_by_name(request.request.preferred))
    for lock in locks:
        locked |= requirement_names(lock.record.inputs)
    # What is requested by its address, such as the project itself, has one version; what is tied to torch goes with it.
    new = [
        one.name
        for one in request.request.parsed
        if one.url is None and one.name not in locked
    ]
    return any(not request.catalog.is_tied(name) for name in new)


def _by_name(preferred: Iterable[str]) -> dict[str, str]:
    return dict(text.split("==", 1) for text in preferred)


def _with_other_python(
    requests: Requests,
    near: Near,
    error: GpuInstallError,
    session: Session,
) -> Resolutions | None:
    """Resolve for another Python that is installed, if nothing fixes it; None if that does not help either."""
    first = requests[0]
    is_fixed = first.request.python or near.python or len(requests) > 1
    is_conflict = error.code in {"requirements-conflict", "only-binary"}
    if is_fixed or not is_conflict or isinstance(first.outcome, Rejected):
        return None
    usual = first.outcome.choice.python
    pythons = set(map(minor_version, first.machine.pythons or ())) - {usual}
    for python in sorted(pythons, key=numbers, reverse=True)[:PYTHONS]:
        answer = resolve_near(requests, replace(near, python=python), session)
        if not isinstance(answer, Conflict) and answer[0].choice.python == python:
            message = f"Python {python} is taken: for {usual} {error.message}"
            return [one.warned_of([Reason("other-python", message)]) for one in answer]
    return None


def resolve_near(
    requests: Requests,
    near: Near,
    session: Session,
    *,
    usual: Requests | None = None,
) -> Resolutions | Conflict:
    """Resolve near to what stays, and check that what has to be built can be built.

    Args:
        requests: One for each target.
        near: What narrows the search.
        session: The sources and the clients of the run.
        usual: The requests as if every source answered.

    Raises:
        InstallationError: if a source does not answer, or uv fails.
    """
    silence: InstallationError | None
    try:
        answer = _resolve(requests, near, session)
    except InstallationError as failure:
        if failure.code != "unreachable":
            raise
        silence = failure
    else:
        if not isinstance(answer, Conflict):
            return _buildable(answer, near, session)
        # What a silent index has may be all that is missing.
        silence = session.client.unreachable(session.sources.torch_index)
        if silence is None:
            return answer
        # uv's account shows whether the index is to blame.
        silence.evidence = answer.error.why
    error = _refusal_anyway(usual or requests, silence, session)
    if error is silence:
        raise silence
    return Conflict(error)


def _resolve(
    requests: Requests,
    near: Near,
    session: Session,
) -> Resolutions | Conflict:
    conflicts = []
    try:
        problems = pose_together(requests, torch=near.torch, python=near.python)
        problems = [problem.near_to(near) for problem in problems]
        for files in with_files(problems, session):
            answer = _together(files.problems, session)
            if not isinstance(answer, Conflict):
                return [one.warned_of(files.remarks) for one in answer]
            conflicts.append(answer)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _buildable(
    resolutions: Resolutions,
    near: Near,
    session: Session,
) -> Resolutions | Conflict:
    """Return resolutions, or what of them has to be built and cannot be."""
    _name_own_indexes(resolutions, session)
    try:
        for one in resolutions:
            _check_builds(one, near.reported, session)
    except NoBuildError as error:
        return Conflict(error)
    return resolutions


def _check_builds(
    resolution: Resolution, reported: Mapping[str, str], session: Session
) -> None:
    """Check that what has to be built can be built; report it, and the source of torch if a file of the folder chose it."""
    from gpuinstall.lock.request.lock_sources import name_torch_source

    build = resolution.choice.build
    site = BuildSite(
        backend=build.backend,
        versions=resolution.versions,
        machine=resolution.request.machine,
        environ=session.environment,
    )
    name_torch_source(resolution.files, build.listed_at, session)
    builds = source_builds(resolution.document)
    here = resolution.request.builds_here
    new = [one for one in builds if reported.get(one.package) != one.version]
    report_builds(new, site, session.reporter)
    check_builds(builds, site, here=here)


def _together(problems: Sequence[Problem], session: Session) -> Resolutions | Conflict:
    """Resolve for all targets: of programs the first target proposes a torch, and the others go with it."""
    [first, *others] = problems
    resolve_one = partial(_resolve_one, session=session)
    is_of_one_torch = not first.wanted.request.newest_per_target
    if not others or not first.wanted.names_programs or not is_of_one_torch:
        answers = side_by_side(resolve_one, problems, TARGETS_AT_ONCE)
        return _apart(answers)
    [first, *others] = sorted(problems, key=lambda one: str(one.target))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        builds = [one for one in first.builds if one.torch in remaining]
        newest = max(remaining)
        expected: list[Problem] = []
        if not conflicts and _go_with(first.with_torch(newest), session):
            # They need not wait for the first.
            expected = [one.with_torch(newest) for one in others]
        asked = [first.with_builds(builds), *expected]
        proposal, *answers = side_by_side(resolve_one, asked, TARGETS_AT_ONCE)
        if isinstance(proposal, Conflict):
            conflicts.append(proposal)
            break
        torch = proposal.choice.build.torch
        together = _apart([proposal, *answers])
        if not expected or torch != newest or _differ(together):
            near = [_near_to(proposal, one.with_torch(torch)) for one in others]
            answers = side_by_side(resolve_one, near, TARGETS_AT_ONCE)
            together = _apart([proposal, *answers])
        if not isinstance(together, Conflict):
            order = [str(problem.target) for problem in problems]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        conflicts.append(together)
        remaining -= {torch}
    # Of several, the first is told: it stands against the newest torch.
    return conflicts[0]


def _go_with(problem: Problem, session: Session) -> bool:
    """Whether the newest version of each program goes with the torch of a problem, as METADATA says."""
    loop = Loop(problem, session)
    programs = loop.shelf.programs
    newest = side_by_side(loop.newest, programs)
    return newest == [*programs.values()]


def _differ(together: Resolutions | Conflict) -> bool:
    """Whether targets that were resolved apart have no answer, or other versions of the same packages."""
    return isinstance(together, Conflict) or any(one.apart for one in together)


def _near_to(proposal: Resolution, problem: Problem) -> Problem:
    """Return the problem of another target near to what the first came to."""
    family = problem.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    near = problem.near
    return replace(problem, near=replace(near, versions={**versions, **near.versions}))


def _apart(answers: Iterable[Resolution | Conflict]) -> Resolutions | Conflict:
    """Return the resolutions, with what could not have one version for all targets; or the first conflict."""
    resolutions = all_or_conflict(answers)
    if isinstance(resolutions, Conflict):
        return resolutions
    first = resolutions[0].request
    has_one_torch = not first.request.newest_per_target
    versions: dict[str, set[str]] = {}
    for one in resolutions:
        for name, version in one.versions.items():
            # If each target has its own newest torch, the family differs too.
            if not has_one_torch or name not in first.catalog.family:
                versions.setdefault(name, set()).add(Version(version).public)
    apart = {name for name, different in versions.items() if len(different) > 1}
    return [
        replace(one, apart=frozenset(apart & one.versions.keys()))
        for one in resolutions
    ]


def _resolve_one(problem: Problem, session: Session) -> Resolution | Conflict:
    """Resolve for one target."""
    loop = Loop(problem, session)
    answer = loop.run()
    if isinstance(answer, Conflict):
        return refusal(answer, loop)
    remarks = Remarks(answer, loop)
    plan = problem.plan
    if problem.is_open:
        wanted = without_versions(problem.narrowed, answer.given_way)
        outcome = wanted.outcome_with(
            torch=problem.near.torch,
            python=problem.python,
            programs=remarks.constraints(),
        )
        plan = plan_or_raise(outcome, problem.wanted.machine)
    resolution = checked(
        answer.document,
        problem.wanted,
        plan,
        family=loop.shelf.names,
        pages=loop.pages(answer.build),
        prebuilt=loop.prebuilt,
        locked=problem.near.hashes,
        session=session,
    )
    relaxed = {
        pin.name: pin.text
        for pin in problem.near.yielding
        if pin.name in answer.given_way
    }
    if not problem.is_open:
        held_back = [Reason(PROGRAM_HELD_BACK, text) for text in remarks.held_back()]
        resolution = resolution.remarked(held_back)
    return replace(resolution.warned_of(remarks.warnings()), relaxed=relaxed)


def _refusal_anyway(
    requests: Requests,
    silence: InstallationError,
    session: Session,
) -> GpuInstallError:
    """Return what the rules refuse also if every source answered; ``silence`` if that is nothing."""
    try:
        pose_together(requests)
    except (MachineError, NoBuildError) as error:
        return error
    if session.environment.get("UV_OFFLINE"):
        silence.why, silence.hint = OFFLINE
    return silence


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
        if name not in moving and public(now) != public(before):
            others.append(f"{name} {now} (locked: {before})")
    if not others:
        return []
    message = "versions differ from the project's own lock, which is incompatible with this build"
    return [Reason("team-lock-differs", f"{message}: {', '.join(others)}")]
