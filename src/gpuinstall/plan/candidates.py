"""The builds of a platform, each judged: rejected, or a candidate with the code that each GPU runs; their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.finding import Reason, Rejection
from gpuinstall.plan.companions import label_of
from gpuinstall.plan.rules import NOT_THERE, broken_rule, is_read
from gpuinstall.plan.values import Choice
from gpuinstall.vendors.protocol import Code, Rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.values import RejectedBuild, SortKey

GpuPositions = tuple[int, ...]
"""A set of GPUs, by their positions among those of the context."""

_STAGES = (
    "other-torch",
    "other-backend",
    "other-cuda",
    "not-allowed",
    *NOT_THERE,
    "no-companion",
    "glibc-too-old",
    "python-unsupported",
    "no-python",
)
"""The codes of the rules that do not depend on a GPU, in their order."""


class Candidate(NamedTuple):
    """A build that runs on at least one GPU (or on none, if none is given)."""

    build: Build
    python: str
    codes: tuple[Code | Reason, ...] = ()
    """What each GPU runs of it, or why it runs nothing, in the order of the GPUs."""

    covers: GpuPositions = ()
    """The GPUs that it runs on."""

    def choice(self, context: PlanContext) -> Choice:
        """Return what to install, and from where."""
        build = self.build
        demand = context.demand
        return Choice(
            build,
            self.python,
            index=build.index(context.catalog.torch_index),
            requirements=(
                f"torch{demand.extras}=={build.torch}{label_of(build)}",
                *context.companions.pins(build, self.python),
                *demand.others,
            ),
        )


class NoCandidate(NamedTuple):
    """A request for which every build was rejected: the request, or the machine, has yet to be named as the cause."""

    context: PlanContext
    rejected: tuple[RejectedBuild, ...]


def judge_builds(
    builds: Iterable[Build],
    context: PlanContext,
    judge_one: Callable[[Build, PlanContext], Candidate | RejectedBuild],
) -> tuple[list[Candidate], list[RejectedBuild]]:
    """Return the builds that run and those that are rejected, each in the order in which they came."""
    candidates = []
    rejected = []
    for build in builds:
        verdict = judge_one(build, context)
        if isinstance(verdict, Candidate):
            candidates.append(verdict)
        else:
            rejected.append(verdict)
    return candidates, rejected


def judge_build(build: Build, context: PlanContext) -> Candidate | RejectedBuild:
    """Apply every rule to one build."""
    verdict = judge_request(build, context)
    if isinstance(verdict, Rejection) or not context.gpus:
        return verdict
    codes = codes_of(build, context)
    covers = _covered_positions(codes)
    candidate = Candidate(build, verdict.python, codes, covers)
    if covers:
        obstacle = context.rules.against_driver(build)
    else:
        obstacle = missing_code(candidate, context.gpus)
    if obstacle:
        return Rejection(build, obstacle)
    return candidate


def _covered_positions(codes: tuple[Code | Reason, ...]) -> GpuPositions:
    first = codes[0]
    # Most machines have GPUs of one architecture.
    if codes.count(first) == len(codes):
        return tuple(range(len(codes))) if isinstance(first, Code) else ()
    covers = []
    for position, code in enumerate(codes):
        if isinstance(code, Code):
            covers.append(position)
    return tuple(covers)


def judge_request(build: Build, context: PlanContext) -> Candidate | RejectedBuild:
    """Apply the rules that do not depend on a GPU's code, last the one on builds that were never read."""
    reason = broken_rule(build, context)
    if reason:
        return Rejection(build, reason)
    python = context.python(context.companions.pythons(build))
    if isinstance(python, Reason):
        return Rejection(build, python)
    reason = is_read(build, context)
    if reason:
        return Rejection(build, reason)
    return Candidate(build, python)


def closest(rejected: Iterable[RejectedBuild], rules: Rules) -> RejectedBuild | None:
    """Return the build that came closest: the newest of those that the last rule rejected."""
    stages = (*_STAGES, *rules.code_reasons, *rules.driver_reasons)
    return max(
        rejected,
        key=lambda rejection: stages.index(rejection.reason.code),
        default=None,
    )


def preferred(candidates: list[Candidate], context: PlanContext) -> Candidate:
    """Return the best of candidates that stand in the order of the catalogue, the newest torch first."""
    torch = candidates[0].build.torch
    # What a maker prefers takes a while to find out.
    newest = [candidate for candidate in candidates if candidate.build.torch == torch]
    return min(newest, key=lambda candidate: preference_key(candidate, context))


def preference_key(candidate: Candidate, context: PlanContext) -> SortKey:
    """Sort candidates: the newest torch, then the backend that the request prefers, then as the maker prefers."""
    build = candidate.build
    return (
        context.ages[build.torch],
        build.backend != context.demand.preferred_backend,
        maker_key(candidate, context),
    )


def maker_key(candidate: Candidate, context: PlanContext) -> SortKey:
    """Sort candidates of one torch as the maker prefers."""
    gpus = tuple(context.architectures.values())
    return context.rules.preference(candidate.build, candidate.codes, gpus)


def first_for_programs(candidates: Iterable[Candidate], context: PlanContext) -> Candidate | None:
    """Return the first candidate that the programs of the request go with, as far as they were resolved."""
    constraints = context.program_constraints
    for candidate in candidates:
        if constraints is None:
            return candidate
        build = candidate.build
        if build.torch == constraints.torch and build.backend.tag not in constraints.unserved:
            return candidate
    return None


def missing_code(candidate: Candidate, gpus: tuple[Gpu, ...]) -> Reason | None:
    """Return for which GPU a build has no code."""
    for gpu, code in zip(gpus, candidate.codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, context: PlanContext) -> tuple[Code | Reason, ...]:
    """Return the code of a build that each GPU runs."""
    # Machines have many GPUs of few architectures.
    codes = {}
    for name, gpu in context.architectures.items():
        codes[name] = context.rules.code(build, gpu)
    return tuple(map(codes.__getitem__, context.architecture_names))


def runs(build: Build, context: PlanContext) -> bool:
    """Whether every GPU of the context runs a build under this driver."""
    if not context.gpus:
        return True
    if context.rules.against_driver(build):
        return False
    return all(isinstance(code, Code) for code in codes_of(build, context))


def has_code(build: Build, context: PlanContext) -> bool:
    """Whether every GPU of the context would run a build under some driver."""
    for code in codes_of(build, context):
        if isinstance(code, Reason) and code.code not in context.rules.driver_reasons:
            return False
    return True


def gpus_to_serve(covers: Iterable[GpuPositions], context: PlanContext) -> GpuPositions:
    """Return the GPUs to serve if no build runs on every one: the best of some sets by ``gpus_key``."""
    return max(
        set(covers),
        key=lambda cover: gpus_key(cover, context),
        default=(),
    )


def gpus_key(cover: Iterable[int], context: PlanContext) -> SortKey:
    """Sort sets of GPUs, the better to serve the higher.

    First the set with the most capable GPU, then the one with the most memory (unknown is 0), then the one with the
    most GPUs, then the one with the lowest indices.
    """
    gpus = [context.gpus[position] for position in cover]
    return (
        max(map(context.rules.rank, gpus), default=()),
        sum(gpu.memory_mib or 0 for gpu in gpus),
        len(gpus),
        tuple(-gpu.index for gpu in gpus),
    )
