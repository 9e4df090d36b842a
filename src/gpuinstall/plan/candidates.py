"""Evaluation of builds for GPUs, and the order of compatible builds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain

from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import Build
from gpuinstall.machine.protocol import Code, Preference, Rules
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.rules import RULES
from gpuinstall.plan.values import RejectedBuild, SortKey

GpuPositions = tuple[int, ...]
"""A set of GPUs, as positions in the list of the context."""


class EvaluatedBuild(Value):
    """Build with the code that each GPU runs, or the reason against it."""

    build: Build
    gpu_code: tuple[Code | Reason, ...] = ()
    """For each GPU, the code that it runs, or the reason why there is none."""
    reason: Reason | None = None
    """The reason against it; None if a GPU runs it, or there is no GPU."""

    @cached_property
    def served_gpus(self) -> GpuPositions:
        """The GPUs that it has code for."""
        return tuple(
            position
            for position, code in enumerate(self.gpu_code)
            if isinstance(code, Code)
        )

    @property
    def lack(self) -> Reason | None:
        """The reason of the first GPU without code."""
        return next((code for code in self.gpu_code if isinstance(code, Reason)), None)

    @property
    def reason_code(self) -> str:
        """The code of the reason against it; empty if there is none."""
        return self.reason.code if self.reason else ""

    @property
    def named_reason(self) -> str:
        """Its name with the reason against it."""
        message = self.reason.message if self.reason else ""
        return f"{self.build.name}: {message}"


class NoCandidate(Value):
    """Request without a compatible build, before its cause is determined."""

    context: PlanContext
    rejected: Sequence[EvaluatedBuild] = ()


def rejections(evaluated: Iterable[EvaluatedBuild]) -> tuple[RejectedBuild, ...]:
    """Return the builds that have a reason against them."""
    return tuple(
        Rejection(each.build, each.reason) for each in evaluated if each.reason
    )


def evaluate(build: Build, context: PlanContext) -> EvaluatedBuild:
    """Apply the rules to a build. The first that fails is the reason.

    Args:
        build: The build.
        context: The request and its machine. Without GPUs, the rules about code and driver do not apply.
    """
    # A rejected build needs them too: they show how close it came.
    gpu_code = [_code(build, gpu, context.rules) for gpu in context.gpus]
    evaluated = EvaluatedBuild(build, tuple(gpu_code))
    for rule in RULES:
        reason = rule(build, context)
        if reason:
            return replace(evaluated, reason=reason)
    if not context.gpus:
        return evaluated
    # The driver is last: another driver helps, but nothing helps a chip without code.
    if evaluated.served_gpus:
        return replace(evaluated, reason=context.rules.against_driver(build))
    return replace(evaluated, reason=evaluated.lack)


def _code(build: Build, gpu: Gpu, rules: Rules) -> Code | Reason:
    """Return the code that a GPU runs, or the reason with the GPU's name."""
    code = rules.code(build, gpu)
    if isinstance(code, Reason):
        return Reason(code.code, f"{code.message} ({gpu.label})")
    return code


def closest(rejected: Iterable[EvaluatedBuild], rules: Rules) -> EvaluatedBuild | None:
    """Return the newest build among those that passed the most rules.

    Args:
        rejected: Builds with a reason, newest first.
        rules: The vendor's rules, which apply after all others.
    """
    stages = (*chain(*RULES.values()), *rules.code_reasons, *rules.driver_reasons)
    return max(rejected, key=lambda each: stages.index(each.reason_code), default=None)


def best_first(
    candidates: Iterable[EvaluatedBuild], context: PlanContext
) -> list[EvaluatedBuild]:
    """Sort builds by torch, the request's preference, and the vendor's."""

    def merit_key(candidate: EvaluatedBuild) -> SortKey:
        is_other = candidate.build.backend != context.demand.preferred_backend
        return is_other, vendor_key(candidate, context)

    # Two stable sorts, because only torch is in descending order.
    by_merit = sorted(candidates, key=merit_key)
    return sorted(by_merit, key=lambda candidate: candidate.build.torch, reverse=True)


def vendor_key(candidate: EvaluatedBuild, context: PlanContext) -> Preference:
    """Return the vendor's sort key among the builds of one torch."""
    return context.rules.preference(
        candidate.build.toolkit, candidate.gpu_code, context.gpus
    )


def first_for_programs(
    candidates: Iterable[EvaluatedBuild], context: PlanContext
) -> EvaluatedBuild | None:
    """Return the first candidate that the resolved programs allow."""
    constraints = context.program_constraints
    for candidate in candidates:
        if constraints is None or constraints.allow(candidate.build):
            return candidate
    return None


def gpus_to_serve(
    choices: Iterable[GpuPositions], context: PlanContext
) -> GpuPositions:
    """Return the best of some sets of GPUs.

    It has the most capable GPU, then the most memory (unknown is 0), then the most GPUs, then the lowest indices. A set
    of all GPUs is always the best.
    """

    def key(positions: GpuPositions) -> SortKey:
        gpus = [context.gpus[position] for position in positions]
        return (
            max(map(context.rules.rank, gpus), default=()),
            sum(gpu.memory_mib or 0 for gpu in gpus),
            len(gpus),
            tuple(-gpu.index for gpu in gpus),
        )

    return max(choices, key=key, default=())
