"""Select the best compatible torch build, and explain each rejected build."""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
    can_run_without,
    evaluate_build,
    find_allowed_candidate,
    list_obstacles,
    list_rejections,
    select_candidates,
)
from gpuinstall.plan.companions import format_build_label
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import Limit, parse_request
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
    context = create_plan_context(machine, request, catalog, program_constraints)
    outcome = find_machine_fault(context) or _choose_build(context)
    if isinstance(outcome, Plan):
        return outcome
    # Import this module lazily, because most requests are not refused.
    from gpuinstall.plan.refusal import refuse_request, suggest_cpu_build

    if isinstance(outcome, NoCandidate):
        return refuse_request(outcome)
    return suggest_cpu_build(outcome, context)


def create_plan_context(
    machine: Machine,
    request: Request,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None = None,
) -> PlanContext:
    """Parse a request for a machine, with the arguments of ``choose``."""
    demand = parse_request(request, catalog, machine)
    kinds = {backend.kind for backend in demand.backends}
    rules = create_rules(machine, catalog, kinds)
    return PlanContext(
        machine,
        demand,
        rules,
        gpus=find_requested_gpus(machine, request.gpus, rules),
        program_constraints=program_constraints,
    )


def _choose_build(context: PlanContext) -> Plan | Rejected | NoCandidate:
    """Select a build for the CPU, or for the usable GPUs."""
    demand = context.demand
    rules = context.rules
    # Select a requested CPU build even if a GPU is faulty.
    if demand.backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    # macOS has builds only for Apple's GPUs. For any other machine with macOS, select the CPU build.
    if context.machine.os == "macos" and rules.kind not in {
        each.backend.kind for each in context.builds
    }:
        if demand.backends:
            without_gpus = context.with_gpus_at(())
            builds = [evaluate_build(one, without_gpus) for one in context.builds]
            return NoCandidate(context, builds)
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
    compatible = select_candidates(candidates, context)
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
            list_selection_reasons(best, compatible, evaluated, others, context)
        ),
        rejected=list_rejections(others),
        warnings=(
            *excluded,
            *list_gpu_warnings(best.build, context.with_gpus_at(best.supported_gpus)),
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
    others: list[EvaluatedBuild] = []
    if not (candidates or demand.is_labeled) and codes <= _WITHOUT_CPU_BUILD:
        options = [one for one in demand.limits if "backend" in one.field]
        others = [each for each in evaluated if each.build.on_default_index]
        candidates = _select_runnable(others, options, without_gpus)
    best = find_allowed_candidate(candidates, context)
    if best is None:
        if not _select_runnable(for_cpu, demand.limits, without_gpus):
            for_cpu += others
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


def _select_runnable(
    builds: Iterable[EvaluatedBuild], limits: Collection[Limit], context: PlanContext
) -> list[EvaluatedBuild]:
    """Return the builds that are compatible without some limits."""
    return [
        each
        for each in builds
        if can_run_without(list_obstacles(each, context), limits)
    ]


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
