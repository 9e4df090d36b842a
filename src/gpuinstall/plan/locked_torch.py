"""What a request keeps a torch to: the torch of the project's own lock, and the newer one that would run."""

from __future__ import annotations

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Constraint
from gpuinstall.base.values import replace
from gpuinstall.catalog.catalog import Catalog
from gpuinstall.plan.choice import choose
from gpuinstall.plan.refusal import limits_of, without_limits
from gpuinstall.plan.values import Plan, Rejected


def choose_as_locked(
    machine: Machine, request: Request, catalog: Catalog
) -> Plan | Rejected:
    """Choose a build of the torch that the project's own lock holds, if one runs; else any.

    Args:
        machine: The machine.
        request: What is requested, with the versions that the project's lock prefers.
        catalog: The builds.
    """
    torch = [one.pinned for one in request.preferred if one.name == "torch"]
    if torch and torch[0]:
        # Without its label: this machine may need another build of the same torch.
        public = torch[0].partition("+")[0]
        pin = Constraint.of("torch", f"=={public}")
        locked = replace(request, constraints=(*request.constraints, pin))
        plan = choose(machine, locked, catalog)
        if isinstance(plan, Plan):
            return plan
    return choose(machine, request, catalog)


def newer_torch(
    plan: Plan, machine: Machine, request: Request, catalog: Catalog
) -> Reason | None:
    """Return which newer torch would run, and what keeps a plan from it; None if the request does not.

    Args:
        plan: What was chosen.
        machine: The machine.
        request: What it was chosen for.
        catalog: The builds.
    """
    bounds = [limit for limit in limits_of(request, {"torch"}) if limit.is_of_torch]
    if not (request.preferred or bounds):
        return None
    unbound = replace(without_limits(request, bounds), preferred=())
    free = choose(machine, unbound, catalog)
    chosen = plan.choice.build.torch
    if not isinstance(free, Plan) or free.choice.build.torch <= chosen:
        return None
    newer = str(free.choice.build.torch)
    holders = [
        bound.words
        for bound in bounds
        if bound.requirement and not bound.requirement.allows(newer)
    ]
    if request.preferred:
        holders.append("the project's own lock")
    if not holders:
        return None
    return Reason(
        "torch-held", f"torch {newer} would run here: {holders[0]} keeps {chosen}"
    )
