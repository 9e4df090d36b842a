"""What locks are made for: a target or a machine each, and one torch and one Python for all of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpuinstall.errors import NoBuildError
from gpuinstall.lock.target import GLIBC, Target
from gpuinstall.machine import Machine
from gpuinstall.plan import choose
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.values import error_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice
    from gpuinstall.request import Request


@dataclass(frozen=True)
class LockRequest:
    """One lock to make: for ``machine``, or for the machine that stands for a target, of what ``catalog`` has."""

    machine: Machine
    request: Request
    catalog: Catalog

    @property
    def target(self) -> str:
        """The target as the user named it."""
        return str(Target(self.request.backend or "?", self.machine.os, self.machine.arch))

    def asking(self, torch: str, python: str) -> LockRequest:
        """The same with one torch and one Python."""
        requirements = pinned(self.request.requirements, torch)
        return replace(self, request=replace(self.request, requirements=requirements, python=python))


@dataclass(frozen=True)
class PlannedLock:
    """An aim with the plan that serves it, and the choice in it."""

    aim: LockRequest
    plan: Plan
    choice: Choice


def machine_for_target(target: Target) -> Machine:
    """The machine that stands for a target: no GPU, any Python, a glibc as old as the locks are made for."""
    linux = target.os == "linux"
    return Machine(target.os, target.arch, "glibc" if linux else None, GLIBC if linux else None)


def settle(aims: Sequence[LockRequest], *, newest: bool = False) -> list[PlannedLock]:
    """Choose for every aim: the newest torch that all can have, or with ``newest`` the newest of each; one Python.

    Raise MachineError or NoBuildError where there is none.
    """
    if len(aims) == 1 or newest:
        first = [settle_one(aim) for aim in aims]
        return first if len(aims) == 1 else _one_python(first)
    for torch in common_torches(aims):
        for python in _pythons(aims):
            plans = [choose(one.machine, one.request, one.catalog) for one in _asking(aims, str(torch), python)]
            choices = [plan.choice for plan in plans if plan.choice]
            if len(choices) == len(aims):
                return [PlannedLock(*each) for each in zip(aims, plans, choices, strict=True)]
    raise _disagreement(aims)


def settle_one(aim: LockRequest) -> PlannedLock:
    """Choose for one aim; raise what a refused plan says."""
    plan = choose(aim.machine, aim.request, aim.catalog)
    if plan.choice is not None:
        return PlannedLock(aim, plan, plan.choice)
    error = error_of(plan, aim.machine) or NoBuildError("refused", "no build fits")
    error.data = {"plan": plan.to_dict()}
    raise error


def pinned(requirements: tuple[str, ...], torch: str) -> tuple[str, ...]:
    """Replace what is asked of torch by one version."""
    extras = sorted(set().union(*(Requirement(text).extras for text in requirements if is_torch(text))))
    wanted = f"torch[{','.join(extras)}]" if extras else "torch"
    return (f"{wanted}=={torch.partition('+')[0]}", *(text for text in requirements if not is_torch(text)))


def is_torch(requirement: str) -> bool:
    """Say whether a requirement is one of torch."""
    return canonicalize_name(Requirement(requirement).name) == "torch"


def _asking(aims: Sequence[LockRequest], torch: str, python: str) -> Iterator[LockRequest]:
    return (aim.asking(torch, python) for aim in aims)


def _one_python(settled: list[PlannedLock]) -> list[PlannedLock]:
    aims = [each.aim for each in settled]
    for python in _pythons(aims):
        asking = [each.aim.asking(str(each.choice.build.torch), python) for each in settled]
        plans = [choose(aim.machine, aim.request, aim.catalog) for aim in asking]
        choices = [plan.choice for plan in plans if plan.choice]
        if len(choices) == len(aims):
            return [PlannedLock(*each) for each in zip(aims, plans, choices, strict=True)]
    raise NoBuildError(
        "no-common-python", "no Python has the newest torch of every target", hint="name one: --python 3.12"
    )


def common_torches(aims: Sequence[LockRequest]) -> list[Version]:
    """The torch versions that every aim's platform has a build of, and its request allows, newest first."""
    return sorted(set.intersection(*map(_torches, aims)), reverse=True)


def _torches(aim: LockRequest) -> set[Version]:
    demand = parse_request(aim.request, aim.catalog.family, aim.machine)
    return {build.torch for build in _builds(aim) if demand.wants(build.torch)}


def _builds(aim: LockRequest) -> list[Build]:
    builds = aim.catalog.builds_for(aim.machine.os, aim.machine.arch)
    return [build for build in builds if aim.request.backend in {build.backend.tag, None}]


def _pythons(aims: Sequence[LockRequest]) -> list[str]:
    """The Pythons to try for all: the one that is fixed, else those preferred, the settled one, the newest first."""
    request, catalog = aims[0].request, aims[0].catalog
    demand = parse_request(request, catalog.family, aims[0].machine)
    every = {python for aim in aims for build in _builds(aim) for python in build.pythons if not python.endswith("t")}
    newest_first = sorted(every, key=lambda python: int(python.partition(".")[2]), reverse=True)
    tried = dict.fromkeys((*request.preferred_pythons, catalog.settled_python, *newest_first))
    fixed = [demand.python] if isinstance(demand.python, str) else tried
    return [python for python in fixed if demand.suits(python)]


def _disagreement(aims: Sequence[LockRequest]) -> NoBuildError:
    """Say what each target could have alone."""
    choices = {aim.target: choose(aim.machine, aim.request, aim.catalog).choice for aim in aims}
    alone = {target: str(choice.build.torch) if choice else None for target, choice in choices.items()}
    seen = " · ".join(f"{target} torch {torch or 'none'}" for target, torch in alone.items())
    return NoBuildError(
        "targets-disagree",
        "no torch version serves all of these targets",
        seen=seen,
        hint="gpuinstall lock --per-target newest   makes each its own newest",
        data={"newest": alone},
    )
