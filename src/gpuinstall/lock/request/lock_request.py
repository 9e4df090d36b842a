"""Define a request for one lock file, for a target or a machine."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import replace
from gpuinstall.catalog import PAIRED, Build, Catalog
from gpuinstall.lock.file.target import (
    GLIBC,
    MACOS,
    UV_MACOS,
    Target,
    select_uv_glibc,
)
from gpuinstall.machine.vendors import create_rules
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.demand import create_marker_values
from gpuinstall.plan.values import PlanInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from packaging.version import Version

    from gpuinstall.base.request import Request
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan.values import ProgramConstraints


class LockRequest(PlanInput):
    """A request for one lock file, before a build is selected.

    The machine may be a simulated one that represents the target.
    """

    builds_here: bool = True
    """Whether packages without a wheel are built on this machine."""

    is_backend_asked: bool = True
    """Whether the user, and not an existing lock, requests the backend."""

    @classmethod
    def for_target(
        cls,
        target: Target,
        request: Request,
        catalog: Catalog,
        *,
        glibc: str,
        is_backend_asked: bool = True,
    ) -> LockRequest:
        """Create the request for the lock file of a target.

        Args:
            target: The target.
            request: The request.
            catalog: The catalog of torch builds.
            glibc: The minimum glibc.
            is_backend_asked: Whether the user requested the target.
        """
        return cls(
            create_target_machine(target, glibc),
            replace(request, backend=target.backend, targets=(str(target),)),
            catalog,
            builds_here=False,
            is_backend_asked=is_backend_asked,
        )

    def limit_to_locked_backends(self, locks: Iterable[Lock]) -> LockRequest:
        """Limit the request to the backends of locks if one of them runs.

        Args:
            locks: The locks of the environment. A requested backend has priority.
        """
        tags = [
            Target.parse(lock.target).backend
            for lock in locks
            if lock.is_from_gpuinstall
        ]
        if self.request.backend or not tags:
            return self
        narrowed = self.with_request_changes(allowed_backends=tuple(tags))
        return narrowed if narrowed.outcome.choice else self

    def with_request_changes(self, **changes: Any) -> LockRequest:
        """Return a copy with changed fields of its request."""
        return replace(self, request=replace(self.request, **changes))

    @property
    def label(self) -> str:
        """The target, or the system if no backend is requested."""
        machine = self.machine
        if not self.request.backend:
            return f"{machine.os}-{machine.arch}"
        return str(Target(self.request.backend, machine.os, machine.arch))

    @property
    def has_programs(self) -> bool:
        """Whether packages that torch does not determine are requested."""
        return not requirement_names(self.request.requirements) <= PAIRED

    @cached_property
    def markers(self) -> Mapping[str, str]:
        """The marker values of the machine and its preferred Python."""
        return create_marker_values(self.request, self.machine, self.catalog)

    @cached_property
    def outcome(self) -> Plan | Rejected:
        """The plan before programs are inspected, or the rejection."""
        return choose(self.machine, self.request, self.catalog)

    def choose_build(
        self,
        *,
        torch: Version | None = None,
        python: str | None = None,
        programs: ProgramConstraints | None = None,
    ) -> Plan | Rejected:
        """Return the plan for the machine, or the rejection.

        Args:
            torch: The only version of torch to select; None for any version.
            python: The only version of Python to select; None for any version.
            programs: The constraints of the requested packages on torch.
        """
        if not (torch or python or programs):
            return self.outcome
        request = replace(self.request, python=python or self.request.python)
        if torch:
            pinned = pin_torch(request.requirements, str(torch))
            request = replace(request, requirements=pinned)
        return choose(self.machine, request, self.catalog, programs)

    @property
    def plan(self) -> Plan:
        """The plan; raises the error of a rejection."""
        return plan_or_raise(self.outcome, self.machine)

    def find_running_gpus(self, plan: Plan) -> Iterator[tuple[Rules, Gpu]]:
        """Yield the GPUs that run a plan's build, with their rules."""
        rules = create_rules(
            self.machine, self.catalog, {plan.choice.build.backend.kind}
        )
        for gpu in self.machine.gpus:
            if gpu.index in plan.covered_gpus:
                yield rules, gpu

    def create_target(self, build: Build) -> Target:
        """Return the target of the requested lock file.

        The glibc version is from the machine, or the oldest version that the build
        supports. The macOS version is always the oldest version.
        """
        machine = self.machine
        macos = (UV_MACOS, build.macos or MACOS)
        return Target(
            # Without a reachable CPU build, the target cpu has a GPU build.
            self.request.backend or build.backend.tag,
            machine.os,
            machine.arch,
            glibc=select_uv_glibc(machine.glibc or GLIBC),
            macos=max(macos, key=lambda release: int(release.split(".")[0])),
        )


def plan_or_raise(outcome: Plan | Rejected, machine: Machine) -> Plan:
    """Return a plan, or raise the error of a rejection.

    Args:
        outcome: The plan or the rejection.
        machine: Its machine, which may be the cause.
    """
    if isinstance(outcome, Rejected):
        raise outcome.error(machine)
    return outcome


def create_target_machine(target: Target, glibc: str) -> Machine:
    """Return a simulated machine of a target, without GPUs."""
    libc = ("glibc", glibc) if target.os == "linux" else ()
    return Machine(target.os, target.arch, *libc)


def pin_torch(
    requirements: Iterable[Requirement],
    torch: str,
) -> tuple[Requirement, ...]:
    """Return requirements with one version of torch.

    Args:
        requirements: The requirements. A torch requirement with a marker is kept,
            because it may be for another system.
        torch: The version. Its local label is ignored, because the backend sets it.
    """
    pin = Requirement.of("torch", f"=={torch.partition('+')[0]}")
    others = []
    for requirement in requirements:
        if requirement.name == "torch" and requirement.marker is None:
            pin = pin.combine_with(replace(requirement, clauses=""))
        else:
            others.append(requirement)
    return (pin, *others)
