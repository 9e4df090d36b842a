"""The smallest set of targets that serves a set of recorded machines, exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from gpuinstall.errors import NoBuildError
from gpuinstall.lock.joint import torch_of_programs
from gpuinstall.lock.making import ask_live_index
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import LockRequest, agree_on_torch, common_torches
from gpuinstall.lock.target import Target
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.session import Session

Served = dict[Target, frozenset[int]]
"""The machines, by their positions, that each target serves."""


def cover(requests: Sequence[LockRequest]) -> Served:
    """Find the fewest targets, for the newest torch that every machine can have; the machines' own choice breaks ties.

    Raise MachineError or NoBuildError where a machine can have none, or no torch serves them all.
    """
    alone = [request.choice for request in requests]
    for torch in common_torches(requests):
        pinned = [request.with_torch(str(torch)) for request in requests]
        served = _served(pinned)
        if set().union(*served.values()) == set(range(len(alone))):
            return {target: served[target] for target in _fewest(served, pinned)}
    raise NoBuildError("machines-disagree", "no torch version runs on all machines", hint="Lock them separately")


def cover_with_programs(requests: Sequence[LockRequest], session: Session) -> Served:
    """The same, for the torch that the programs want of those that every machine can have.

    Raise NoBuildError too, where they want none of them.
    """
    served = cover(requests)
    if not names_programs(requests[0].request.requirements):
        return served
    with ask_live_index(requests, session) as answers:
        live, unreachable = answers()
    if unreachable:
        return served
    torch = torch_of_programs(agree_on_torch(live), session)
    if isinstance(torch, Conflict):
        raise torch.error
    return cover([one.with_torch(str(torch)) for one in live])


def _served(requests: Sequence[LockRequest]) -> Served:
    """Try every backend of the kind that each machine would choose alone, as far as it is allowed."""
    served: dict[Target, set[int]] = {}
    for position, request in enumerate(requests):
        choice, allowed = request.outcome.choice, request.request.allowed_backends
        kind = choice.build.backend.kind if choice else None
        tags = {build.backend.tag for build in request.builds if build.backend.kind == kind}
        for backend in sorted(tags if allowed is None else tags.intersection(allowed)):
            plan = replace(request, request=replace(request.request, allowed_backends=(backend,))).outcome
            if isinstance(plan, Plan) and all(run.how != "none" for run in plan.gpus):
                served.setdefault(Target(backend, request.machine.os, request.machine.arch), set()).add(position)
    return {target: frozenset(positions) for target, positions in served.items()}


def _fewest(served: Served, requests: Sequence[LockRequest]) -> tuple[Target, ...]:
    """The smallest set of targets that serves all; of several, the one that most machines would choose alone."""
    favourites = [request.target for request in requests if isinstance(request.outcome, Plan)]
    targets = sorted(served, key=str, reverse=True)
    for size in range(1, len(targets) + 1):
        sets = [(chosen, frozenset().union(*map(served.__getitem__, chosen))) for chosen in combinations(targets, size)]
        if full := [chosen for chosen, machines in sets if len(machines) == len(requests)]:
            return max(full, key=lambda chosen: sum(str(favourite) in map(str, chosen) for favourite in favourites))
    return ()
