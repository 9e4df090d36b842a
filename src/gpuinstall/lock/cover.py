"""The smallest set of targets that serves a set of recorded machines, exactly."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.errors import NoBuildError
from gpuinstall.lock.request import LockRequest, common_torches, pinned
from gpuinstall.lock.target import Target
from gpuinstall.plan import choose
from gpuinstall.plan.values import error_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request

Served = dict[Target, frozenset[int]]
"""The machines, by their places, that each target serves."""


def cover(machines: Sequence[Machine], request: Request, catalog: Catalog) -> tuple[Target, ...]:
    """Find the fewest targets, for the newest torch that every machine can have; the machines' own choice breaks ties.

    Raise MachineError or NoBuildError where a machine can have none, or no torch serves them all.
    """
    aims = [LockRequest(machine, request, catalog) for machine in machines]
    for aim in aims:
        if error := error_of(choose(aim.machine, request, catalog), aim.machine):
            raise error
    for torch in common_torches(aims):
        served = _served([_asking(aim, torch) for aim in aims])
        if set().union(*served.values()) == set(range(len(machines))):
            return _fewest(served, _favourites(aims, torch), len(machines))
    raise NoBuildError("machines-disagree", "no torch version serves all of these machines", hint="lock them apart")


def _served(aims: Sequence[LockRequest]) -> Served:
    served: dict[Target, set[int]] = {}
    for place, aim in enumerate(aims):
        for backend in _backends(aim):
            plan = choose(aim.machine, replace(aim.request, backend=backend), aim.catalog)
            if plan.choice and all(run.how != "none" for run in plan.gpus):
                served.setdefault(Target(backend, aim.machine.os, aim.machine.arch), set()).add(place)
    return {target: frozenset(places) for target, places in served.items()}


def _backends(aim: LockRequest) -> list[str]:
    """The backends to try for a machine: CUDA's where it has a GPU, else the CPU's."""
    if not aim.machine.gpus:
        return [CPU.tag]
    builds = aim.catalog.builds_for(aim.machine.os, aim.machine.arch)
    return sorted({build.backend.tag for build in builds if build.backend != CPU})


def _fewest(served: Served, favourites: Sequence[Target | None], count: int) -> tuple[Target, ...]:
    targets = sorted(served, key=str, reverse=True)
    for size in range(1, len(targets) + 1):
        full = [
            chosen
            for chosen in combinations(targets, size)
            if len(frozenset().union(*(served[target] for target in chosen))) == count
        ]
        if full:
            return max(full, key=lambda chosen: sum(favourite in chosen for favourite in favourites))
    return ()


def _favourites(aims: Sequence[LockRequest], torch: Version) -> list[Target | None]:
    """What each machine would choose alone."""
    choices = [(aim, choose(aim.machine, _asking(aim, torch).request, aim.catalog).choice) for aim in aims]
    return [
        Target(choice.build.backend.tag, aim.machine.os, aim.machine.arch) if choice else None
        for aim, choice in choices
    ]


def _asking(aim: LockRequest, torch: Version) -> LockRequest:
    return replace(aim, request=replace(aim.request, requirements=pinned(aim.request.requirements, str(torch))))
