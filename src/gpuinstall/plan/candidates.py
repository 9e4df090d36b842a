"""The builds of a platform, each judged: rejected, or a candidate with the code that each GPU runs; their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.finding import Reason, Rejection
from gpuinstall.plan.companions import label_of
from gpuinstall.plan.rules import NOT_THERE, broken_rule, is_read
from gpuinstall.plan.values import Choice
from gpuinstall.vendors.protocol import Code, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.context import PlanContext

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
        build, demand = self.build, context.demand
        torch = f"torch{demand.extras}=={build.torch}{label_of(build)}"
        requirements = (torch, *context.companions.pins(build, self.python), *demand.others)
        return Choice(build, self.python, build.index(context.catalog.torch_index), requirements)


class NoCandidate(NamedTuple):
    """A request for which every build was rejected: the request, or the machine, has yet to be named as the cause."""

    context: PlanContext
    rejected: tuple[Rejection[Build], ...]


def judge_builds(context: PlanContext) -> tuple[list[Candidate], list[Rejection[Build]]]:
    """Judge every build of the platform that is made for the maker's GPUs, the newest torch first."""
    kind = context.rules.kind
    return partition(
        [judge_build(build, context) for build in context.builds if build.backend.kind == kind]
    )


def judge_build(build: Build, context: PlanContext) -> Candidate | Rejection[Build]:
    """Apply every rule to one build."""
    verdict = judge_request(build, context)
    if isinstance(verdict, Rejection) or not context.gpus:
        return verdict
    codes = codes_of(build, context)
    covers = tuple(position for position, code in enumerate(codes) if isinstance(code, Code))
    candidate = Candidate(build, verdict.python, codes, covers)
    against = (
        context.rules.against_driver(build) if covers else missing_code(candidate, context.gpus)
    )
    return Rejection(build, against) if against else candidate


def judge_request(build: Build, context: PlanContext) -> Candidate | Rejection[Build]:
    """Apply the rules that do not depend on a GPU's code, last the one on builds that were never read."""
    if reason := broken_rule(build, context):
        return Rejection(build, reason)
    python = context.python(context.companions.pythons(build))
    if isinstance(python, Reason):
        return Rejection(build, python)
    unread = is_read(build, context)
    return Rejection(build, unread) if unread else Candidate(build, python)


def partition(
    verdicts: Sequence[Candidate | Rejection[Build]],
) -> tuple[list[Candidate], list[Rejection[Build]]]:
    """Separate the builds that run from those that were rejected."""
    candidates = [verdict for verdict in verdicts if isinstance(verdict, Candidate)]
    return candidates, [verdict for verdict in verdicts if isinstance(verdict, Rejection)]


def closest(rejected: Iterable[Rejection[Build]], rules: Rules) -> Rejection[Build] | None:
    """Return the build that came closest: the newest of those that the last rule rejected."""
    stages = (*_STAGES, *rules.code_reasons, *rules.driver_reasons)
    return max(rejected, key=lambda rejection: stages.index(rejection.reason.code), default=None)


def preferred(candidates: list[Candidate], context: PlanContext) -> Candidate:
    """Return the best of candidates that stand in the order of the catalogue, the newest torch first."""
    newest = [
        candidate for candidate in candidates if candidate.build.torch == candidates[0].build.torch
    ]
    return min(newest, key=lambda candidate: preference_key(candidate, context))


def preference_key(candidate: Candidate, context: PlanContext) -> tuple[object, ...]:
    """Sort candidates: the newest torch, then the backend that the request prefers, then as the maker prefers."""
    is_other = candidate.build.backend != context.demand.preferred_backend
    return context.ages[candidate.build.torch], is_other, maker_key(candidate, context)


def maker_key(candidate: Candidate, context: PlanContext) -> tuple[object, ...]:
    """Sort candidates of one torch as the maker prefers."""
    return context.rules.preference(
        candidate.build, candidate.codes, tuple(context.architectures.values())
    )


def is_settled(candidate: Candidate, context: PlanContext) -> bool:
    """Whether the programs of the request go with a build, as far as they were resolved."""
    settled, build = context.settled, candidate.build
    return settled is None or (
        build.torch == settled.torch and build.backend.tag not in settled.unserved
    )


def missing_code(candidate: Candidate, gpus: tuple[Gpu, ...]) -> Reason | None:
    """Return for which GPU a build has no code."""
    for gpu, code in zip(gpus, candidate.codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, context: PlanContext) -> tuple[Code | Reason, ...]:
    """Return the code of a build that each GPU runs."""
    codes = {name: context.rules.code(build, gpu) for name, gpu in context.architectures.items()}
    return tuple(map(codes.__getitem__, context.architecture_names))


def runs(build: Build, context: PlanContext) -> bool:
    """Whether every GPU of the context runs a build under this driver."""
    if not context.gpus:
        return True
    runs_code = all(isinstance(code, Code) for code in codes_of(build, context))
    return runs_code and context.rules.against_driver(build) is None


def has_code(build: Build, context: PlanContext) -> bool:
    """Whether every GPU of the context would run a build under some driver."""
    driver_reasons = context.rules.driver_reasons
    return all(
        isinstance(code, Code) or code.code in driver_reasons for code in codes_of(build, context)
    )


def gpus_to_serve(covers: Iterable[GpuPositions], context: PlanContext) -> GpuPositions:
    """Return the GPUs to serve if no build runs on every one.

    First the set with the most capable GPU, then the one with the most memory (unknown is 0), then the one with the
    most GPUs, then the one with the lowest indices.
    """
    return max(set(covers), key=lambda cover: gpus_key(cover, context), default=())


def gpus_key(cover: GpuPositions, context: PlanContext) -> tuple[object, ...]:
    """Sort sets of GPUs: the better to serve, the higher."""
    chosen = [context.gpus[position] for position in cover]
    return (
        max((context.rules.rank(gpu) for gpu in chosen), default=()),
        sum(gpu.memory_mib or 0 for gpu in chosen),
        len(chosen),
        tuple(-gpu.index for gpu in chosen),
    )
