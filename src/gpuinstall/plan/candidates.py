"""The builds of a platform, each judged: rejected, or a candidate with the code that each GPU runs; their order."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.machine.protocol import Code
from gpuinstall.plan.companions import label_of
from gpuinstall.plan.rules import NOT_THERE, broken_rule, is_read, lists_code
from gpuinstall.plan.values import Choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuinstall.catalog import Build
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan.context import Codes, GpuPositions, PlanContext, Terms
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


class JudgedBuild(NamedTuple):
    """A build of a platform, with what the terms of a request say of it."""

    build: Build
    age: int
    """The rank of its torch on the platform: 0 is the newest."""
    python: str | Reason
    """The Python to install it for, or why there is none to install it for."""


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


class GpuCover(NamedTuple):
    """What the GPUs and their driver make of a build."""

    codes: Codes = ()
    covers: GpuPositions = ()
    """The GPUs that it runs on."""
    obstacle: Reason | None = None


class NoCandidate(NamedTuple):
    """A request for which every build was rejected: the request, or the machine, has yet to be named as the cause."""

    context: PlanContext
    rejected: tuple[RejectedBuild, ...]


@lru_cache
def judged_builds(terms: Terms) -> tuple[JudgedBuild, ...]:
    """Return the builds of a platform, the newest torch first, judged once for all GPUs and drivers."""
    judged = []
    for build in terms.builds:
        python = _python_for(build, terms)
        judged.append(JudgedBuild(build, terms.ages[build.torch], python))
    return tuple(judged)


def _python_for(build: Build, terms: Terms) -> str | Reason:
    reason = broken_rule(build, terms)
    if reason:
        return reason
    python = terms.python(terms.companions.pythons(build))
    if isinstance(python, Reason):
        return python
    return lists_code(build, terms) or python


def judge_builds(
    builds: Iterable[JudgedBuild],
    context: PlanContext,
    cover_of: Callable[[Build], GpuCover],
) -> tuple[list[Candidate], list[RejectedBuild]]:
    """Return the builds that run and those that are rejected, each in the order in which they came."""
    candidates = []
    rejected = []
    for build, age, python in builds:
        if isinstance(python, Reason):
            rejected.append(Rejection(build, python))
            continue
        cover = cover_of(build)
        obstacle = is_read(build, context) or cover.obstacle
        if obstacle:
            rejected.append(Rejection(build, obstacle))
        else:
            candidates.append(Candidate(build, age, python, cover.codes, cover.covers))
    return candidates, rejected


def judge_of(context: PlanContext) -> Callable[[Build], GpuCover]:
    """Return the function that applies the rules of the GPUs and their driver, to builds of one make once."""
    make_of = context.rules.make
    by_make: dict[object, GpuCover] = {}

    def cover_of(build: Build) -> GpuCover:
        make = make_of(build)
        if make not in by_make:
            by_make[make] = _judge(build, context)
        return by_make[make]

    return cover_of


def _judge(build: Build, context: PlanContext) -> GpuCover:
    if not context.gpus:
        return GpuCover()
    codes = codes_of(build, context)
    covers = context.positions_with(codes)
    obstacle = context.rules.against_driver(build) if covers else missing_code(codes, context)
    return GpuCover(codes, covers, obstacle)


def cover_nothing(_build: Build) -> GpuCover:
    """Return that no GPU is to be covered."""
    return GpuCover()


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
        context.preference(build.toolkit, candidate.codes),
    )


def maker_key(candidate: Candidate, context: PlanContext) -> SortKey:
    """Sort candidates of one torch as the maker prefers."""
    return context.preference(candidate.build.toolkit, candidate.codes)


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
    for gpu, code in zip(context.architectures.values(), codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, context: PlanContext) -> Codes:
    """Return the code of a build that each architecture of the context runs: machines have many GPUs of few."""
    code = context.rules.code
    return tuple([code(build, gpu) for gpu in context.architectures.values()])


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
