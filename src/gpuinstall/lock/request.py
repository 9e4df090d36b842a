"""What locks are made for: a target or a machine each, and one torch and one Python for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.backend import known_backend
from gpuinstall.errors import NoBuildError
from gpuinstall.lock.target import GLIBC, MACOS, UV_MACOS, Target, minor
from gpuinstall.machine import Machine
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.vendors import vendor_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build, Catalog, Wheel
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

    def within(self, *bounds: str) -> VersionPins:
        """The same, with further constraints."""
        return replace(self, constraints=(*self.constraints, *bounds))


@dataclass(frozen=True)
class LockRequest:
    """One lock to make: for ``machine``, or for the machine that stands for a target, of what ``catalog`` has.

    ``serves`` are the machines that a target's lock has to run on, as far as they are known. ``builds_here`` says that
    what has no wheel will be built on this very machine. ``torch`` and ``python`` are the versions that all the locks
    share, once they are chosen, ``settled`` is what the programs came to, ``files`` are those of extensions,
    ``libraries`` the packages that are added because a program opens what they have; ``locked`` has the sha256 of the
    files that stay, by name.
    """

    machine: Machine
    request: Request
    catalog: Catalog
    builds_here: bool = True
    serves: tuple[Machine, ...] = ()
    pins: VersionPins = field(default_factory=VersionPins)
    torch: str | None = None
    python: str | None = None
    settled: Settled | None = None
    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    rejected_torches: frozenset[Version] = frozenset()
    """Versions of torch that a target cannot have with the programs."""
    locked: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def for_target(
        cls, target: Target, request: Request, catalog: Catalog, serves: tuple[Machine, ...] = ()
    ) -> LockRequest:
        """A lock for every machine that a target means, among them those that it ``serves``."""
        machine = machine_for_target(target)
        if machine.glibc:
            known = [served.glibc for served in serves if served.glibc]
            machine = replace(machine, glibc=min([machine.glibc, *known], key=minor))
        request = replace(request, backend=target.backend)
        return cls(machine, request, catalog, builds_here=False, serves=serves)

    def with_torch(self, torch: str) -> LockRequest:
        """The same, asking for one version of torch."""
        requirements = pin_torch(self.request.requirements, torch)
        return replace(self, request=replace(self.request, requirements=requirements))

    @property
    def label(self) -> str:
        """The target as the user named it, or else the system."""
        machine, backend = self.machine, self.request.backend
        return (
            str(Target(backend, machine.os, machine.arch))
            if backend
            else f"{machine.os}-{machine.arch}"
        )

    @property
    def builds(self) -> list[Build]:
        """The builds of its platform and backend."""
        backend = known_backend(self.request.backend)
        vendor = vendor_for(self.machine, {backend.kind} if backend else ())
        builds = self.catalog.serving(vendor.kind).builds_for(self.machine.os, self.machine.arch)
        return [build for build in builds if self.request.backend in {build.backend.tag, None}]

    @cached_property
    def outcome(self) -> Plan | Rejected:
        """The choice for it, of what every machine runs that it serves; refused where one of them has to be."""
        wanted = self.with_torch(self.torch).request if self.torch else self.request
        wanted, catalog = replace(wanted, python=self.python or wanted.python), self.catalog
        for machine in self.serves:
            plan = choose(machine, wanted, catalog, self.settled)
            if isinstance(plan, Rejected):
                return plan
            catalog = catalog.only(*plan.runnable)
        return choose(self.machine, wanted, catalog, self.settled)

    @property
    def plan(self) -> Plan:
        """The choice for it; raise what a refusal says."""
        if isinstance(self.outcome, Rejected):
            raise self.outcome.error(self.machine)
        return self.outcome

    @property
    def choice(self) -> Choice:
        """The build that is chosen; raise what a refusal says."""
        return self.plan.choice

    @property
    def target(self) -> Target:
        """What its lock is for; its glibc and its macOS are old enough for every machine that runs the build."""
        machine, build = self.machine, self.choice.build
        glibc = min((GLIBC, machine.glibc or GLIBC), key=minor)
        macos = max(
            (UV_MACOS, build.macos or MACOS), key=lambda release: int(release.split(".")[0])
        )
        return Target(build.backend.tag, machine.os, machine.arch, glibc, macos)


def machine_for_target(target: Target) -> Machine:
    """The machine that stands for a target: no GPU, any Python, a glibc as old as the locks are made for."""
    linux = target.os == "linux"
    return Machine(target.os, target.arch, "glibc" if linux else None, GLIBC if linux else None)


def agree_on_torch(requests: Sequence[LockRequest], *, newest: bool = False) -> list[LockRequest]:
    """Choose for every lock: the newest torch that all can have, or with ``newest`` the newest of each; one Python.

    Raise MachineError or NoBuildError where there is none.
    """
    alone = [request.choice for request in requests] if newest or len(requests) == 1 else []
    if len(requests) == 1:
        return list(requests)
    shared = ([str(torch)] * len(requests) for torch in common_torches(requests))
    for torches in [[str(choice.build.torch) for choice in alone]] if newest else shared:
        for python in _pythons(requests):
            paired = zip(requests, torches, strict=True)
            agreed = [replace(request, torch=torch, python=python) for request, torch in paired]
            if not any(isinstance(request.outcome, Rejected) for request in agreed):
                return agreed
    if newest:
        message = "no Python version has the newest torch of every target"
        raise NoBuildError("no-common-python", message, hint="the same with --python 3.12")
    raise _disagreement(requests)


def pin_torch(requirements: Iterable[str], torch: str) -> tuple[str, ...]:
    """Replace what is asked of torch by one version, except what is asked under a marker."""
    parsed = [(text, parse_requirement(text)) for text in requirements]
    replaced = [
        requirement for text, requirement in parsed if is_torch(text) and requirement.marker is None
    ]
    extras = sorted({extra for requirement in replaced for extra in requirement.extra_names})
    name = f"torch[{','.join(extras)}]" if extras else "torch"
    rest = (text for text, requirement in parsed if requirement not in replaced)
    return (f"{name}=={torch.partition('+')[0]}", *rest)


def is_torch(requirement: str) -> bool:
    """Say whether a requirement is one of torch."""
    return parse_requirement(requirement).name == "torch"


def common_torches(requests: Sequence[LockRequest]) -> list[Version]:
    """The torch versions that every platform has a build of, and every request allows, newest first."""

    def torches(request: LockRequest) -> set[Version]:
        demands = parse_request(request.request, request.catalog.family, request.machine)
        return {
            build.torch
            for build in request.builds
            if any(demand.wants(build.torch) for demand in demands)
        }

    return sorted(set.intersection(*map(torches, requests)), reverse=True)


def _pythons(requests: Sequence[LockRequest]) -> list[str]:
    """The Pythons to try for all: the one that is fixed, else those preferred, the settled one, the newest first."""
    first = requests[0]
    demands = parse_request(first.request, first.catalog.family, first.machine)
    if isinstance(demands[0].python, str):
        tried = [demands[0].python]
    else:
        pythons = {
            python for request in requests for build in request.builds for python in build.pythons
        }
        released = [python for python in pythons if not python.endswith("t")]
        newest_first = sorted(
            released, key=lambda python: int(python.partition(".")[2]), reverse=True
        )
        tried = [*first.request.preferred_pythons, first.catalog.settled_python, *newest_first]
    return [
        python for python in dict.fromkeys(tried) if any(demand.suits(python) for demand in demands)
    ]


def _disagreement(requests: Sequence[LockRequest]) -> NoBuildError:
    alone: dict[str, str | None] = {}
    for request in requests:
        outcome = request.outcome
        alone[request.label] = (
            str(outcome.choice.build.torch) if isinstance(outcome, Plan) else None
        )
    message = "no torch version supports all of these targets"
    evidence = " · ".join(f"{label} torch {torch or 'none'}" for label, torch in alone.items())
    hint = "gpuinstall lock --per-target newest   # each gets its own newest torch"
    return NoBuildError(
        "targets-disagree", message, evidence=evidence, hint=hint, data={"newest": alone}
    )
