"""Select a torch build for another driver or for a locked torch version."""

from __future__ import annotations

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Driver
from gpuinstall.base.requirement import Constraint
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.machine.protocol import Rules
from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan, PlanInput, Rejected

_EXCLUDED_BACKEND = {"other-backend", "other-cuda", "not-allowed"}
"""Reason codes for backends that the request excludes."""
_NOT_REQUESTED = {"other-torch", "python-unsupported", "glibc-too-old"}
"""Reason codes for builds that a source cannot make selectable."""


def find_minimum_cuda(plan: Plan, wanted: PlanInput) -> Reason | None:
    """Report the minimum CUDA versions of a request and a build.

    Args:
        plan: The plan for the request.
        wanted: The input of the plan. The driver of its machine is ignored.

    Returns:
        A reason, or None if the selected build is not for CUDA.
    """
    if plan.choice.build.backend.kind != "cuda":
        return None
    selected = plan.choice.build.name
    oldest = dict[str, str]()
    drivers = wanted.catalog.drivers
    for driver in drivers.list_thresholds(wanted.machine.os):
        machine = replace(wanted.machine, driver=Driver(driver))
        other = choose(machine, wanted.request, wanted.catalog)
        if isinstance(other, Plan) and other.covered_gpus >= plan.covered_gpus:
            build = other.choice.build.name
            cuda = drivers.list_cuda_versions(driver)[0]
            oldest.setdefault(build, f"CUDA {cuda} (driver {driver.minimum_text})")
            if build == selected:
                break
    if not oldest:
        return None
    build, minimum = next(iter(oldest.items()))
    message = f"the minimum is {minimum}"
    if build != selected:
        message += f", with torch {build}"
        if selected in oldest:
            message += f"; torch {selected} is selected from {oldest[selected]} on"
    return Reason("minimum-cuda", message)


def choose_locked_torch(wanted: PlanInput) -> Plan | Rejected:
    """Select a build of the torch in ``uv.lock``, or of another version."""
    machine, request, catalog = wanted.machine, wanted.request, wanted.catalog
    best = choose(machine, request, catalog)
    for preferred in request.preferred:
        if preferred.name == "torch" and preferred.pinned:
            # Ignore the local version, because this machine may need another build of the same torch version.
            public = preferred.pinned.partition("+")[0]
            pin = replace(
                Constraint.of("torch", f"=={public}"), written="the project's own lock"
            )
            locked = replace(request, constraints=(*request.constraints, pin))
            plan = choose(machine, locked, catalog)
            if runs_on_same_gpus(plan, best):
                return plan
    return best


def runs_on_same_gpus(locked: Plan | Rejected, best: Plan | Rejected) -> bool:
    """Return whether a locked torch runs on every GPU that a build covers.

    A CPU build is not replaced by a larger one.

    Args:
        locked: The outcome with the locked version of torch.
        best: The outcome with any version.
    """
    if isinstance(locked, Rejected) or isinstance(best, Rejected):
        return isinstance(locked, Plan)
    if best.choice.build.backend == CPU != locked.choice.build.backend:
        return False
    return locked.covered_gpus >= best.covered_gpus


def list_unselectable_backends(outcome: Plan | Rejected, rules: Rules) -> set[str]:
    """Return the backends that cannot be selected from any package index.

    Args:
        outcome: The plan or refusal for the builds in the catalog.
        rules: The selection rules of the GPU vendor.
    """
    kinds = {rules.kind, CPU.kind}
    codes = {*rules.code_reasons, *rules.driver_reasons, *_EXCLUDED_BACKEND}
    if isinstance(outcome, Plan):
        kinds = {CPU.kind if outcome.status == "cpu" else rules.kind}
        # A source may have another build if no known build is requested.
        codes |= _NOT_REQUESTED
    excluded = {
        each.candidate for each in outcome.rejected if each.reason.code in codes
    }
    builds = rules.catalog.builds_for(rules.machine.os, rules.machine.arch)
    selectable = {
        build.backend.tag
        for build in builds
        if build.backend.kind in kinds
        and build not in excluded
        # An unpublished build has another reason.
        and not (rules.machine.gpus and rules.find_driver_rejection(build))
    }
    return {build.backend.tag for build in builds} - selectable
