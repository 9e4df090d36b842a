"""The builds of a platform, each judged: a candidate, with the code that each GPU runs of it, or rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.code import Code, code_for
from gpuinstall.plan.companions import pinned, shared_pythons
from gpuinstall.plan.driver import old_compiler, runs_on_driver
from gpuinstall.plan.rules import NOT_THERE, broken_rule
from gpuinstall.plan.values import Choice, Reason, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.case import PlanContext
    from gpuinstall.plan.gpus import LeftOut


NO_CODE = ("no-code", "no-cudnn-code")
NO_DRIVER = ("driver-too-old-for-ptx", "driver-too-old")

_STAGES = (
    "other-torch",
    "other-backend",
    "not-allowed",
    *NOT_THERE,
    "no-companion",
    "glibc-too-old",
    "python-unsupported",
    "no-python",
    *NO_CODE,
    *NO_DRIVER,
)


class Candidate(NamedTuple):
    """A build that runs on at least one GPU (or on none, where none is given).

    ``codes`` are in the order of the GPUs, ``covers`` the places of those that it runs on.
    """

    build: Build
    python: str
    codes: tuple[Code | Reason, ...] = ()
    covers: tuple[int, ...] = ()

    def choice(self, case: PlanContext) -> Choice:
        """Write it as what to install, and from where."""
        index = self.build.index(case.catalog.torch_index)
        return Choice(self.build, self.python, index, pinned(self.build, self.python, case))


class NoCandidate(NamedTuple):
    """No build fits: every rejection, and the GPUs that had been left out before."""

    case: PlanContext
    rejected: tuple[Rejection, ...]
    left_out: tuple[LeftOut, ...] = ()


def judge(build: Build, case: PlanContext) -> Candidate | Rejection:
    """Apply every rule to one build."""
    verdict = judge_request(build, case)
    if isinstance(verdict, Rejection) or not case.gpus:
        return verdict
    codes = codes_of(build, case)
    covers = tuple(place for place, code in enumerate(codes) if isinstance(code, Code))
    candidate = Candidate(build, verdict.python, codes, covers)
    against = runs_on_driver(build, case) if covers else missing_code(candidate, case.gpus)
    return Rejection(build, *against) if against else candidate


def judge_request(build: Build, case: PlanContext) -> Candidate | Rejection:
    """Apply the rules that do not depend on a GPU."""
    reason = broken_rule(build, case)
    if reason is not None:
        return Rejection(build, *reason)
    python = case.python(shared_pythons(build, case))
    return Rejection(build, *python) if isinstance(python, Reason) else Candidate(build, python)


def judge_all(case: PlanContext) -> tuple[list[Candidate], list[Rejection]]:
    """Judge every CUDA build of the platform, the newest torch first."""
    candidates: list[Candidate] = []
    rejected: list[Rejection] = []
    for build in case.builds:
        if build.backend != CPU:
            verdict = judge(build, case)
            if isinstance(verdict, Candidate):
                candidates.append(verdict)
            else:
                rejected.append(verdict)
    return candidates, rejected


def closest(rejected: Iterable[Rejection]) -> Rejection | None:
    """Find the build that came closest: the newest of those that the last rule rejected."""
    return max(rejected, key=lambda found: _STAGES.index(found.code), default=None)


def preferred(candidates: list[Candidate], case: PlanContext) -> Candidate:
    """Return the best of candidates that stand in the order of the catalogue, the newest torch first."""
    newest = [candidate for candidate in candidates if candidate.build.torch == candidates[0].build.torch]
    return min(newest, key=lambda candidate: preference(candidate, case))


def preference(candidate: Candidate, case: PlanContext) -> tuple[object, ...]:
    """Sort candidates: newest torch, SASS alone, run-time compilers that know the chips, then the toolkit.

    The toolkit is the newest that is not above the driver's own CUDA, else the lowest above it.
    """
    build = candidate.build
    toolkit = build.toolkit or (0, 0)
    above = case.driver_cuda is not None and toolkit > case.driver_cuda
    return (
        case.ages[build.torch],
        any(code.how == "ptx" for code in candidate.codes if isinstance(code, Code)),
        old_compiler(build, case) is not None,
        above,
        toolkit if above else tuple(-number for number in toolkit),
    )


def missing_code(candidate: Candidate, gpus: tuple[Gpu, ...]) -> Reason | None:
    """Say for which GPU a build has no code."""
    for gpu, code in zip(gpus, candidate.codes, strict=True):
        if isinstance(code, Reason):
            return Reason(code.code, f"{code.message} ({gpu.label})")
    return None


def codes_of(build: Build, case: PlanContext) -> tuple[Code | Reason, ...]:
    """Find the code of a build that each GPU runs."""
    codes = {chip: code_for(build, chip, case.catalog.drivers, case.driver_cuda) for chip in case.chips}
    return tuple(codes[gpu.compute_capability] for gpu in case.gpus if gpu.compute_capability is not None)
