"""The choice: every build is judged, the best that runs is taken, and everything else has a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.candidates import NoCandidate, judge_all, preferred
from gpuinstall.plan.case import PlanContext
from gpuinstall.plan.code import Code
from gpuinstall.plan.cover import best_cover
from gpuinstall.plan.cpu import choose_cpu
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.faults import gpu_fault, machine_fault, platform_fault
from gpuinstall.plan.gpus import asked_gpus, sort_out
from gpuinstall.plan.reasons import passed_over, reasons_for
from gpuinstall.plan.refusal import explained
from gpuinstall.plan.values import Plan, Reason, Run
from gpuinstall.plan.warnings import cuda_warnings

if TYPE_CHECKING:
    from gpuinstall.catalog.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan.candidates import Candidate
    from gpuinstall.plan.gpus import LeftOut
    from gpuinstall.request import Request


def choose(machine: Machine, request: Request, catalog: Catalog) -> Plan:
    """Choose the build for a machine, with reasons; raise UsageError for a malformed request."""

    def attempt(asked: Request) -> Plan | NoCandidate:
        demand = parse_request(asked, catalog.family, machine)
        return _attempt(PlanContext(machine, demand, catalog, asked_gpus(machine, demand.gpus)))

    plan = attempt(request)
    return plan if isinstance(plan, Plan) else explained(plan, request, attempt)


def _attempt(case: PlanContext) -> Plan | NoCandidate:
    asked = case.demand.backends
    if fault := platform_fault(case):
        return fault
    if asked == {CPU}:
        return choose_cpu(case, Reason("cpu-asked", "the CPU build was asked for"))
    if fault := machine_fault(case):
        return fault
    if case.machine.os == "macos":
        return (
            NoCandidate(case, ())
            if asked
            else choose_cpu(case, Reason("macos", "macOS has no CUDA; its build has MPS"))
        )
    return _for_the_gpus(case)


def _for_the_gpus(case: PlanContext) -> Plan | NoCandidate:
    usable, left_out = sort_out(case)
    if fault := gpu_fault(case, usable, left_out):
        return fault
    if not usable and not case.demand.backends:
        return choose_cpu(case, Reason("no-gpu", "this machine was given no NVIDIA GPU"))
    return _choose_cuda(replace(case, gpus=usable), left_out)


def _choose_cuda(case: PlanContext, left_out: tuple[LeftOut, ...]) -> Plan | NoCandidate:
    candidates, rejected = judge_all(case)
    if not candidates:
        return NoCandidate(case, tuple(rejected), left_out)
    cover = best_cover((candidate.covers for candidate in candidates), case.gpus)
    fitting = [candidate for candidate in candidates if candidate.covers == cover]
    best = preferred(fitting, case)
    rest = passed_over(best, candidates, rejected, case)
    chosen = replace(case, gpus=tuple(case.gpus[place] for place in cover))
    return Plan(
        status="partial" if left_out or len(cover) < len(case.gpus) else "ok",
        choice=best.choice(case),
        gpus=_runs(best, case, left_out),
        reasons=reasons_for(best, candidates, rest, case),
        rejected=rest,
        warnings=(*(out.reason for out in left_out), *_uncovered(best, case), *cuda_warnings(best.build, chosen)),
    )


def _runs(candidate: Candidate, case: PlanContext, left_out: tuple[LeftOut, ...]) -> tuple[Run, ...]:
    runs = [
        Run(gpu.index, code.name, code.how) if isinstance(code, Code) else Run(gpu.index, None, "none")
        for gpu, code in zip(case.gpus, candidate.codes, strict=True)
    ]
    return tuple(sorted((*runs, *(Run(out.gpu, None, "none") for out in left_out)), key=lambda run: run.index))


def _uncovered(best: Candidate, case: PlanContext) -> list[Reason]:
    return [
        Reason("gpu-left-out", f"GPU {gpu.index} ({gpu.label}) is left out: {best.build.name} has {code.message}")
        for gpu, code in zip(case.gpus, best.codes, strict=True)
        if isinstance(code, Reason)
    ]
