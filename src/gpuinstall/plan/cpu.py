"""The CPU build: where no NVIDIA GPU was given, on macOS, or where it is asked for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.candidates import Candidate, NoCandidate, judge_request
from gpuinstall.plan.reasons import newest_reason, older
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, Reason, Rejection, Run
from gpuinstall.plan.warnings import cpu_warnings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog.build import Build
    from gpuinstall.plan.case import PlanContext


def choose_cpu(case: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Choose the newest build without CUDA; where no source has one, the default index's CUDA build."""
    candidates, rejected = _judged((build for build in case.builds if build.backend == CPU), case)
    if not candidates and all(rejection.code in {*NOT_THERE, "other-torch", "no-companion"} for rejection in rejected):
        anything = replace(case, demand=case.demand._replace(backends=frozenset()))
        candidates, _ = _judged((build for build in case.builds if build.on_default_index), anything)
    if not candidates:
        return NoCandidate(case, tuple(rejected))
    best, *others = candidates
    passed = {id(found.build): found for found in (*rejected, *(older(other, best) for other in others))}
    return Plan(
        status="cpu",
        choice=best.choice(case),
        gpus=tuple(Run(gpu.index, None, "none") for gpu in case.gpus),
        reasons=(why, newest_reason(best, rejected, case)),
        rejected=tuple(
            passed.get(id(build)) or Rejection(build, *why) for build in case.builds if build is not best.build
        ),
        warnings=cpu_warnings(best.build, why, case),
    )


def _judged(builds: Iterable[Build], case: PlanContext) -> tuple[list[Candidate], list[Rejection]]:
    verdicts = [judge_request(build, case) for build in builds]
    candidates = [verdict for verdict in verdicts if isinstance(verdict, Candidate)]
    return candidates, [verdict for verdict in verdicts if isinstance(verdict, Rejection)]
