"""The fewest targets that serve recorded machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.errors import NoBuildError
from gpuinstall.lock.live import live_requests
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.proposal import torch_of_programs
from gpuinstall.lock.request import LockRequest, agree_on_torch, common_torches
from gpuinstall.lock.target import Target
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan.cover import best_cover, serving_builds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.sources.session import Session

Served = dict[Target, frozenset[int]]
"""The machines, by their positions, that each target serves."""


def cover(requests: Sequence[LockRequest]) -> Served:
    """Return the fewest targets for the newest torch that every machine can have.

    Raise MachineError or NoBuildError if a machine can have none, or no torch serves them all.
    """
    for request in requests:
        _ = request.choice  # a machine that can have none is refused by its own reason
    for torch in common_torches(requests):
        pinned = [request.with_torch(str(torch)) for request in requests]
        plans = [request.outcome for request in pinned]
        candidates = serving_builds(plans)
        served: Served = {}
        for serving in best_cover(candidates, range(len(requests))):
            build = serving.build
            target = Target(
                build.backend.tag,
                build.os,
                build.arch,
            )
            served[target] = frozenset(serving.ranks)
        if served:
            return served
    raise NoBuildError(
        "machines-disagree",
        "no torch version runs on all machines",
        hint="Lock them separately",
    )


def cover_with_programs(requests: Sequence[LockRequest], session: Session) -> Served:
    """Return the fewest targets for the torch that the programs require of those that every machine can have.

    Raise NoBuildError too, if they require none of them.
    """
    served = cover(requests)
    if not names_programs(requests[0].request.requirements):
        return served
    live, unreachable = live_requests(requests, session)
    if unreachable:
        return served
    torch = torch_of_programs(agree_on_torch(live), session)
    if isinstance(torch, Conflict):
        raise torch.error
    pinned = [request.with_torch(str(torch)) for request in live]
    return cover(pinned)
