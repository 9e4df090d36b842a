"""The joint choice: torch left open over the builds that run, the programs first; then the best build of that torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.lock.programs import list_programs
from gpuinstall.lock.proposal import OpenRequest, Proposal, held_back, shortened, torches_wanted, who_wants
from gpuinstall.lock.request import PlannedLock, VersionPins, is_torch, plan_lock, refusal
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve_for_here
from gpuinstall.lock.uv_failure import ConflictError
from gpuinstall.plan.values import Settled
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from gpuinstall.session import Session

PROPOSALS = 4
"""How many versions of torch to try where a target cannot have what the first one proposes."""


def resolve_jointly(planned: Sequence[PlannedLock], pins: VersionPins, session: Session) -> list[Resolution]:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    Where the newest torch and the newest programs go together, nothing better can be found. Else the first target
    proposes, and all must be able. Raise ConflictError where nothing comes of it.
    """
    if newest := _all_newest(planned, pins, session):
        return newest
    opened = [_opened(one) for one in planned]
    torches = _torches_of_all(opened)
    conflicts: list[ConflictError] = []
    while torches and len(conflicts) < PROPOSALS:
        request = OpenRequest(opened[0], torches, pins, session)
        try:
            proposal = request.propose()
        except ConflictError as error:
            conflicts.append(error)
            if len(conflicts) == 1:
                _refuse_for_the_machine(error, opened[0])
            break
        proposal, answers = _served(request, proposal, opened)
        failed = [answer for answer in answers if isinstance(answer, ConflictError)]
        if not failed:
            done = (answer for answer in answers if isinstance(answer, Resolution))
            return [_explained(one, proposal, request) for one in done]
        conflicts += failed[:1]
        torches -= {proposal.torch}
    raise conflicts[0]


def _all_newest(planned: Sequence[PlannedLock], pins: VersionPins, session: Session) -> list[Resolution]:
    """Resolve for every target with the torch that was planned and the newest wheel of every program, or nothing."""
    first = planned[0]
    family, python = first.request.catalog.family, first.choice.python
    programs = list_programs(first.request.request.requirements, family, first.target, python, session)
    if pins.preferred or not all(program.needs_no_building for program in programs):
        return []
    bounds = pins.within(tuple(f"{program.name}>={program.newest}" for program in programs))
    answers = side_by_side(partial(resolve_for_here, pins=bounds, session=session), planned, TARGETS_AT_ONCE)
    done = [answer for answer in answers if isinstance(answer, Resolution)]
    return done if len(done) == len(answers) else []


def torch_of_programs(planned: Sequence[PlannedLock], session: Session) -> Version:
    """Find the torch that the programs want of those that all run, as the first proposes it; raise ConflictError."""
    opened = [_opened(one) for one in planned]
    return OpenRequest(opened[0], _torches_of_all(opened), VersionPins(), session).propose().torch


def _opened(planned: PlannedLock) -> PlannedLock:
    """The same with its Python fixed, and with every torch that runs."""
    request = planned.request
    return plan_lock(replace(request, request=replace(request.request, python=planned.choice.python)))


def _torches_of_all(opened: Sequence[PlannedLock]) -> frozenset[Version]:
    return frozenset.intersection(*(frozenset(build.torch for build in one.plan.runnable) for one in opened))


def _refuse_for_the_machine(conflict: ConflictError, planned: PlannedLock) -> None:
    """Where the machine runs none of the torches that are wanted, raise why it does not."""
    asked = planned.request.request
    others = tuple(text for text in asked.requirements if not is_torch(text))
    refusals = []
    for specifier in torches_wanted(conflict.why or ""):
        wanting = replace(planned.request, request=replace(asked, requirements=(f"torch{specifier}", *others)))
        plan = wanting.plan()
        if plan.choice is not None:
            return
        refusals.append(refusal(plan, planned.request.machine))
    if refusals:
        refusals[0].why = conflict.why
        raise refusals[0]


def _served(
    request: OpenRequest, proposal: Proposal, opened: Sequence[PlannedLock]
) -> tuple[Proposal, list[Resolution | ConflictError]]:
    """Resolve a proposal for every target; meanwhile it is asked whether a program could be newer."""
    with ThreadPoolExecutor(TARGETS_AT_ONCE + 1) as pool:
        improved = pool.submit(request.improve, proposal)
        answers = list(pool.map(partial(_with_best_build, request=request, proposal=proposal), opened))
        better = improved.result()
        if better.versions != proposal.versions:
            answers = list(pool.map(partial(_with_best_build, request=request, proposal=better), opened))
        return better, answers


def _with_best_build(planned: PlannedLock, request: OpenRequest, proposal: Proposal) -> Resolution | ConflictError:
    """Resolve with the best build of a torch that the programs can be had with, as new as they were proposed."""
    pins = request.pins.within(request.bounds(proposal) if planned is request.planned else ())
    conflicts: dict[str, ConflictError] = {}
    for backend in [build.backend.tag for build in planned.plan.runnable if build.torch == proposal.torch]:
        unserved = {tag: shortened(conflict.why or conflict.message) for tag, conflict in conflicts.items()}
        settled = plan_lock(planned.request, Settled(proposal.torch, "", unserved))
        answer = resolve_for_here(settled, pins, request.session)
        if isinstance(answer, Resolution):
            return answer
        conflicts[backend] = answer
    return next(iter(conflicts.values()))


def _explained(resolution: Resolution, proposal: Proposal, request: OpenRequest) -> Resolution:
    """Say in the plan who wants this torch, and what could not be the newest."""
    planned, settled = resolution.planned, resolution.planned.settled
    if settled is None:
        return resolution
    older = proposal.torch < planned.plan.runnable[0].torch and "torch" in proposal.versions
    why = who_wants(proposal, request.programs) if older else ""
    told = tuple(held_back(resolution.versions, proposal, request.programs))
    return replace(resolution, planned=plan_lock(planned.request, replace(settled, why=why, held_back=told)))
