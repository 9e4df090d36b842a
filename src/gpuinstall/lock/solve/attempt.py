"""One attempt: requests resolved near to what stays, for all targets together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from packaging.version import Version

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import replace
from gpuinstall.lock.request.lock_request import plan_or_raise
from gpuinstall.lock.solve.extensions import with_files
from gpuinstall.lock.solve.loop import Loop
from gpuinstall.lock.solve.problem import (
    TARGETS_DISAGREE,
    Near,
    Problem,
    Requests,
    pose_together,
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
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.lock.uv.resolution import Resolution, checked
from gpuinstall.plan.values import PROGRAM_HELD_BACK
from gpuinstall.sources.session import Session
from gpuinstall.sources.web import OFFLINE

Resolutions = list[Resolution]

TARGETS_AT_ONCE = 6
"""For how many targets uv resolves side by side: more of them only wait for the same cores."""

PROPOSALS = 4
"""How many versions of torch the first of several targets proposes."""


def resolve_near(
    requests: Requests,
    near: Near,
    session: Session,
    *,
    usual: Requests | None = None,
    reported: Collection[tuple[str, str]] = (),
) -> Resolutions | Conflict:
    """Resolve requests near to what stays, and check that the packages without a wheel can be built.

    Args:
        requests: One for each target.
        near: What narrows the search.
        session: The sources and the clients of the run.
        usual: The same requests with the catalogue as it is if every source answers.
        reported: The versions of packages whose builds need not be reported again.

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
            return _buildable(answer, reported, session)
        # What a silent index has may be all that is missing, if it is about torch.
        silence = session.client.unreachable(session.sources.torch_index)
        conflict = answer.error
        told = f"{conflict.message}: {conflict.why}"
        family = requests[0].catalog.family
        if silence is None or family.isdisjoint(re.findall(r"[\w-]+", told)):
            return answer
        if conflict.code == TARGETS_DISAGREE:
            silence = _disagreement(conflict, silence)
        elif conflict.why:
            silence.evidence = told
    error = refusal_anyway(usual or requests, silence, session)
    if error is silence:
        raise silence
    return Conflict(error)


def _disagreement(
    conflict: GpuInstallError, silence: InstallationError
) -> InstallationError:
    """Return the error for a common torch that no reachable index has."""
    return InstallationError(
        conflict.code,
        conflict.message,
        why=f"{silence.message}: {silence.why}",
        evidence=conflict.evidence,
        hint=f"{conflict.hint}\n{silence.hint}",
    )


def _resolve(
    requests: Requests,
    near: Near,
    session: Session,
) -> Resolutions | Conflict:
    """Resolve with the first files of extensions beside which there is an answer; else return the first conflict.

    Args:
        requests: One for each target.
        near: What narrows the search.
        session: The sources and the clients of the run.
    """
    conflicts = []
    try:
        problems = pose_together(requests, torch=near.torch, python=near.python)
        problems = [problem.near_to(near) for problem in problems]
        for files in with_files(problems, session):
            answer = _together(files.problems, session)
            if not isinstance(answer, Conflict):
                return [one.with_warnings(files.remarks) for one in answer]
            conflicts.append(answer)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _buildable(
    resolutions: Resolutions,
    reported: Collection[tuple[str, str]],
    session: Session,
) -> Resolutions | Conflict:
    """Return resolutions, or why a package in them that has no wheel cannot be built.

    Args:
        resolutions: One for each target.
        reported: The versions of packages whose builds need not be reported again.
        session: The sources and the clients of the run.
    """
    _name_own_indexes(resolutions, session)
    for one in resolutions:
        site = BuildSite(
            backend=one.choice.build.backend,
            versions=one.versions,
            machine=one.request.machine,
            environ=session.environment,
            passed=session.sources.policy.pass_build_variables,
        )
        builds = source_builds(one.packages)
        new = [each for each in builds if (each.package, each.version) not in reported]
        report_builds(new, site, session.reporter)
        try:
            check_builds(builds, site, here=one.request.builds_here)
        except NoBuildError as error:
            return Conflict(error)
    return resolutions


def _together(problems: Sequence[Problem], session: Session) -> Resolutions | Conflict:
    """Resolve for all targets: if programs are requested, the first target proposes a torch, and the others take it."""
    [first, *others] = problems
    resolve_one = partial(_resolve_one, session=session)
    resolve_all = partial(side_by_side, resolve_one, at_once=TARGETS_AT_ONCE)
    is_of_one_torch = not first.wanted.request.newest_per_target
    if not others or not first.wanted.names_programs or not is_of_one_torch:
        return _apart(resolve_all(problems))
    [first, *others] = sorted(problems, key=lambda one: str(one.target))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        newest = max(remaining)
        expected: list[Problem] = []
        if not conflicts and _go_with(first.with_torches({newest}), session):
            # The other targets need not wait for the first.
            expected = [one.with_torches({newest}) for one in others]
        asked = [first.with_torches(remaining), *expected]
        proposal, *answers = resolve_all(asked)
        if isinstance(proposal, Conflict):
            conflicts.append(proposal)
            break
        torch = proposal.choice.build.torch
        together = _apart([proposal, *answers])
        is_settled = not isinstance(together, Conflict) and not any(
            one.apart for one in together
        )
        if not expected or torch != newest or not is_settled:
            near = [_near_to(proposal, one.with_torches({torch})) for one in others]
            together = _apart([proposal, *resolve_all(near)])
        if not isinstance(together, Conflict):
            order = [str(problem.target) for problem in problems]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        conflicts.append(together)
        remaining -= {torch}
    # The first conflict is returned: it stands against the newest torch.
    return conflicts[0]


def _go_with(problem: Problem, session: Session) -> bool:
    """Whether the newest version of each program goes with the torch of a problem, as METADATA says."""
    loop = Loop(problem, session)
    programs = loop.index.newest_releases
    newest = side_by_side(loop.judge.newest, programs)
    return newest == [*programs.values()]


def _near_to(proposal: Resolution, problem: Problem) -> Problem:
    """Return the problem of another target near to the versions that the first proposes."""
    family = problem.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    near = problem.near
    near = replace(near, versions={**versions, **near.versions})
    return replace(problem, near=near)


def _apart(answers: Iterable[Resolution | Conflict]) -> Resolutions | Conflict:
    """Return the resolutions, each with its packages that could not have one version for all targets; or the first conflict."""
    resolutions: Resolutions = []
    versions: dict[str, set[str]] = defaultdict(set)
    for answer in answers:
        if isinstance(answer, Conflict):
            return answer
        resolutions.append(answer)
        wanted = answer.request
        for name, version in answer.versions.items():
            # If each target has its own newest torch, the family differs too.
            if wanted.request.newest_per_target or name not in wanted.catalog.family:
                versions[name].add(Version(version).public)
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
    else:
        held_back = [Reason(PROGRAM_HELD_BACK, text) for text in remarks.held_back()]
        plan = replace(plan, reasons=(*plan.reasons, *held_back))
    resolution = checked(
        answer.packages,
        problem.wanted,
        plan,
        family=loop.index.names,
        pages=loop.pages(answer.build),
        prebuilt=loop.prebuilt,
        locked=problem.near.hashes,
        session=session,
    )
    relaxed = {
        pin.name: pin for pin in problem.near.yielding if pin.name in answer.given_way
    }
    return replace(resolution.with_warnings(remarks.warnings()), relaxed=relaxed)


def refusal_anyway(
    requests: Requests,
    silence: InstallationError,
    session: Session,
) -> GpuInstallError:
    """Return why the rules refuse the requests even if every source answers; ``silence`` if they do not refuse them.

    Args:
        requests: With the catalogue as it is if every source answers.
        silence: The error of the source that does not answer.
        session: The run, which may be offline.
    """
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
    packages = defaultdict[str, dict[str, None]](dict)
    for resolution in resolutions:
        for package in resolution.packages:
            if "index" in package:
                packages[package["index"]][package["name"]] = None
    for index, names in packages.items():
        origin = session.sources.own_indexes[index]
        session.reporter.step(
            "Index", f"{index}, as {origin} says: the source of {some([*names])}"
        )
