"""Locked torches, and the limits that exclude a newer torch."""

import pytest

from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.machine.options import machine_from_options
from gpuinstall.machine.vendors import create_rules
from gpuinstall.plan import Plan, choose
from gpuinstall.plan.alternatives import (
    choose_locked_torch,
    list_unselectable_backends,
)
from gpuinstall.plan.values import TORCH_LIMITED, PlanInput
from tests.frozen import frozen_catalog

MACHINE = machine_from_options(("RTX 4090",), "535.183.01")
LOCKED = Request(("torch", "numpy"), preferred=("torch==2.13.0+cu128", "numpy==2.3.4"))


def taken(request):
    plan = choose_locked_torch(PlanInput(MACHINE, request, frozen_catalog()))
    assert isinstance(plan, Plan)
    return plan


def test_locked_torch_is_selected_if_it_runs():
    assert str(taken(LOCKED).choice.build.torch) == "2.13.0"
    too_new = Request(("torch",), preferred=("torch==2.15.0",))
    assert str(taken(too_new).choice.build.torch) == "2.14.1"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            Request(("torch<2.14",)),
            "torch 2.14.1 would run here, but torch<2.14 keeps 2.13.0",
        ),
        (
            Request(("torch",), constraints=("torch<2.14",)),
            "torch 2.14.1 would run here, but torch<2.14 keeps 2.13.0",
        ),
        (
            LOCKED,
            "torch 2.14.1 would run here, but the project's own lock keeps 2.13.0",
        ),
        (Request(("torch>=2",)), None),
        (Request(("torch",)), None),
        (Request(("torch==2.14.1",)), None),
    ],
)
def test_plan_reason_mentions_what_excludes_newer_torch(request_, message):
    reasons = taken(request_).reasons
    limited = [one.message for one in reasons if one.code == TORCH_LIMITED]
    assert limited == ([message] if message else [])


@pytest.mark.parametrize(
    ("gpu", "driver", "request_", "selectable"),
    [
        ("RTX 5090", "580.95.05", Request(), "cu128 cu129 cu130 cu132 cu134"),
        ("RTX 5090", "580.95.05", Request(allowed_backends=("cu130",)), "cu130"),
        # Code decides, even if the Python already excludes older builds.
        (
            "RTX 5090",
            "580.95.05",
            Request(python="3.14"),
            "cu128 cu129 cu130 cu132 cu134",
        ),
        ("RTX 5090", "580.95.05", Request(("torch==2.10.0",)), "cu128 cu129 cu130"),
        # The catalog lacks this torch, and any index may have it.
        (
            "RTX 5090",
            "580.95.05",
            Request(("torch==9",)),
            "cpu cu116 cu117 cu118 cu121 cu124 cu126 cu128 cu129 cu130 cu132 cu134",
        ),
        (None, None, Request(), "cpu"),
    ],
)
def test_only_backends_usable_on_machine_are_selectable(
    gpu, driver, request_, selectable
):
    if gpu:
        machine = machine_from_options((gpu,), driver)
    else:
        machine = replace(MACHINE, gpus=(), driver=None)
    rules = create_rules(machine, frozen_catalog(), kinds=())
    outcome = choose(machine, request_, frozen_catalog())
    builds = rules.catalog.builds_for(machine.os, machine.arch)
    tags = {build.backend.tag for build in builds}
    excluded = list_unselectable_backends(outcome, rules)
    assert sorted(tags - excluded) == selectable.split()
