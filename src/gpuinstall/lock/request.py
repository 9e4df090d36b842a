"""What locks are made for: a target or a machine each, and one torch and one Python for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpuinstall.backend import known_backend
from gpuinstall.errors import GpuInstallError, NoBuildError
from gpuinstall.lock.target import GLIBC, MACOS, UV_MACOS, Target, minor
from gpuinstall.machine import Machine
from gpuinstall.plan import choose
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import PROGRAM_REASONS, error_of
from gpuinstall.vendors import vendor_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.plan import Plan
    from gpuinstall.plan.values import Choice, Settled
    from gpuinstall.request import Request


@dataclass(frozen=True)
class VersionPins:
    """What is to stay as it is: versions that must, as constraints, and versions that should.

    Constraints hold for the packages that turn up, and ask for none; preferred versions are taken where nothing
    stands against them.
    """

    constraints: tuple[str, ...] = ()
    preferred: Mapping[str, str] = field(default_factory=dict)

    def within(self, bounds: tuple[str, ...]) -> VersionPins:
        """The same, with further constraints."""
        return replace(self, constraints=(*self.constraints, *bounds))


@dataclass(frozen=True)
class LockRequest:
    """One lock to make: for ``machine``, or for the machine that stands for a target, of what ``catalog`` has.

    ``serves`` are the machines that a target's lock has to run on, as far as they are known; ``builds_here`` says that
    what has no wheel will be built on this very machine.
    """

    machine: Machine
    request: Request
    catalog: Catalog
    builds_here: bool = True
    serves: tuple[Machine, ...] = ()

    @classmethod
    def for_target(
        cls, target: Target, request: Request, catalog: Catalog, serves: tuple[Machine, ...] = ()
    ) -> LockRequest:
        """A lock for every machine that a target means, among them those that it ``serves``."""
        asked = replace(request, backend=target.backend)
        return cls(machine_for_target(target), asked, catalog, builds_here=False, serves=serves)

    @property
    def target(self) -> str:
        """The target as the user named it, or else the system."""
        system = f"{self.machine.os}-{self.machine.arch}"
        return str(Target(self.request.backend, self.machine.os, self.machine.arch)) if self.request.backend else system

    @property
    def builds(self) -> list[Build]:
        """The builds of its platform and backend."""
        asked = known_backend(self.request.backend)
        vendor = vendor_for(self.machine, {asked.kind} if asked else ())
        builds = self.catalog.serving(vendor.kind).builds_for(self.machine.os, self.machine.arch)
        return [build for build in builds if self.request.backend in {build.backend.tag, None}]

    def with_torch(self, torch: str, python: str | None = None) -> LockRequest:
        """The same with one version of torch, and one Python where it is given."""
        requirements = pin_torch(self.request.requirements, torch)
        request = replace(self.request, requirements=requirements, python=python or self.request.python)
        return replace(self, request=request)

    def plan(self, settled: Settled | None = None) -> Plan:
        """Choose for it, of what every machine runs that it serves; refused where one of them has to be."""
        catalog = self.catalog
        for machine in self.serves:
            plan = choose(machine, self.request, catalog, settled)
            if plan.choice is None:
                return plan
            catalog = catalog.only(*plan.runnable)
        return choose(self.machine, self.request, catalog, settled)


@dataclass(frozen=True)
class PlannedLock:
    """A lock request with the plan that serves it, and the choice in it; ``settled`` is what its programs came to."""

    request: LockRequest
    plan: Plan
    choice: Choice
    settled: Settled | None = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said of its programs: who wants an older torch, and what could not be the newest."""
        return tuple(reason.message for reason in self.plan.reasons if reason.code in PROGRAM_REASONS)

    @property
    def target(self) -> Target:
        """What the lock is for; its glibc and its macOS are old enough for every machine that runs the build."""
        machine, build = self.request.machine, self.choice.build
        glibc = min((GLIBC, machine.glibc or GLIBC), key=minor)
        macos = max((UV_MACOS, build.macos or MACOS), key=lambda release: int(release.split(".")[0]))
        return Target(build.backend.tag, machine.os, machine.arch, glibc, macos)


def machine_for_target(target: Target) -> Machine:
    """The machine that stands for a target: no GPU, any Python, a glibc as old as the locks are made for."""
    linux = target.os == "linux"
    return Machine(target.os, target.arch, "glibc" if linux else None, GLIBC if linux else None)


def plan_lock(request: LockRequest, settled: Settled | None = None) -> PlannedLock:
    """Choose for one lock; raise what a refused plan says."""
    plan = request.plan(settled)
    if plan.choice is None:
        raise refusal(plan, request.machine)
    return PlannedLock(request, plan, plan.choice, settled)


def refusal(plan: Plan, machine: Machine) -> GpuInstallError:
    """The error that a plan without a choice is, with the plan."""
    error = error_of(plan, machine) or NoBuildError("refused", "no build fits")
    error.data = {"plan": plan.to_dict()}
    return error


def plan_locks(requests: Sequence[LockRequest], *, newest: bool = False) -> list[PlannedLock]:
    """Choose for every lock: the newest torch that all can have, or with ``newest`` the newest of each; one Python.

    Raise MachineError or NoBuildError where there is none.
    """
    if len(requests) == 1:
        return [plan_lock(requests[0])]
    alone = [str(plan_lock(request).choice.build.torch) for request in requests] if newest else []
    shared = ([str(torch)] * len(requests) for torch in common_torches(requests))
    for torches in [alone] if newest else shared:
        for python in _pythons(requests):
            if planned := _all_planned(requests, torches, python):
                return planned
    raise _no_common_python() if newest else _disagreement(requests)


def pin_torch(requirements: Iterable[str], torch: str) -> tuple[str, ...]:
    """Replace what is asked of torch by one version, except what is asked under a marker."""
    parsed = [(text, parse_requirement(text)) for text in requirements]
    replaced = [one for text, one in parsed if is_torch(text) and one.marker is None]
    extras = sorted({extra for one in replaced for extra in one.extra_names})
    wanted = f"torch[{','.join(extras)}]" if extras else "torch"
    return (f"{wanted}=={torch.partition('+')[0]}", *(text for text, one in parsed if one not in replaced))


def is_torch(requirement: str) -> bool:
    """Say whether a requirement is one of torch."""
    return parse_requirement(requirement).name == "torch"


def common_torches(requests: Sequence[LockRequest]) -> list[Version]:
    """The torch versions that every platform has a build of, and every request allows, newest first."""
    return sorted(set.intersection(*map(_torches, requests)), reverse=True)


def _all_planned(requests: Sequence[LockRequest], torches: Sequence[str], python: str) -> list[PlannedLock]:
    """Choose one torch for each and one Python for all; nothing where one of them cannot have that."""
    planned: list[PlannedLock] = []
    for request, torch in zip(requests, torches, strict=True):
        plan = request.with_torch(torch, python).plan()
        if plan.choice is None:
            return []
        planned.append(PlannedLock(request, plan, plan.choice))
    return planned


def _torches(request: LockRequest) -> set[Version]:
    demands = parse_request(request.request, request.catalog.family, request.machine)
    return {build.torch for build in request.builds if any(demand.wants(build.torch) for demand in demands)}


def _pythons(requests: Sequence[LockRequest]) -> list[str]:
    """The Pythons to try for all: the one that is fixed, else those preferred, the settled one, the newest first."""
    first = requests[0]
    demands = parse_request(first.request, first.catalog.family, first.machine)
    known = {python for one in requests for build in one.builds for python in build.pythons if not python.endswith("t")}
    newest_first = sorted(known, key=lambda python: int(python.partition(".")[2]), reverse=True)
    tried = dict.fromkeys((*first.request.preferred_pythons, first.catalog.settled_python, *newest_first))
    fixed = demands[0].python
    every = [fixed] if isinstance(fixed, str) else list(tried)
    return [python for python in every if any(demand.suits(python) for demand in demands)]


def _no_common_python() -> NoBuildError:
    message = "no Python has the newest torch of every target"
    return NoBuildError("no-common-python", message, hint="name one: --python 3.12")


def _disagreement(requests: Sequence[LockRequest]) -> NoBuildError:
    """Say what each target could have alone."""
    choices = {request.target: request.plan().choice for request in requests}
    alone = {target: str(choice.build.torch) if choice else None for target, choice in choices.items()}
    seen = " · ".join(f"{target} torch {torch or 'none'}" for target, torch in alone.items())
    return NoBuildError(
        "targets-disagree",
        "no torch version serves all of these targets",
        evidence=seen,
        hint="gpuinstall lock --per-target newest   makes each its own newest",
        data={"newest": alone},
    )
