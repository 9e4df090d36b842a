"""Select the best compatible torch build, and explain each rejected build."""

from __future__ import annotations

from functools import partial

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Catalog
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import create_rules
from gpuinstall.plan.candidates import (
    EvaluatedBuild,
    NoCandidate,
    evaluate_build,
    find_allowed_candidate,
    list_rejections,
    select_gpus,
    sort_best_first,
)
from gpuinstall.plan.companions import format_build_label
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.gpus import (
    exclude_unusable_gpus,
    find_gpu_fault,
    find_machine_fault,
    find_requested_gpus,
)
from gpuinstall.plan.reasons import (
    list_cpu_warnings,
    list_gpu_warnings,
    list_newest_reasons,
    list_selection_reasons,
    reject_others,
)
from gpuinstall.plan.rules import UNAVAILABLE
from gpuinstall.plan.values import (
    WITHOUT_GPU,
    Choice,
    GpuSupport,
    Plan,
    ProgramConstraints,
    Rejected,
)

_WITHOUT_CPU_BUILD = {*UNAVAILABLE, "other-torch"}
"""Reason codes for CPU builds that no reachable source has."""


def choose(
    machine: Machine,
    request: Request,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None = None,
) -> Plan | Rejected:
    """Select a torch build for a machine, or explain why none is compatible.

    Args:
        machine: The machine to plan for.
        request: The request to plan.
        catalog: The catalog of available builds.
        program_constraints: Constraints from resolving other packages, or None before they are resolved.

    Raises:
        UsageError: The request is malformed.
    """
    attempt = partial(
        _plan_request,
        machine=machine,
        catalog=catalog,
        program_constraints=program_constraints,
    )
    outcome = attempt(request)
    if isinstance(outcome, Plan) and outcome.status != "partial":
        return outcome
    # Import this module lazily, because most requests are not refused.
    from gpuinstall.plan.refusal import (
        explain_partial,
        refuse_request,
        suggest_cpu_build,
    )

    if isinstance(outcome, Plan):
        return explain_partial(outcome, request, attempt)
    if isinstance(outcome, NoCandidate):
        return refuse_request(outcome, request, attempt)
    return suggest_cpu_build(outcome, request, attempt)


def _plan_request(
    request: Request,
    *,
    machine: Machine,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None,
) -> Plan | Rejected | NoCandidate:
    """Select a build for a request without explaining a failure."""
    demand = parse_request(request, catalog, machine)
    rules = create_rules(
        machine, catalog, {backend.kind for backend in demand.backends}
    )
    context = PlanContext(
        machine,
        demand,
        rules,
        gpus=find_requested_gpus(machine, request.gpus, rules),
        program_constraints=program_constraints,
    )
    fault = find_machine_fault(context)
    if fault:
        return fault
    # Select a requested CPU build even if a GPU is faulty.
    if demand.backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    # macOS has builds only for Apple's GPUs. For any other machine with macOS, select the CPU build.
    if machine.os == "macos" and rules.kind not in {
        each.backend.kind for each in context.builds
    }:
        if demand.backends:
            return NoCandidate(context)
        return _choose_cpu(
            context, Reason("macos", "macOS has no CUDA; its build uses MPS")
        )
    usable = exclude_unusable_gpus(context)
    fault = find_gpu_fault(context, usable)
    if fault or usable.gpus or demand.backends:
        return fault or _choose_for_gpus(usable)
    message = f"no {rules.name} GPU found, so torch runs on the CPU"
    return _choose_cpu(context, Reason(WITHOUT_GPU, message))


def _choose_for_gpus(context: PlanContext) -> Plan | NoCandidate:
    builds = [
        build for build in context.builds if build.backend.kind == context.rules.kind
    ]
    evaluated = [evaluate_build(build, context) for build in builds]
    candidates = [each for each in evaluated if each.reason is None]
    served = select_gpus({each.supported_gpus for each in candidates}, context)
    compatible = sort_best_first(
        [each for each in candidates if each.supported_gpus == served], context
    )
    best = find_allowed_candidate(compatible, context)
    if best is None:
        return NoCandidate(context, [each for each in evaluated if each.reason])
    others = reject_others(evaluated, best, context)
    gpus = [GpuSupport(index) for index in context.excluded_gpus]
    excluded = [fault.reason for fault in context.excluded_gpus.values()]
    for gpu, code in zip(context.gpus, best.gpu_code, strict=True):
        if isinstance(code, Code):
            gpus.append(GpuSupport(gpu.index, code.name, code.how))
            continue
        gpus.append(GpuSupport(gpu.index))
        message = f"GPU {gpu.index} is excluded: {best.build.name} has {code.message}"
        excluded.append(Reason("gpu-left-out", message))
    return Plan(
        status="partial" if excluded else "ok",
        choice=_create_choice(best, context),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.index)),
        reasons=tuple(
            list_selection_reasons(best, compatible, candidates, others, context)
        ),
        rejected=list_rejections(others),
        warnings=(
            *excluded,
            *list_gpu_warnings(best.build, context.with_gpus_at(served)),
        ),
        runnable=tuple(each.build for each in compatible),
    )


def _choose_cpu(context: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Select the newest CPU build, or a GPU build if there is no CPU build."""
    demand = context.demand
    without_gpus = context.with_gpus_at(())
    evaluated = [evaluate_build(build, without_gpus) for build in context.builds]
    for_cpu = [each for each in evaluated if each.build.backend == CPU]
    candidates = [each for each in for_cpu if each.reason is None]
    codes = {each.reason_code for each in for_cpu}
    if not demand.backends:
        codes.discard("no-companion")
    # An exact version such as 2.9.1+cpu is never replaced by a GPU build.
    if not (candidates or demand.is_labeled) and codes <= _WITHOUT_CPU_BUILD:
        request = replace(demand.request, allowed_backends=None)
        demand = replace(demand, backends=frozenset(), request=request)
        without_gpus = replace(without_gpus, demand=demand)
        evaluated = [evaluate_build(build, without_gpus) for build in context.builds]
        candidates = [
            each
            for each in evaluated
            if each.reason is None and each.build.on_default_index
        ]
    best = find_allowed_candidate(candidates, context)
    if best is None:
        return NoCandidate(context, for_cpu)
    considered = {each.build for each in (*for_cpu, *candidates)}
    evaluated = [
        each if each.build in considered else replace(each, reason=why)
        for each in evaluated
    ]
    others = reject_others(evaluated, best, context)
    ordered = [each for each in others if each.reason != why]
    return Plan(
        status="cpu",
        choice=_create_choice(best, context),
        gpus=tuple(GpuSupport(gpu.index) for gpu in context.gpus),
        reasons=(why, *list_newest_reasons(best, ordered, context)),
        rejected=list_rejections(others),
        warnings=tuple(list_cpu_warnings(best.build, why, context)),
        runnable=tuple(each.build for each in candidates),
    )


def _create_choice(best: EvaluatedBuild, context: PlanContext) -> Choice:
    """Create the choice of a build, with its index and requirements."""
    build = best.build
    demand = context.demand
    python = context.select_python(build)
    return Choice(
        build,
        python,
        index=build.index(context.catalog.torch_index),
        requirements=(
            demand.torch_requirement.with_specifier(
                f"=={build.torch}{format_build_label(build)}"
            ),
            *context.companions.create_pins(build, python),
            *demand.others,
        ),
    )
