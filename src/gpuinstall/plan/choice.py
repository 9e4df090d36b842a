"""Select the best build that runs, with a reason for each other build."""

from __future__ import annotations

from functools import partial

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Catalog
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.candidates import (
    JudgedBuild,
    NoCandidate,
    best_first,
    first_for_programs,
    gpus_to_serve,
    judge_build,
    rejections,
)
from gpuinstall.plan.companions import label_of
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.gpus import (
    gpu_fault,
    machine_fault,
    requested_gpus,
    with_usable_gpus,
)
from gpuinstall.plan.reasons import (
    cpu_warnings,
    gpu_warnings,
    newest_reasons,
    pass_over,
    reasons_for,
)
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import (
    WITHOUT_GPU,
    Choice,
    Plan,
    ProgramConstraints,
    Rejected,
    Run,
)

_NO_FAULT_OF_THE_MACHINE = {*NOT_THERE, "other-torch", "no-companion"}


def choose(
    machine: Machine,
    request: Request,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None = None,
) -> Plan | Rejected:
    """Return the build for a machine, with reasons, or why there is none.

    Args:
        machine: The machine to choose for.
        request: What is requested.
        catalog: The builds to choose from.
        program_constraints: What the programs of the request came to, once they were resolved; else the newest torch is chosen.

    Raises:
        UsageError: The request is malformed.
    """
    attempt = partial(
        _attempt,
        machine=machine,
        catalog=catalog,
        program_constraints=program_constraints,
    )
    outcome = attempt(request)
    if isinstance(outcome, Plan):
        return outcome
    # Most plans refuse nothing.
    from gpuinstall.plan.refusal import explain, with_cpu_build

    if isinstance(outcome, NoCandidate):
        outcome = explain(outcome, request, attempt)
    return with_cpu_build(outcome, request, attempt)


def _attempt(
    request: Request,
    *,
    machine: Machine,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None,
) -> Plan | Rejected | NoCandidate:
    """Plan a request without explaining a refusal."""
    demand = parse_request(request, catalog.family, machine)
    rules = rules_for(machine, catalog, {backend.kind for backend in demand.backends})
    context = PlanContext(
        machine,
        demand,
        rules,
        gpus=requested_gpus(machine, request.gpus, rules),
        program_constraints=program_constraints,
    )
    fault = machine_fault(context)
    if fault:
        return fault
    # A faulty GPU does not prevent the CPU build.
    if demand.backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    # macOS has builds only for Apple's GPUs. With any other GPU, or none, the CPU build is selected.
    if machine.os == "macos" and rules.kind not in {
        each.backend.kind for each in context.builds
    }:
        if demand.backends:
            return NoCandidate(context)
        return _choose_cpu(
            context, Reason("macos", "macOS has no CUDA; its build uses MPS")
        )
    usable = with_usable_gpus(context)
    fault = gpu_fault(context, usable)
    if fault or usable.gpus or demand.backends:
        return fault or _choose_for_gpus(usable)
    elsewhere = "gpuinstall lock --target cu126   # for machines that have one"
    message = f"there is no {rules.name} GPU here: torch runs on the CPU; {elsewhere}"
    return _choose_cpu(context, Reason(WITHOUT_GPU, message))


def _choose_for_gpus(context: PlanContext) -> Plan | NoCandidate:
    builds = [
        build for build in context.builds if build.backend.kind == context.rules.kind
    ]
    judged = [judge_build(build, context, context.gpus) for build in builds]
    candidates = [each for each in judged if each.reason is None]
    served = gpus_to_serve({each.served_gpus for each in candidates}, context)
    fitting = best_first(
        [each for each in candidates if each.served_gpus == served], context
    )
    best = first_for_programs(fitting, context)
    if best is None:
        return NoCandidate(context, [each for each in judged if each.reason])
    passed_over = pass_over(judged, best, context)
    runs = [Run(index) for index in context.left_out]
    left_out = [fault.reason for fault in context.left_out.values()]
    for gpu, code in zip(context.gpus, best.codes, strict=True):
        if isinstance(code, Code):
            runs.append(Run(gpu.index, code.name, code.how))
            continue
        runs.append(Run(gpu.index))
        message = f"GPU {gpu.index} ({gpu.label}) is left out: {best.build.name} has {code.message}"
        left_out.append(Reason("gpu-left-out", message))
    return Plan(
        status="partial" if left_out else "ok",
        choice=_choice(best, context),
        gpus=tuple(sorted(runs, key=lambda run: run.index)),
        reasons=tuple(reasons_for(best, fitting, candidates, passed_over, context)),
        rejected=rejections(passed_over),
        warnings=(*left_out, *gpu_warnings(best.build, context.with_gpus_at(served))),
        runnable=tuple(each.build for each in fitting),
    )


def _choose_cpu(context: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Select the newest CPU build, else the default index's GPU build."""
    judged = [judge_build(build, context, gpus=()) for build in context.builds]
    considered = [each for each in judged if each.build.backend == CPU]
    candidates = [each for each in considered if each.reason is None]
    codes = {each.code for each in considered}
    # A requested CPU build is not replaced.
    if (
        not (candidates or context.demand.backends)
        and codes <= _NO_FAULT_OF_THE_MACHINE
    ):
        fitting = [each for each in judged if each.reason is None]
        candidates = [each for each in fitting if each.build.on_default_index]
    best = first_for_programs(candidates, context)
    if best is None:
        return NoCandidate(context, considered)
    considered_builds = {each.build for each in (*considered, *candidates)}
    judged = [
        each if each.build in considered_builds else replace(each, reason=why)
        for each in judged
    ]
    passed_over = pass_over(judged, best, context)
    ordered = [each for each in passed_over if each.reason != why]
    return Plan(
        status="cpu",
        choice=_choice(best, context),
        gpus=tuple(Run(gpu.index) for gpu in context.gpus),
        reasons=(why, *newest_reasons(best, ordered, context)),
        rejected=rejections(passed_over),
        warnings=tuple(cpu_warnings(best.build, why, context)),
        runnable=tuple(each.build for each in candidates),
    )


def _choice(best: JudgedBuild, context: PlanContext) -> Choice:
    """Return the selected build with its index and requirements."""
    build = best.build
    demand = context.demand
    python = context.python(build)
    return Choice(
        build,
        python,
        index=build.index(context.catalog.torch_index),
        requirements=(
            demand.torch_requirement.with_specifier(
                f"=={build.torch}{label_of(build)}"
            ),
            *context.companions.pins(build, python),
            *demand.others,
        ),
    )
