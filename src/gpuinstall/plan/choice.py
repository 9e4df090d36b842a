"""The choice: every build is judged, the best that runs is taken, and everything else has a reason."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.finding import Reason, Rejection
from gpuinstall.plan.candidates import (
    NoCandidate,
    gpus_key,
    gpus_to_serve,
    is_settled,
    judge_builds,
    judge_request,
    partition,
    preference_key,
)
from gpuinstall.plan.context import PlanContext
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
from gpuinstall.plan.values import Plan, Rejected, Run, Settled
from gpuinstall.vendors import rules_for
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request


def choose(
    machine: Machine, request: Request, catalog: Catalog, settled: Settled | None = None
) -> Plan | Rejected:
    """Return the build for a machine, with reasons, or why there is none.

    Args:
        machine: The machine to choose for.
        request: What is requested.
        catalog: The builds to choose from.
        settled: What the programs of the request came to, once they were resolved; else the newest torch is chosen.

    Raises:
        UsageError: The request is malformed.
    """
    attempt = partial(_attempt, machine=machine, catalog=catalog, settled=settled)
    outcome = attempt(request)
    if isinstance(outcome, NoCandidate):
        outcome = explain(outcome, request, attempt)
    return with_cpu_build(outcome, request, attempt) if isinstance(outcome, Rejected) else outcome


def _attempt(
    request: Request, *, machine: Machine, catalog: Catalog, settled: Settled | None
) -> Plan | Rejected | NoCandidate:
    """Return what a request comes to, for the best of the Pythons where its markers make it another request."""
    outcomes = []
    for demand in parse_request(request, catalog.family, machine):
        rules = rules_for(machine, catalog, {backend.kind for backend in demand.backends})
        gpus = requested_gpus(machine, demand.gpus, rules)
        context = PlanContext(machine, demand, rules.catalog, rules, gpus, settled)
        outcomes.append((_outcome(context), context))
    best, _ = max(outcomes, key=lambda outcome: _outcome_key(*outcome))
    return best


def _outcome_key(
    outcome: Plan | Rejected | NoCandidate, context: PlanContext
) -> tuple[object, ...]:
    """Sort what comes out for several Pythons: the best GPUs served, then the newest torch; a refusal is the lowest."""
    if not isinstance(outcome, Plan):
        return ()
    served = {run.index for run in outcome.gpus if run.how != "none"}
    cover = tuple(position for position, gpu in enumerate(context.gpus) if gpu.index in served)
    return gpus_key(cover, context), outcome.choice.build.torch


def _outcome(context: PlanContext) -> Plan | Rejected | NoCandidate:
    backends = context.demand.backends
    if fault := machine_fault(context):
        return fault
    if backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    if context.machine.os == "macos" and not any(
        build.backend.kind == context.rules.kind for build in context.builds
    ):
        own_build = Reason("macos", "macOS has no CUDA; its build uses MPS")
        return NoCandidate(context, ()) if backends else _choose_cpu(context, own_build)
    usable = with_usable_gpus(context)
    if fault := gpu_fault(context, usable):
        return fault
    if not usable.gpus and not backends:
        return _choose_cpu(context, Reason("no-gpu", f"there is no {context.rules.name} GPU here"))
    return _choose_for_gpus(usable)


def _choose_for_gpus(context: PlanContext) -> Plan | NoCandidate:
    candidates, rejected = judge_builds(context)
    cover = gpus_to_serve((candidate.covers for candidate in candidates), context)
    fitting = [candidate for candidate in candidates if candidate.covers == cover]
    fitting.sort(key=lambda candidate: preference_key(candidate, context))
    best = next((candidate for candidate in fitting if is_settled(candidate, context)), None)
    if best is None:
        return NoCandidate(context, tuple(rejected))
    rest = in_order((*rejected, *reject_lesser(candidates, best, context)), context)
    runs = [Run(index, None, "none") for index in context.left_out]
    uncovered = []
    for gpu, code in zip(context.gpus, best.codes, strict=True):
        if isinstance(code, Code):
            runs.append(Run(gpu.index, code.name, code.how))
        else:
            runs.append(Run(gpu.index, None, "none"))
            message = (
                f"GPU {gpu.index} ({gpu.label}) is left out: {best.build.name} has {code.message}"
            )
            uncovered.append(Reason("gpu-left-out", message))
    served = replace(context, gpus=tuple(context.gpus[position] for position in cover))
    left_out = (fault.reason for fault in context.left_out.values())
    return Plan(
        status="partial" if context.left_out or uncovered else "ok",
        choice=best.choice(context),
        gpus=tuple(sorted(runs, key=lambda run: run.index)),
        reasons=reasons_for(best, candidates, rest, context),
        rejected=rest,
        warnings=(*left_out, *uncovered, *gpu_warnings(best.build, served)),
        runnable=tuple(candidate.build for candidate in fitting),
    )


def _choose_cpu(context: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Choose the newest build for the CPU, or, if no source has one, the default index's build for GPUs."""
    builds = [build for build in context.builds if build.backend == CPU]
    candidates, rejected = partition([judge_request(build, context) for build in builds])
    is_elsewhere = all(
        one.reason.code in {*NOT_THERE, "other-torch", "no-companion"} for one in rejected
    )
    if (
        not candidates and is_elsewhere and not context.demand.backends
    ):  # a CPU build by name is not replaced
        anything = replace(context, demand=context.demand._replace(backends=frozenset()))
        builds = [build for build in context.builds if build.on_default_index]
        candidates, _ = partition([judge_request(build, anything) for build in builds])
    best = next((candidate for candidate in candidates if is_settled(candidate, context)), None)
    if best is None:
        return NoCandidate(context, tuple(rejected))
    rejected += reject_lesser(candidates, best, context)
    judged = {best.build, *(rejection.candidate for rejection in rejected)}
    others = (Rejection(build, why) for build in context.builds if build not in judged)
    learned = learned_reason(best, context)
    return Plan(
        status="cpu",
        choice=best.choice(context),
        gpus=tuple(Run(gpu.index, None, "none") for gpu in context.gpus),
        reasons=(
            why,
            *([learned] if learned else ()),
            newest_reason(best, rejected, context),
            *held_back_programs(context),
        ),
        rejected=in_order((*rejected, *others), context),
        warnings=cpu_warnings(best.build, why, context),
        runnable=tuple(candidate.build for candidate in candidates),
    )
