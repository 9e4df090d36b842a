"""The builds of a platform, each judged: rejected, or a candidate with the code that each GPU runs; their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.machine.protocol import Code
from gpuinstall.plan.companions import label_of
from gpuinstall.plan.rules import NOT_THERE, broken_rule, is_read, lists_code
from gpuinstall.plan.values import Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan.context import Codes, GpuPositions, PlanContext
    from gpuinstall.plan.values import RejectedBuild, SortKey

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
    age: int
    """The rank of its torch on the platform: 0 is the newest."""
    python: str
    codes: Codes = ()
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
                *context.terms.companions.pins(build, self.python),
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
    gpus: Sequence[Gpu],
) -> tuple[list[Candidate], list[RejectedBuild]]:
    """Return the builds that run on some of the GPUs, and those that are rejected, each in the order in which they came."""
    candidates = []
    rejected = []
    for build in builds:
        verdict = judge_build(build, context, gpus)
        if isinstance(verdict, Reason):
            rejected.append(Rejection(build, verdict))
        else:
            candidates.append(verdict)
    return candidates, rejected


def judge_build(build: Build, context: PlanContext, gpus: Sequence[Gpu]) -> Candidate | Reason:
    """Return a build as a candidate, or the first reason against it."""
    terms = context.terms
    reason = broken_rule(build, terms)
    if reason:
        return reason
    python = terms.python(terms.companions.pythons(build))
    if isinstance(python, Reason):
        return python
    codes = tuple([context.rules.code(build, gpu) for gpu in gpus])
    covers = tuple([place for place, code in enumerate(codes) if isinstance(code, Code)])
    obstacle = lists_code(build, terms) or is_read(build, context)
    if gpus and not obstacle:
        obstacle = context.rules.against_driver(build) if covers else missing_code(codes, context)
    return obstacle or Candidate(build, terms.ages[build.torch], python, codes, covers)


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
    age = candidates[0].age
    # What a maker prefers takes a while to find out.
    newest = [candidate for candidate in candidates if candidate.age == age]
    return min(newest, key=lambda candidate: preference_key(candidate, context))


def preference_key(candidate: Candidate, context: PlanContext) -> SortKey:
    """Sort candidates: the newest torch, then the backend that the request prefers, then as the maker prefers."""
    build = candidate.build
    return (
        candidate.age,
        build.backend != context.demand.preferred_backend,
        maker_key(candidate, context),
    )


def maker_key(candidate: Candidate, context: PlanContext) -> SortKey:
    """Sort candidates of one torch as the maker prefers."""
    return context.rules.preference(candidate.build.toolkit, candidate.codes, context.gpus)


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


def missing_code(codes: Codes, context: PlanContext) -> Reason | None:
    """Return for which GPU a build has no code."""
    for gpu, code in zip(context.gpus, codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, context: PlanContext) -> Codes:
    """Return the code of a build that each GPU of the context runs."""
    return tuple([context.rules.code(build, gpu) for gpu in context.gpus])


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
    distinct = set(covers)
    if context.every_position in distinct:
        return context.every_position
    return max(
        distinct,
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
