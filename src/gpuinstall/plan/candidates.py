"""Evaluate torch builds for GPUs, and sort the compatible builds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import Build
from gpuinstall.machine.protocol import Code, Preference, Rules
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import Limit
from gpuinstall.plan.rules import RULES
from gpuinstall.plan.values import RejectedBuild, SortKey

GpuPositions = tuple[int, ...]
"""Positions of GPUs in ``PlanContext.gpus``."""


class EvaluatedBuild(Value):
    """A torch build, its code for each GPU, and any reason to reject it."""

    build: Build
    gpu_code: tuple[Code | Reason, ...] = ()
    """The code that each GPU runs, or the reason why no code is compatible."""
    reason: Reason | None = None
    """The reason to reject the build, or None if the build is compatible."""

    @cached_property
    def supported_gpus(self) -> GpuPositions:
        """The GPUs for which the build contains compatible code."""
        return tuple(
            position
            for position, code in enumerate(self.gpu_code)
            if isinstance(code, Code)
        )

    @property
    def missing_code(self) -> Reason | None:
        """The reason why the build does not support a GPU, or None."""
        return next((code for code in self.gpu_code if isinstance(code, Reason)), None)

    @property
    def reason_code(self) -> str:
        """The code of the rejection reason, or an empty string."""
        return self.reason.code if self.reason else ""

    def format_rejection(self, rules: Rules) -> str:
        """Format the name of the build and the reason for its rejection."""
        name = self.build.name
        if self.reason_code in rules.driver_reasons:
            name = f"{name} does not run on {rules.driver}"
        return f"{name}: {self.reason.message if self.reason else ''}"


Obstacles = Sequence[tuple[Reason, frozenset[Limit]]]
"""All reasons to reject a build, each with the limits that cause it.

It suffices to remove one of the limits. Without limits, the machine is the cause.
"""


class NoCandidate(Value):
    """A failure to find a compatible build, without an explanation."""

    context: PlanContext
    rejected: Sequence[EvaluatedBuild] = ()


def list_rejections(evaluated: Iterable[EvaluatedBuild]) -> tuple[RejectedBuild, ...]:
    """Return the rejected builds with their reasons."""
    return tuple(
        Rejection(each.build, each.reason) for each in evaluated if each.reason
    )


def evaluate_build(build: Build, context: PlanContext) -> EvaluatedBuild:
    """Evaluate a build. The first rule that rejects it determines the reason.

    Args:
        build: The build to evaluate.
        context: The request and its machine. Without GPUs, GPU code and driver are not checked.
    """
    # Evaluate rejected builds, too: a refusal mentions the closest build.
    gpu_code = [_find_code(build, gpu, context.rules) for gpu in context.gpus]
    evaluated = EvaluatedBuild(build, tuple(gpu_code))
    return replace(evaluated, reason=next(_apply_rules(evaluated, context), None))


def _apply_rules(evaluated: EvaluatedBuild, context: PlanContext) -> Iterator[Reason]:
    """Yield the reason of each rule that rejects a build, in order."""
    for rule in RULES:
        reason = rule(evaluated.build, context)
        if reason:
            yield reason
    # Check the driver last, because the user can update a driver, but cannot add code for a chip.
    last = evaluated.missing_code
    if evaluated.supported_gpus:
        last = context.rules.find_driver_rejection(evaluated.build)
    if last:
        yield last


def list_obstacles(evaluated: EvaluatedBuild, context: PlanContext) -> Obstacles:
    """Return every reason to reject a build, in order of the rules."""
    return [
        (reason, frozenset(limits))
        for reason in _apply_rules(evaluated, context)
        for limits in _find_causes(reason.code, evaluated.build, context)
    ]


def find_cause(obstacles: Obstacles, limits: Collection[Limit]) -> Reason | None:
    """Return the first reason to reject a build with only these limits."""
    return next((why for why, causes in obstacles if causes.issubset(limits)), None)


def can_run_without(obstacles: Obstacles, limits: Collection[Limit]) -> bool:
    """Return whether no reason remains to reject a build without limits."""
    return not any(causes.isdisjoint(limits) for _, causes in obstacles)


def find_torch_limits(evaluated: EvaluatedBuild, context: PlanContext) -> list[Limit]:
    """Return the limits on torch without which a build would be compatible."""
    of_torch = [one for one in context.demand.limits if one.package == "torch"]
    obstacles = list_obstacles(evaluated, context)
    if not can_run_without(obstacles, of_torch):
        return []
    return [one for one in of_torch if any(one in causes for _, causes in obstacles)]


def _find_causes(
    code: str, build: Build, context: PlanContext
) -> Iterable[Iterable[Limit]]:
    """Return sets of limits, of which one each must be removed."""
    limits = context.demand.limits
    causes: Iterable[Iterable[Limit]] = [()]
    match code:
        case "other-torch":
            of_torch = [one for one in limits if one.package == "torch"]
            causes = [
                [one] for one in of_torch if not one.requirement.allows(build.torch)
            ] or [of_torch]
        case "other-backend":
            causes = [[one] for one in limits if one.backends - {build.backend}]
        case "other-cuda":
            causes = [[one] for one in limits if context.rejects_cuda(one, build)]
        case "not-allowed":
            causes = [[one for one in limits if one.field == "allowed_backends"]]
        case "no-companion":
            causes = _find_companion_causes(build, context)
        case "python-unsupported":
            causes = _find_python_causes(build, context)
        case "no-python" if set(build.pythons) & {*context.demand.pythons_to_try}:
            causes = [[one for one in limits if one.field == "python"]]
    return causes


def _find_python_causes(build: Build, context: PlanContext) -> list[list[Limit]]:
    """Return the Python, with each companion that lacks wheels for it."""
    limits = context.demand.limits
    python = [one for one in limits if one.field == "python"]
    causes = [python]
    if not context.demand.pythons.isdisjoint(build.pythons):
        causes = [
            [*python, one]
            for one in limits
            if one.package in context.demand.family
            and not context.compatible_pythons(build, one.requirement)
        ]
    return causes or [python]


def _find_companion_causes(
    build: Build, context: PlanContext
) -> Iterator[Sequence[Limit]]:
    """Yield the limits on each companion that is incompatible with a build."""
    companions = context.companions
    for requirement in companions.requirements:
        if companions.find_requested_versions(build, requirement) == []:
            own = [
                one for one in context.demand.limits if one.package == requirement.name
            ]
            alone = [
                [one]
                for one in own
                if companions.find_requested_versions(build, one.requirement) == []
            ]
            yield from alone or [own]


def _find_code(build: Build, gpu: Gpu, rules: Rules) -> Code | Reason:
    """Return a build's code for a GPU, or the reason why it has none."""
    code = rules.find_code(build, gpu)
    if isinstance(code, Reason):
        return Reason(code.code, f"{code.message} ({gpu.label})")
    return code


def find_closest_build(
    rejected: Iterable[EvaluatedBuild], rules: Rules
) -> EvaluatedBuild | None:
    """Return the rejected build that passed the most rules.

    If several builds passed equally many rules, return the newest of them.

    Args:
        rejected: The rejected builds, newest first.
        rules: The selection rules of the GPU vendor, which apply last.
    """
    stages = (*chain(*RULES.values()), *rules.code_reasons, *rules.driver_reasons)
    return max(rejected, key=lambda each: stages.index(each.reason_code), default=None)


def sort_best_first(
    candidates: Iterable[EvaluatedBuild], context: PlanContext
) -> list[EvaluatedBuild]:
    """Sort builds by torch version, preferred backend, and vendor rules."""

    def create_merit_key(candidate: EvaluatedBuild) -> SortKey:
        is_other = candidate.build.backend != context.demand.preferred_backend
        return is_other, create_vendor_key(candidate, context)

    # Sort twice (sorting is stable), because only the torch version is in descending order.
    by_merit = sorted(candidates, key=create_merit_key)
    return sorted(by_merit, key=lambda candidate: candidate.build.torch, reverse=True)


def select_candidates(
    candidates: Sequence[EvaluatedBuild], context: PlanContext
) -> list[EvaluatedBuild]:
    """Return the candidates for the best set of GPUs, best candidate first."""
    served = select_gpus({each.supported_gpus for each in candidates}, context)
    compatible = [each for each in candidates if each.supported_gpus == served]
    return sort_best_first(compatible, context)


def create_vendor_key(candidate: EvaluatedBuild, context: PlanContext) -> Preference:
    """Return the GPU vendor's sort key for builds of one torch version."""
    return context.rules.create_preference_key(
        candidate.build.toolkit, candidate.gpu_code, context.gpus
    )


def find_allowed_candidate(
    candidates: Iterable[EvaluatedBuild], context: PlanContext
) -> EvaluatedBuild | None:
    """Return the first candidate, or the one that resolving selected."""
    constraints = context.program_constraints
    for candidate in candidates:
        if constraints is None or candidate.build == constraints.build:
            return candidate
    return None


def select_gpus(choices: Iterable[GpuPositions], context: PlanContext) -> GpuPositions:
    """Select the best set of GPUs that one build can support.

    Sets of GPUs are compared by their most capable GPU, total memory (0 if unknown), number of GPUs, and lowest indices.
    The set of all GPUs always ranks first.
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
