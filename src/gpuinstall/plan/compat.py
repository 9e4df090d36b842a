"""What newer user-mode libraries above an old driver would give: NVIDIA's forward compatibility (rule 15 of the design).

It is taken only by those who ask for it; here is what a refusal says of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.values import Plan, Rejected

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog

    Choose = Callable[[Machine, Request, Catalog], object]
    """What a request comes to: a Plan, or something else if no build serves it."""

COMPAT = "Run it again with --cuda-compat"
_DRIVER_TOO_OLD = {"driver-too-old", "driver-too-old-for-ptx"}


def with_compat_fix(
    refusal: Rejected,
    machine: Machine,
    request: Request,
    catalog: Catalog,
    choose: Choose,
) -> Rejected:
    """Advise the first package with which every GPU runs the request, if it is the driver that is too old.

    It comes before a new driver: nobody has to be root for it.

    Args:
        refusal: Why no build runs the request.
        machine: The machine with its own driver.
        request: What is requested.
        catalog: The builds, and what is known of drivers and packages.
        choose: What a request comes to on another machine.
    """
    if refusal.reasons[0].code not in _DRIVER_TOO_OLD:
        return refusal
    for package, driver in rules_for(machine, catalog).drivers_above().items():
        plan = choose(replace(machine, driver=driver), request, catalog)
        if isinstance(plan, Plan) and plan.status == "ok":
            fix = f"{COMPAT}: torch {plan.choice.build.name} with {package}, without root"
            fixes = [fix, refusal.fix] if refusal.fix else [fix]
            return replace(refusal, fix="\n".join(fixes))
    return refusal
