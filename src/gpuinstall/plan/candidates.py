"""The builds of a platform, each judged: it runs on some GPUs, or why not; and the order of those that run."""

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
"""A set of GPUs, by their positions among those that were judged for."""


class JudgedBuild(Value):
    """A build, what each GPU runs of it, and why it is not taken."""

    build: Build
    codes: tuple[Code | Reason, ...] = ()
    """What each GPU runs of it, or why it runs nothing."""
    reason: Reason | None = None
    """Why it is not taken; None: it runs on at least one GPU, or none is given."""

    @cached_property
    def served_gpus(self) -> GpuPositions:
        """The GPUs that it has code for."""
        return tuple(
            place for place, code in enumerate(self.codes) if isinstance(code, Code)
        )

    @property
    def missing(self) -> Reason | None:
        """Why the first GPU that it has no code for runs nothing of it."""
        return next((code for code in self.codes if isinstance(code, Reason)), None)

    @property
    def code(self) -> str:
        """The code of the reason against it; empty if it is taken."""
        return self.reason.code if self.reason else ""

    @property
    def named_reason(self) -> str:
        """Its name with the reason against it."""
        message = self.reason.message if self.reason else ""
        return f"{self.build.name}: {message}"


class NoCandidate(Value):
    """A request for which every build was rejected: the request, or the machine, has yet to be named as the cause."""

    context: PlanContext
    rejected: Sequence[JudgedBuild] = ()


def rejections(judged: Iterable[JudgedBuild]) -> tuple[RejectedBuild, ...]:
    """Return the builds that have a reason against them, as plans show them."""
    return tuple(Rejection(each.build, each.reason) for each in judged if each.reason)


def judge_build(
    build: Build,
    context: PlanContext,
    gpus: Sequence[Gpu],
) -> JudgedBuild:
    """Judge a build: the first rule that it breaks is the reason against it.

    Args:
        build: The build.
        context: What is requested, and of which machine.
        gpus: Those that have to run it; none: only the rules that ask for no GPU are asked.
    """
    # Also of a build that a rule rejects: what its GPUs would run tells how close it came.
    codes = tuple([context.rules.code(build, gpu) for gpu in gpus])
    judged = JudgedBuild(build, codes)
    for rule in RULES:
        reason = rule(build, context)
        if reason:
            return replace(judged, reason=reason)
    if not gpus:
        return judged
    # The driver comes last: another one would help, and nothing helps a chip that has no code.
    if judged.served_gpus:
        return replace(judged, reason=context.rules.against_driver(build))
    return replace(judged, reason=missing_code(judged, gpus))


def missing_code(judged: JudgedBuild, gpus: Sequence[Gpu]) -> Reason | None:
    """Return for which GPU a build has no code."""
    for gpu, code in zip(gpus, judged.codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def closest(rejected: Iterable[JudgedBuild], rules: Rules) -> JudgedBuild | None:
    """Return the build that came closest: the newest of those that the last rule rejected.

    Args:
        rejected: Builds with a reason, the newest first.
        rules: The maker's, whose reasons come after those of every other rule.
    """
    stages = (*chain(*RULES.values()), *rules.code_reasons, *rules.driver_reasons)
    return max(
        rejected,
        key=lambda judged: stages.index(judged.code),
        default=None,
    )


def best_first(
    candidates: Iterable[JudgedBuild],
    context: PlanContext,
) -> list[JudgedBuild]:
    """Sort builds: the newest torch, then the backend that the request prefers, then as the maker prefers."""

    def merit_key(candidate: JudgedBuild) -> SortKey:
        is_other = candidate.build.backend != context.demand.preferred_backend
        return is_other, maker_key(candidate, context)

    # Twice, because one goes up and the other down: the second keeps the order of the first where torch is the same.
    by_merit = sorted(candidates, key=merit_key)
    return sorted(by_merit, key=lambda candidate: candidate.build.torch, reverse=True)


def maker_key(candidate: JudgedBuild, context: PlanContext) -> Preference:
    """Sort candidates of one torch as the maker prefers."""
    return context.rules.preference(
        candidate.build.toolkit, candidate.codes, context.gpus
    )


def first_for_programs(
    candidates: Iterable[JudgedBuild],
    context: PlanContext,
) -> JudgedBuild | None:
    """Return the first candidate that the programs of the request go with, as far as they were resolved."""
    constraints = context.program_constraints
    for candidate in candidates:
        if constraints is None:
            return candidate
        build = candidate.build
        if (
            build.torch == constraints.torch
            and build.backend.tag not in constraints.unserved
        ):
            return candidate
    return None


def gpus_to_serve(
    choices: Iterable[GpuPositions], context: PlanContext
) -> GpuPositions:
    """Return the GPUs to serve: the best of some sets.

    It is the set with the most capable GPU, then the one with the most memory (unknown is 0), then the one with the most
    GPUs, then the one with the lowest indices: all, if a set has all.
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
