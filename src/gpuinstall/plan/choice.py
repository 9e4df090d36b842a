"""The choice: every build is judged, the best that runs is taken, and everything else has a reason."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.plan.candidates import (
    NoCandidate,
    gpus_to_serve,
    is_settled,
    judge_builds,
    judge_request,
    parted,
    preference,
    worth,
)
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import Demand, parse_request
from gpuinstall.plan.gpus import LeftOut, asked_gpus, gpu_fault, machine_fault, sort_out
from gpuinstall.plan.reasons import (
    cpu_warnings,
    gpu_warnings,
    held_back_programs,
    learned_reason,
    lesser,
    newest_reason,
    passed_over,
    reasons_for,
)
from gpuinstall.plan.refusal import explained, with_cpu_build
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Plan, Reason, Refusal, Rejection, Run, Settled
from gpuinstall.vendors import rules_for
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request


def choose(machine: Machine, request: Request, catalog: Catalog, settled: Settled | None = None) -> Plan | Refusal:
    """Choose the build for a machine, with reasons; raise UsageError for a malformed request.

    The newest torch that runs, or, once the programs of the request are ``settled``, the one that they want.
    """

    def attempt(weakened: Request) -> Plan | Refusal | NoCandidate:
        contexts = [context(demand) for demand in parse_request(weakened, catalog.family, machine)]
        outcomes = [(_attempt(option), option) for option in contexts]
        return max(outcomes, key=lambda outcome: _merits(*outcome))[0] if len(outcomes) > 1 else outcomes[0][0]

    def context(demand: Demand) -> PlanContext:
        rules = rules_for(machine, catalog, {backend.kind for backend in demand.backends})
        return PlanContext(machine, demand, rules.catalog, rules, asked_gpus(machine, demand.gpus, rules), settled)

    plan = attempt(request)
    if isinstance(plan, NoCandidate):
        plan = explained(plan, request, attempt)
    return with_cpu_build(plan, request, attempt) if isinstance(plan, Refusal) else plan


def _merits(outcome: Plan | Refusal | NoCandidate, context: PlanContext) -> tuple[object, ...]:
    """Sort what comes out for the Pythons of a request: the best GPUs served, then the newest torch; a refusal last."""
    if not isinstance(outcome, Plan):
        return ()
    served = {run.index for run in outcome.gpus if run.how != "none"}
    cover = tuple(position for position, gpu in enumerate(context.gpus) if gpu.index in served)
    return worth(cover, context), outcome.choice.build.torch


def _attempt(context: PlanContext) -> Plan | Refusal | NoCandidate:
    backends = context.demand.backends
    if fault := machine_fault(context):
        return fault
    if backends == {CPU}:
        return _choose_cpu(context, Reason("cpu-asked", "the CPU build was requested"))
    if context.machine.os == "macos" and not any(build.backend.kind == context.rules.kind for build in context.builds):
        own_build = Reason("macos", "macOS has no CUDA; its build uses MPS")
        return NoCandidate(context, ()) if backends else _choose_cpu(context, own_build)
    usable, left_out = sort_out(context)
    if fault := gpu_fault(context, usable, left_out):
        return fault
    if not usable and not backends:
        return _choose_cpu(context, Reason("no-gpu", f"there is no {context.rules.name} GPU here"))
    return _choose_for_gpus(replace(context, gpus=usable), left_out)


def _choose_for_gpus(context: PlanContext, left_out: tuple[LeftOut, ...]) -> Plan | NoCandidate:
    candidates, rejected = judge_builds(context)
    if not candidates:
        return NoCandidate(context, tuple(rejected), left_out)
    cover = gpus_to_serve((candidate.covers for candidate in candidates), context)
    fitting = [candidate for candidate in candidates if candidate.covers == cover]
    fitting.sort(key=lambda candidate: preference(candidate, context))
    best = next((candidate for candidate in fitting if is_settled(candidate, context)), None)
    if best is None:
        return NoCandidate(context, tuple(rejected), left_out)
    rest = passed_over(best, candidates, rejected, context)
    uncovered = [
        Reason("gpu-left-out", f"GPU {gpu.index} ({gpu.label}) is left out: {best.build.name} has {code.message}")
        for gpu, code in zip(context.gpus, best.codes, strict=True)
        if isinstance(code, Reason)
    ]
    chosen = replace(context, gpus=tuple(context.gpus[position] for position in cover))
    runs = [
        Run(gpu.index, code.name, code.how) if isinstance(code, Code) else Run(gpu.index, None, "none")
        for gpu, code in zip(context.gpus, best.codes, strict=True)
    ]
    return Plan(
        status="partial" if left_out or len(cover) < len(context.gpus) else "ok",
        choice=best.choice(context),
        gpus=tuple(sorted((*runs, *(Run(out.gpu, None, "none") for out in left_out)), key=lambda run: run.index)),
        reasons=reasons_for(best, candidates, rest, context),
        rejected=rest,
        warnings=(*(out.reason for out in left_out), *uncovered, *gpu_warnings(best.build, chosen)),
        runnable=tuple(candidate.build for candidate in fitting),
    )


def _choose_cpu(context: PlanContext, why: Reason) -> Plan | NoCandidate:
    """Choose the newest build for the CPU, or, where no source has one, the default index's build for GPUs."""
    candidates, rejected = parted([judge_request(build, context) for build in context.builds if build.backend == CPU])
    in_no_source = all(rejection.code in {*NOT_THERE, "other-torch", "no-companion"} for rejection in rejected)
    if not candidates and in_no_source and not context.demand.backends:  # a CPU build by name is not replaced
        anything = replace(context, demand=context.demand._replace(backends=frozenset()))
        candidates, _ = parted([judge_request(build, anything) for build in context.builds if build.on_default_index])
    best = next((candidate for candidate in candidates if is_settled(candidate, context)), None)
    if best is None:
        return NoCandidate(context, tuple(rejected))
    others = [lesser(candidate, best, context) for candidate in candidates if candidate is not best]
    passed = {id(rejection.build): rejection for rejection in (*rejected, *others)}
    newest = newest_reason(best, (*rejected, *others), context)
    rest = (build for build in context.builds if build is not best.build)
    return Plan(
        status="cpu",
        choice=best.choice(context),
        gpus=tuple(Run(gpu.index, None, "none") for gpu in context.gpus),
        reasons=(why, *filter(None, [learned_reason(best, context)]), newest, *held_back_programs(context)),
        rejected=tuple(passed.get(id(build)) or Rejection(build, *why) for build in rest),
        warnings=cpu_warnings(best.build, why, context),
        runnable=tuple(candidate.build for candidate in candidates),
    )
