"""What forward compatibility would give: named by a refusal, and only if every GPU can use it."""

import pytest

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


CATALOG = frozen_catalog()


def offered(on, *requirements, catalog=CATALOG):
    """The plan for a machine, and the package with the build that it would give, in words."""
    request = Request(requirements or ("torch",))

    def choose_on(machine):
        return choose(machine, request, catalog)

    offer = compat_offer(on, catalog, choose_on)
    words = offer and f"{offer.package}: {offer.build.name}"
    plan = choose_on(on)
    assert words is None or isinstance(plan, Plan)
    told = [] if plan.choice is None else with_compat_reason(plan, offer).reasons
    return words, [
        reason.message for reason in told if reason.code == "with-cuda-compat"
    ]


NEWEST = "cuda-compat 13.0: 2.15.0+cu130"


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        (A100, NEWEST),
        (machine("T4", driver="535.183.01"), NEWEST),
        (machine("H100", "A100", driver="570.148.08"), NEWEST),
        (machine("A100", driver="580.95.05"), None),
        (machine("A100", driver="595.45.04"), None),
        (machine("A100", driver="470.57.02"), None),
        (machine("A100", driver=None), None),
        (machine("RTX 4090", driver=OLD), None),
        (machine("A100", "RTX 4090", driver=OLD), None),
        (machine("A100", driver=OLD, os="windows"), None),
        (WSL, None),
        (JETSON, None),
    ],
)
def test_only_an_old_driver_of_data_centre_gpus_is_offered_it(on, expected):
    assert offered(on)[0] == expected


def test_volta_can_have_no_libraries_of_590():
    packages = CATALOG.drivers.compat
    of_590 = tuple(one for one in packages if one.driver.branch == 590)
    above = replace(CATALOG, drivers=replace(CATALOG.drivers, compat=of_590))

    assert of_590
    assert offered(machine("V100", driver=OLD), catalog=above)[0] is None


def test_a_plan_says_which_newer_torch_it_would_give():
    assert offered(A100)[1] == [
        "with cuda-compat 13.0: torch 2.15.0+cu130 (gpuinstall install --cuda-compat, without root)"
    ]
    # Nothing of the torch that it has.
    assert offered(A100, "torch==2.14.1") == ("cuda-compat 13.0: 2.14.1+cu130", [])
