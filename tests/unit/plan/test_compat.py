"""What forward compatibility would give: named by a refusal, and only if every GPU can use it."""

from gpuinstall.base.machine import Environment, JetsonRelease
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.plan import choose
from gpuinstall.plan.compat import compat_offer, with_compat_reason
from gpuinstall.plan.values import Plan
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine

OLD = "550.163.01"
A100 = machine("A100", driver=OLD)
WSL = replace(A100, environment=Environment(wsl=True))
JETSON = replace(A100, environment=Environment(jetson=JetsonRelease("36.4.0")))


def choosing(request, catalog):
    """What a request comes to on a machine."""
    return lambda machine: choose(machine, request, catalog)


def offered(on, *requirements):
    """The package and the build, in words."""
    request = Request(requirements or ("torch",))
    catalog = frozen_catalog()
    offer = compat_offer(on, catalog, choosing(request, catalog))
    return offer and f"{offer.package}: {offer.build.name}"


def test_only_an_old_driver_of_data_centre_gpus_is_offered_it():
    newest = "cuda-compat 13.0: 2.15.0+cu130"
    rows = [
        (A100, newest),
        (machine("T4", driver="535.183.01"), newest),
        (machine("H100", "A100", driver="570.148.08"), newest),
        (machine("A100", driver="580.95.05"), None),
        (machine("A100", driver="595.45.04"), None),
        (machine("A100", driver="470.57.02"), None),
        (machine("A100", driver=None), None),
        (machine("RTX 4090", driver=OLD), None),
        (machine("A100", "RTX 4090", driver=OLD), None),
        (machine("A100", driver=OLD, os="windows"), None),
        (WSL, None),
        (JETSON, None),
    ]
    wrong = []
    for on, expected in rows:
        package = offered(on)
        if package != expected:
            wrong.append((on.gpus[0].name, str(on.driver), package, expected))

    assert wrong == []


def test_volta_can_have_no_libraries_of_590():
    volta = machine("V100", driver=OLD)
    catalog = frozen_catalog()
    of_590 = [
        package for package in catalog.drivers.compat if package.driver.branch == 590
    ]
    drivers = replace(catalog.drivers, compat=tuple(of_590))

    above = replace(catalog, drivers=drivers)

    request = Request(("torch",))
    assert compat_offer(volta, above, choosing(request, above)) is None


def test_a_plan_says_which_newer_torch_it_would_give():
    request = Request(("torch",))
    catalog = frozen_catalog()
    plan = choose(A100, request, catalog)
    assert isinstance(plan, Plan)

    offer = compat_offer(A100, catalog, choosing(request, catalog))
    with_reason = with_compat_reason(plan, offer)

    assert plan.choice.build.name == "2.14.1+cu126"
    assert with_reason.reasons[-1].message == (
        "with cuda-compat 13.0: torch 2.15.0+cu130 (gpuinstall install --cuda-compat, without root)"
    )


def test_a_plan_says_nothing_of_the_torch_that_it_has():
    request = Request(("torch==2.14.1",))
    catalog = frozen_catalog()
    plan = choose(A100, request, catalog)
    offer = compat_offer(A100, catalog, choosing(request, catalog))

    assert isinstance(plan, Plan)
    assert offer
    assert offer.build.name == "2.14.1+cu130"
    assert with_compat_reason(plan, offer) == plan
