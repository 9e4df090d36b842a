"""What a request keeps a torch to: the torch of the project's own lock, and the newer one that would run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import replace
from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan

if TYPE_CHECKING:
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.plan.values import Rejected


def choose_as_locked(
    machine: Machine, request: Request, catalog: Catalog
) -> Plan | Rejected:
    """Choose a build of the torch that the project's own lock holds, if one runs; else any."""
    torch = [text for text in request.preferred if text.startswith("torch==")]
    if torch:
        public = torch[0].partition("+")[0]
        locked = replace(request, constraints=(*request.constraints, public))
        plan = choose(machine, locked, catalog)
        if isinstance(plan, Plan):
            return plan
    return choose(machine, request, catalog)


def newer_torch(
    plan: Plan, machine: Machine, request: Request, catalog: Catalog
) -> Reason | None:
    """Return which newer torch would run, and what keeps a plan from it; None if the request does not."""
    bounds = [
        requirement
        for text in (*request.requirements, *request.constraints)
        if (requirement := parse_requirement(text)).name == "torch"
    ]
    if not (request.preferred or any(bound.specifier for bound in bounds)):
        return None
    texts = {bound.text for bound in bounds}
    others = [text for text in request.requirements if text not in texts]
    limits = [text for text in request.constraints if text not in texts]
    free = choose(
        machine,
        replace(
            request,
            requirements=("torch", *others),
            constraints=tuple(limits),
            preferred=(),
        ),
        catalog,
    )
    chosen = plan.choice.build.torch
    if not isinstance(free, Plan) or free.choice.build.torch <= chosen:
        return None
    newer = str(free.choice.build.torch)
    holders = [bound.text for bound in bounds if not bound.allows(newer)]
    if request.preferred:
        holders.append("the project's own lock")
    if not holders:
        return None
    return Reason(
        "torch-held", f"torch {newer} would run here: {holders[0]} keeps {chosen}"
    )
