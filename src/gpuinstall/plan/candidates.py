"""The builds of a platform, each judged: rejected, or a candidate with the code that each GPU runs; their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.plan.companions import pinned, shared_pythons
from gpuinstall.plan.rules import NOT_THERE, broken_rule, is_read
from gpuinstall.plan.values import Choice, Reason, Rejection
from gpuinstall.vendors.protocol import Code, Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.gpus import LeftOut

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


class Candidate(NamedTuple):
    """A build that runs on at least one GPU (or on none, where none is given).

    ``codes`` are in the order of the GPUs, ``covers`` the positions of those that it runs on.
    """

    build: Build
    python: str
    codes: tuple[Code | Reason, ...] = ()
    covers: GpuPositions = ()

    def choice(self, context: PlanContext) -> Choice:
        """Write it as what to install, and from where."""
        index = self.build.index(context.catalog.torch_index)
        return Choice(self.build, self.python, index, pinned(self.build, self.python, context))


class NoCandidate(NamedTuple):
    """No build fits: every rejection, and the GPUs that had been left out before."""

    context: PlanContext
    rejected: tuple[Rejection, ...]
    left_out: tuple[LeftOut, ...] = ()


def judge_build(build: Build, context: PlanContext) -> Candidate | Rejection:
    """Apply every rule to one build."""
    verdict = judge_request(build, context)
    if isinstance(verdict, Rejection) or not context.gpus:
        return verdict
    codes = codes_of(build, context)
    covers = tuple(position for position, code in enumerate(codes) if isinstance(code, Code))
    candidate = Candidate(build, verdict.python, codes, covers)
    against = context.rules.against_driver(build) if covers else missing_code(candidate, context.gpus)
    return Rejection(build, *against) if against else candidate


def judge_request(build: Build, context: PlanContext) -> Candidate | Rejection:
    """Apply the rules that do not depend on a GPU's code; what nobody has read is asked for last."""
    if reason := broken_rule(build, context):
        return Rejection(build, *reason)
    python = context.python(shared_pythons(build, context))
    if isinstance(python, Reason):
        return Rejection(build, *python)
    unread = is_read(build, context)
    return Rejection(build, *unread) if unread else Candidate(build, python)


def judge_builds(context: PlanContext) -> tuple[list[Candidate], list[Rejection]]:
    """Judge every build of the platform that is made for the maker's GPUs, the newest torch first."""
    return parted([judge_build(build, context) for build in context.builds if build.backend.kind == context.rules.kind])


def parted(verdicts: Sequence[Candidate | Rejection]) -> tuple[list[Candidate], list[Rejection]]:
    """Part the builds that run from those that were rejected."""
    candidates = [verdict for verdict in verdicts if isinstance(verdict, Candidate)]
    return candidates, [verdict for verdict in verdicts if isinstance(verdict, Rejection)]


def closest(rejected: Iterable[Rejection], rules: Rules) -> Rejection | None:
    """Find the build that came closest: the newest of those that the last rule rejected."""
    stages = (*_STAGES, *rules.code_reasons, *rules.driver_reasons)
    return max(rejected, key=lambda rejection: stages.index(rejection.code), default=None)


def preferred(candidates: list[Candidate], context: PlanContext) -> Candidate:
    """Return the best of candidates that stand in the order of the catalogue, the newest torch first."""
    newest = [candidate for candidate in candidates if candidate.build.torch == candidates[0].build.torch]
    return min(newest, key=lambda candidate: preference(candidate, context))


def preference(candidate: Candidate, context: PlanContext) -> tuple[object, ...]:
    """Sort candidates: the newest torch, then the backend that the request prefers, then as the maker prefers."""
    is_other = candidate.build.backend != context.demand.preferred_backend
    return context.ages[candidate.build.torch], is_other, merits(candidate, context)


def merits(candidate: Candidate, context: PlanContext) -> tuple[object, ...]:
    """What the maker prefers among builds of one torch."""
    return context.rules.preference(candidate.build, candidate.codes, tuple(context.architectures.values()))


def is_settled(candidate: Candidate, context: PlanContext) -> bool:
    """Say whether a build is one that the programs of the request can be had with, as far as they were looked at."""
    settled, build = context.settled, candidate.build
    return settled is None or (build.torch == settled.torch and build.backend.tag not in settled.unserved)


def missing_code(candidate: Candidate, gpus: tuple[Gpu, ...]) -> Reason | None:
    """Say for which GPU a build has no code."""
    for gpu, code in zip(gpus, candidate.codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, context: PlanContext) -> tuple[Code | Reason, ...]:
    """Find the code of a build that each GPU runs."""
    codes = {name: context.rules.code(build, gpu) for name, gpu in context.architectures.items()}
    return tuple(map(codes.__getitem__, context.architecture_names))


def runs(build: Build, context: PlanContext) -> bool:
    """Say whether every GPU of the context runs a build under this driver."""
    if not context.gpus:
        return True
    runs_code = all(isinstance(code, Code) for code in codes_of(build, context))
    return runs_code and context.rules.against_driver(build) is None


def has_code(build: Build, context: PlanContext) -> bool:
    """Say whether every GPU of the context would run a build under some driver."""
    of_the_driver = context.rules.driver_reasons
    return all(isinstance(code, Code) or code.code in of_the_driver for code in codes_of(build, context))


def gpus_to_serve(covers: Iterable[GpuPositions], context: PlanContext) -> GpuPositions:
    """Choose the GPUs to serve where no build runs on every one.

    First the set with the most capable GPU, then the one with the most memory (unknown is 0), then the one with the
    most GPUs, then the one with the lowest indices.
    """
    return max(set(covers), key=lambda cover: worth(cover, context), default=())


def worth(cover: GpuPositions, context: PlanContext) -> tuple[object, ...]:
    """Sort sets of GPUs: the better to serve, the higher."""
    chosen = [context.gpus[position] for position in cover]
    return (
        max((context.rules.rank(gpu) for gpu in chosen), default=()),
        sum(gpu.memory_mib or 0 for gpu in chosen),
        len(chosen),
        tuple(-gpu.index for gpu in chosen),
    )
