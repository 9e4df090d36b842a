"""One lock that is requested, for a target or a machine, before anything of it is chosen."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.requirement import Requirement, names_of
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog import PAIRED, Build, Catalog
from gpuinstall.lock.file.target import (
    GLIBC,
    MACOS,
    UV_MACOS,
    Target,
    uv_glibc,
)
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan import Plan, Rejected, choose

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from packaging.version import Version

    from gpuinstall.base.request import Request
    from gpuinstall.lock.file.lock import Lock
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan.values import ProgramConstraints


class LockRequest(Value):
    """One lock that is requested, before anything of it is chosen."""

    machine: Machine
    """The machine that it is for, or the one that stands for a target."""

    request: Request
    """What is resolved."""

    catalog: Catalog

    builds_here: bool = True
    """Whether what has no wheel will be built on this very machine."""

    is_of_target: bool = False
    """Whether the user names a target, and no machine."""

    written: Request | None = None
    """As the user wrote it, and as the lock records it; None: what is resolved.

    A lock that is made again has a backend that nobody named.
    """

    @classmethod
    def for_target(
        cls,
        target: Target,
        request: Request,
        catalog: Catalog,
        *,
        glibc: str = GLIBC,
        written: Request | None = None,
    ) -> LockRequest:
        """Return a lock to make for every machine that a target means.

        Args:
            target: The target.
            request: What the lock is to hold.
            catalog: The builds of torch.
            glibc: The minimum glibc.
            written: The request as the user wrote it, if he has not named the target.
        """
        return cls(
            machine_for_target(target, glibc),
            replace(request, backend=target.backend),
            catalog,
            builds_here=False,
            is_of_target=True,
            written=written,
        )

    def near(self, locks: Iterable[Lock]) -> LockRequest:
        """Return the same within the backends that locks of ours hold, as long as a build of one runs.

        Args:
            locks: Those of the environment that is changed; a request that names a backend is free of them.
        """
        tags = [Target.parse(lock.target).backend for lock in locks if lock.is_ours]
        if self.request.backend or not tags:
            return self
        narrowed = self.asking(allowed_backends=tuple(tags))
        return narrowed if narrowed.outcome.choice else self

    def asking(self, **changes: Any) -> LockRequest:
        """Return the same that resolves something else: ``changes`` are to the fields of its request."""
        return replace(
            self,
            request=replace(self.request, **changes),
            written=self.written or self.request,
        )

    @property
    def label(self) -> str:
        """The target as the user named it, or else the system."""
        machine = self.machine
        if not self.request.backend:
            return f"{machine.os}-{machine.arch}"
        return str(Target(self.request.backend, machine.os, machine.arch))

    @property
    def names_programs(self) -> bool:
        """Whether something is requested whose versions the catalogue does not pair with torch's."""
        return not names_of(self.request.requirements) <= PAIRED

    @cached_property
    def outcome(self) -> Plan | Rejected:
        """The choice for it before its programs are looked at."""
        return self.outcome_with()

    def outcome_with(
        self,
        *,
        torch: Version | None = None,
        python: str | None = None,
        programs: ProgramConstraints | None = None,
    ) -> Plan | Rejected:
        """Return the choice for its machine, or the refusal.

        Args:
            torch: The one torch to choose; None: any.
            python: The one Python; None: any.
            programs: What its programs came to.
        """
        request = replace(self.request, python=python or self.request.python)
        if torch:
            pinned = pin_torch(request.requirements, str(torch))
            request = replace(request, requirements=pinned)
        outcome = choose(self.machine, request, self.catalog, programs)
        if isinstance(outcome, Rejected) and self.is_of_target:
            # The user named a target, and no backend.
            target = str(Target(CPU.tag, self.machine.os, self.machine.arch))
            option = "--target " + target.replace(CPU.tag, r"\1")
            fix = outcome.fix and re.sub(r"--backend ([\w.]+)", option, outcome.fix)
            return replace(outcome, fix=fix)
        return outcome

    @property
    def plan(self) -> Plan:
        """The choice for it; raise what a refusal says."""
        return plan_or_raise(self.outcome, self.machine)

    def gpus(self, plan: Plan) -> Iterator[tuple[Rules, Gpu]]:
        """Yield the GPUs that run a plan's build, with their rules."""
        rules = rules_for(self.machine, self.catalog, {plan.choice.build.backend.kind})
        running = {run.index for run in plan.gpus if run.how != "none"}
        for gpu in self.machine.gpus:
            if gpu.index in running:
                yield rules, gpu

    def target(self, build: Build) -> Target:
        """Return what its lock is for: a known machine's own glibc, or one old enough for every machine that runs the build.

        Its macOS is always that old.
        """
        machine = self.machine
        macos = (UV_MACOS, build.macos or MACOS)
        return Target(
            build.backend.tag,
            machine.os,
            machine.arch,
            glibc=uv_glibc(machine.glibc or GLIBC),
            macos=max(macos, key=lambda release: int(release.split(".")[0])),
        )


def plan_or_raise(outcome: Plan | Rejected, machine: Machine) -> Plan:
    """Return a choice; raise what a refusal says.

    Args:
        outcome: The choice, or the refusal.
        machine: The machine that it was made for, by which the error is one of the machine or of the request.
    """
    if isinstance(outcome, Rejected):
        raise outcome.error(machine)
    return outcome


def machine_for_target(target: Target, glibc: str = GLIBC) -> Machine:
    """Return the machine that stands for a target: no GPU, any Python, a glibc as old as the locks are made for."""
    if target.os == "linux":
        return Machine(target.os, target.arch, "glibc", glibc)
    return Machine(target.os, target.arch)


def pin_torch(
    requirements: Iterable[Requirement],
    torch: str,
) -> tuple[Requirement, ...]:
    """Return requirements with one version of torch.

    Args:
        requirements: The requirements. One of torch with a marker stays, because it may be for another system.
        torch: The version. Its label does not count, because the backend decides it.
    """
    pin = Requirement.of("torch", f"=={torch.partition('+')[0]}")
    others = []
    for requirement in requirements:
        if requirement.name == "torch" and requirement.marker is None:
            pin = pin.narrowed(replace(requirement, clauses=""))
        else:
            others.append(requirement)
    return (pin, *others)
