"""What locks are made for: a target or a machine each, and one torch and one Python for all of them."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.machine import Machine
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import known_backend
from gpuinstall.lock.target import GLIBC, MACOS, UV_MACOS, Target, minor
from gpuinstall.machine.vendors import vendor_for
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.demand import parse_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from packaging.version import Version

    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Build, Catalog, Wheel
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request.project import FolderProject
    from gpuinstall.plan.values import Choice, ProgramConstraints

    Requests = Sequence["LockRequest"]


@dataclass(frozen=True)
class VersionPins:
    """What is to stay as it is."""

    constraints: tuple[str, ...] = ()
    """They hold for the packages that turn up, and ask for none."""
    preferred: Mapping[str, str] = field(default_factory=dict)
    """Versions that are taken if nothing stands against them."""

    def within(self, *bounds: str) -> VersionPins:
        """Return the same with further constraints."""
        return replace(self, constraints=(*self.constraints, *bounds))


@dataclass(frozen=True)
class LockRequest:
    """One lock to make."""

    machine: Machine
    """The machine that it is for, or the one that stands for a target."""
    request: Request
    catalog: Catalog
    builds_here: bool = True
    """Whether what has no wheel will be built on this very machine."""
    serves: tuple[Machine, ...] = ()
    """The machines that a target's lock has to run on, as far as they are known."""
    pins: VersionPins = field(default_factory=VersionPins)
    torch: str | None = None
    """The version that all the locks share, once it is chosen."""
    python: str | None = None
    """The same of Python."""
    program_constraints: ProgramConstraints | None = None
    """What the programs came to."""
    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    """The files of extensions."""
    folder_projects: tuple[FolderProject, ...] = ()
    """Projects in folders whose own requirements do not count: the request has them, with other versions."""
    libraries: tuple[str, ...] = ()
    """Packages that are added because a program opens what they have."""
    locked: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of the files that stay, by name."""

    @classmethod
    def for_target(
        cls,
        target: Target,
        request: Request,
        catalog: Catalog,
        serves: tuple[Machine, ...] = (),
    ) -> LockRequest:
        """Return a lock to make for every machine that a target means, among them those that it ``serves``."""
        machine = machine_for_target(target)
        if machine.glibc:
            known = [machine.glibc]
            known += [served.glibc for served in serves if served.glibc]
            machine = replace(machine, glibc=min(known, key=minor))
        request = replace(request, backend=target.backend)
        return cls(
            machine,
            request,
            catalog,
            builds_here=False,
            serves=serves,
        )

    def near(self, locks: Iterable[Lock]) -> LockRequest:
        """Return the same for a backend that locks of ours hold, as long as one of theirs runs."""
        tags = [Target.parse(lock.target).backend for lock in locks if lock.is_ours]
        if self.request.backend or not tags:
            return self
        narrowed = self.asking(allowed_backends=tuple(tags))
        return narrowed if isinstance(narrowed.outcome, Plan) else self

    def with_torch(self, torch: str) -> LockRequest:
        """Return the same, asking for one version of torch."""
        return self.asking(requirements=pin_torch(self.request.requirements, torch))

    def asking(self, **changes: Any) -> LockRequest:
        """Return the same with another request: ``changes`` are to the fields of it."""
        return replace(self, request=replace(self.request, **changes))

    def within(self, *bounds: str) -> LockRequest:
        """Return the same with further constraints on the packages that turn up."""
        return replace(self, pins=self.pins.within(*bounds))

    @property
    def label(self) -> str:
        """The target as the user named it, or else the system."""
        machine = self.machine
        if not self.request.backend:
            return f"{machine.os}-{machine.arch}"
        return str(Target(self.request.backend, machine.os, machine.arch))

    @property
    def builds(self) -> list[Build]:
        """The builds of its platform and backend."""
        backend = known_backend(self.request.backend)
        vendor = vendor_for(self.machine, {backend.kind} if backend else ())
        catalog = self.catalog.serving(vendor.kind)
        builds = catalog.builds_for(self.machine.os, self.machine.arch)
        return [
            build
            for build in builds
            if self.request.backend in {build.backend.tag, None}
        ]

    @cached_property
    def outcome(self) -> Plan | Rejected:
        """The choice for it, of what every machine runs that it serves; refused if one of them has to be."""
        request = self.request
        if self.torch:
            request = self.with_torch(self.torch).request
        if self.python:
            request = replace(request, python=self.python)
        catalog = self.catalog
        for machine in self.serves:
            plan = choose(machine, request, catalog, self.program_constraints)
            if isinstance(plan, Rejected):
                return plan
            catalog = catalog.only(*plan.runnable)
        return choose(self.machine, request, catalog, self.program_constraints)

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
        """What its lock is for: a known machine's own glibc, or one old enough for every machine that runs the build.

        Its macOS is always that old.
        """
        machine = self.machine
        build = self.choice.build
        macos = (UV_MACOS, build.macos or MACOS)
        oldest = Target(
            build.backend.tag,
            machine.os,
            machine.arch,
            glibc=min(GLIBC, machine.glibc or GLIBC, key=minor),
            macos=max(macos, key=lambda release: int(release.split(".")[0])),
        )
        return oldest.up_to(machine.glibc)


def machine_for_target(target: Target) -> Machine:
    """Return the machine that stands for a target: no GPU, any Python, a glibc as old as the locks are made for."""
    if target.os == "linux":
        return Machine(
            target.os,
            target.arch,
            "glibc",
            GLIBC,
        )
    return Machine(target.os, target.arch)


def agree_on_torch(
    requests: Requests,
) -> list[LockRequest]:
    """Choose for every lock: the newest torch that all can have, or if requested the newest of each; one Python.

    Raises:
        MachineError: if a machine can have none.
        NoBuildError: if there is none.
    """
    first = requests[0]
    if len(requests) == 1:
        _ = first.choice  # refused by its own reason
        return [first]
    newest = [request.choice.build.torch for request in requests]
    candidates = [newest]
    if not first.request.newest_per_target:
        candidates = [[torch] * len(requests) for torch in common_torches(requests)]
    for torches in candidates:
        for python in _pythons(requests):
            agreed = [
                replace(request, torch=str(torch), python=python)
                for request, torch in zip(requests, torches, strict=True)
            ]
            if not any(isinstance(request.outcome, Rejected) for request in agreed):
                return agreed
    torches_by_label = [
        f"{request.label} torch {torch}"
        for request, torch in zip(requests, newest, strict=True)
    ]
    raise NoBuildError(
        "targets-disagree",
        "no torch version supports all of these targets",
        evidence=" · ".join(torches_by_label),
        hint="Set per-target = true in [tool.gpuinstall]: each target gets its own newest torch",
    )


def pin_torch(
    requirements: Iterable[str],
    torch: str,
) -> tuple[str, ...]:
    """Replace what is asked of torch by one version, except what is asked under a marker."""
    extras = set[str]()
    others = []
    for text in requirements:
        requirement = parse_requirement(text)
        if requirement.name == "torch" and requirement.marker is None:
            extras.update(requirement.extra_names)
        else:
            others.append(text)
    name = f"torch[{','.join(sorted(extras))}]" if extras else "torch"
    return (f"{name}=={torch.partition('+')[0]}", *others)


def is_torch(requirement: str) -> bool:
    """Whether a requirement is one of torch."""
    return parse_requirement(requirement).name == "torch"


def common_torches(requests: Requests) -> list[Version]:
    """Return the torch versions that run for every request, newest first; raise what refuses one of them."""
    torches = [{build.torch for build in request.plan.runnable} for request in requests]
    return sorted(set.intersection(*torches), reverse=True)


def _pythons(requests: Requests) -> list[str]:
    """Return the Pythons to try for all: the one that is fixed, else those preferred, the settled one, the newest first."""
    first = requests[0]
    demand = parse_request(first.request, first.catalog.family, first.machine)
    if isinstance(demand.python, str):
        return [demand.python]
    released = {
        python
        for request in requests
        for build in request.plan.runnable
        for python in build.pythons
    }
    pythons = [*first.request.preferred_pythons, first.catalog.settled_python]
    pythons += sorted(released, key=minor, reverse=True)
    return list(dict.fromkeys(filter(demand.suits, pythons)))
