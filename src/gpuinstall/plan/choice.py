"""The choice: every build is judged, the best that runs is taken, and everything else has a reason."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.base.backend import CPU
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.candidates import (
    NoCandidate,
    first_for_programs,
    gpus_key,
    gpus_to_serve,
    judge_builds,
    preference_key,
)
from gpuinstall.plan.compat import with_compat_fix
from gpuinstall.plan.context import PlanContext, Terms
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.gpus import gpu_fault, machine_fault, requested_gpus, with_usable_gpus
from gpuinstall.plan.reasons import (
    cpu_warnings,
    gpu_warnings,
    held_back_programs,
    in_order,
    learned_reason,
    newest_reason,
    reasons_for,
    reject_lesser,
)
from gpuinstall.plan.refusal import explain, with_cpu_build
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, ProgramConstraints, Rejected, Run

if TYPE_CHECKING:
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.plan.values import SortKey

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
    if isinstance(outcome, NoCandidate):
        outcome = explain(outcome, request, attempt)
    if isinstance(outcome, Rejected):
        outcome = with_cpu_build(outcome, machine, request, attempt)
        outcome = with_compat_fix(
            outcome,
            machine,
            request,
            catalog,
            choose=lambda other, *_: attempt(request, machine=other),
        )
    return outcome


def _attempt(
    request: Request,
    *,
    machine: Machine,
    catalog: Catalog,
    program_constraints: ProgramConstraints | None,
) -> Plan | Rejected | NoCandidate:
    """Return what a request comes to, for the best of the Pythons if its markers make it another request."""
    outcomes = []
    for demand in parse_request(request, catalog.family, machine):
        kinds = {backend.kind for backend in demand.backends}
        rules = rules_for(machine, catalog, kinds)
        context = PlanContext(
            machine,
            Terms(demand, machine, rules.catalog),
            rules=rules,
            gpus=requested_gpus(machine, demand.gpus, rules),
            program_constraints=program_constraints,
        )
        outcomes.append((_outcome(context), context))
    best, _ = max(outcomes, key=lambda outcome: _outcome_key(*outcome))
    return best


def _outcome_key(outcome: Plan | Rejected | NoCandidate, context: PlanContext) -> SortKey:
    """Sort what comes out for several Pythons: the best GPUs served, then the newest torch; a refusal is the lowest."""
    if not isinstance(outcome, Plan):
        return ()
    served = {run.index for run in outcome.gpus if run.runs}
    cover = []
    for position, gpu in enumerate(context.gpus):
        if gpu.index in served:
            cover.append(position)
    return gpus_key(cover, context), outcome.choice.build.torch


def _outcome(context: PlanContext) -> Plan | Rejected | NoCandidate:
    backends = context.demand.backends
    fault = machine_fault(context)
    if fault:
        return fault
    if backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    if context.machine.os == "macos":
        kinds = {build.backend.kind for build in context.terms.builds}
        if context.rules.kind not in kinds:
            if backends:
                return NoCandidate(context, ())
            return _choose_cpu(context, Reason("macos", "macOS has no CUDA; its build uses MPS"))
    return _outcome_for_gpus(context)


def _outcome_for_gpus(context: PlanContext) -> Plan | Rejected | NoCandidate:
    usable = with_usable_gpus(context)
    fault = gpu_fault(context, usable)
    if fault:
        return fault
    if usable.gpus or context.demand.backends:
        return _choose_for_gpus(usable)
    return _choose_cpu(context, Reason("no-gpu", f"there is no {context.rules.name} GPU here"))


def _choose_for_gpus(context: PlanContext) -> Plan | NoCandidate:
    kind = context.rules.kind
    builds = [build for build in context.terms.builds if build.backend.kind == kind]
    candidates, rejected = judge_builds(builds, context, context.gpus)
    cover = gpus_to_serve((candidate.covers for candidate in candidates), context)
    fitting = [candidate for candidate in candidates if candidate.covers == cover]
    fitting.sort(key=lambda candidate: preference_key(candidate, context))
    best = first_for_programs(fitting, context)
    if best is None:
        return NoCandidate(context, tuple(rejected))
    rejected += reject_lesser(candidates, best, context)
    rest = in_order(rejected, context)
    runs = [Run(index) for index in context.left_out]
    left_out = [fault.reason for fault in context.left_out.values()]
    for gpu, code in zip(context.gpus, best.codes, strict=True):
        if isinstance(code, Code):
            runs.append(Run(gpu.index, code.name, code.how))
            continue
        runs.append(Run(gpu.index))
        message = f"GPU {gpu.index} ({gpu.label}) is left out: {best.build.name} has {code.message}"
        left_out.append(Reason("gpu-left-out", message))
    served = context.with_gpus_at(cover)
    return Plan(
        status="partial" if left_out else "ok",
        choice=best.choice(context),
        gpus=tuple(sorted(runs, key=lambda run: run.index)),
        reasons=reasons_for(best, candidates, rest, context),
        rejected=rest,
        warnings=(*left_out, *gpu_warnings(best.build, served)),
        runnable=tuple(candidate.build for candidate in fitting),
    )


def _choose_cpu(context: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Choose the newest build for the CPU, or, if no source has one, the default index's build for GPUs."""
    builds = [build for build in context.terms.builds if build.backend == CPU]
    candidates, rejected = judge_builds(builds, context, gpus=())
    codes = {rejection.reason.code for rejection in rejected}
    is_requested = bool(context.demand.backends)
    # A CPU build that was requested by name is not replaced.
    if not candidates and not is_requested and codes <= _NO_FAULT_OF_THE_MACHINE:
        builds = [build for build in context.terms.builds if build.on_default_index]
        candidates, _ = judge_builds(builds, context, gpus=())
    best = first_for_programs(candidates, context)
    if best is None:
        return NoCandidate(context, tuple(rejected))
    rejected += reject_lesser(candidates, best, context)
    reasons = (
        why,
        learned_reason(best, context),
        newest_reason(best, in_order(rejected, context), context),
        *held_back_programs(context),
    )
    judged = {rejection.candidate for rejection in rejected}
    for build in context.terms.builds:
        if build != best.build and build not in judged:
            rejected.append(Rejection(build, why))
    return Plan(
        status="cpu",
        choice=best.choice(context),
        gpus=tuple(Run(gpu.index) for gpu in context.gpus),
        reasons=tuple(filter(None, reasons)),
        rejected=in_order(rejected, context),
        warnings=cpu_warnings(best.build, why, context),
        runnable=tuple(candidate.build for candidate in candidates),
    )
