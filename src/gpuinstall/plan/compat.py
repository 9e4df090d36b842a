"""What newer user-mode libraries above an old driver would give: NVIDIA's forward compatibility.

It is taken only by those who ask for it; here is what a plan and a refusal say of it.
"""

from __future__ import annotations

from collections.abc import Callable

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import Build, Catalog
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.values import Plan, Rejected

ChooseOn = Callable[[Machine], object]
"""What a request comes to on a machine: a Plan, or something else if no build serves it."""

COMPAT = "Run it again with --cuda-compat"
_DRIVER_TOO_OLD = {"driver-too-old", "driver-too-old-for-ptx"}


class CompatOffer(Value):
    """What a request comes to with a package above the machine's driver."""

    package: str
    """As people name it, ``cuda-compat 13.0``."""

    build: Build


def compat_offer(
    machine: Machine,
    catalog: Catalog,
    choose_on: ChooseOn,
) -> CompatOffer | None:
    """Return the first package with which every GPU runs a request.

    Args:
        machine: The machine with its own driver.
        catalog: The builds, and what is known of drivers and packages.
        choose_on: What the request comes to on another machine.

    Returns:
        None if no package is made for these GPUs and this driver, or none brings a build.
    """
    for package, driver in rules_for(machine, catalog).drivers_above().items():
        plan = choose_on(replace(machine, driver=driver))
        if isinstance(plan, Plan) and plan.status == "ok":
            return CompatOffer(package, plan.choice.build)
    return None


def with_compat_reason(plan: Plan, offer: CompatOffer | None) -> Plan:
    """Return a plan that says which newer torch the machine could have with the package."""
    if offer is None or offer.build.torch <= plan.choice.build.torch:
        return plan
    message = f"with {offer.package}: torch {offer.build.name} (gpuinstall install --cuda-compat, without root)"
    return replace(plan, reasons=(*plan.reasons, Reason("with-cuda-compat", message)))


def with_compat_fix(
    refusal: Rejected,
    machine: Machine,
    catalog: Catalog,
    choose_on: ChooseOn,
) -> Rejected:
    """Advise the package first if it is the driver that is too old: nobody has to be root for it.

    Args:
        refusal: What the request came to with the machine's own driver.
        machine: The machine.
        catalog: The builds, and what is known of drivers and packages.
        choose_on: What the request comes to on another machine.
    """
    if refusal.reasons[0].code not in _DRIVER_TOO_OLD:
        return refusal
    offer = compat_offer(machine, catalog, choose_on)
    if offer is None:
        return refusal
    fix = f"{COMPAT}: torch {offer.build.name} with {offer.package}, without root"
    fixes = filter(None, (fix, refusal.fix))
    return replace(refusal, fix="\n".join(fixes))
