"""Locked torches, and the limits that exclude a newer torch."""

import pytest

from gpuinstall.base.request import Request
from gpuinstall.machine.words import machine_in_words
from gpuinstall.plan import Plan, choose
from gpuinstall.plan.alternatives import choose_as_locked, newer_torch
from tests.frozen import frozen_catalog

MACHINE = machine_in_words(("RTX 4090",), "535.183.01")
LOCKED = Request(("torch", "numpy"), preferred=("torch==2.13.0+cu128", "numpy==2.3.4"))


def taken(request):
    plan = choose_as_locked(MACHINE, request, frozen_catalog())
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
            "torch 2.14.1 would run here: torch<2.14 keeps 2.13.0",
        ),
        (
            Request(("torch",), constraints=("torch<2.14",)),
            "torch 2.14.1 would run here: torch<2.14 keeps 2.13.0",
        ),
        (LOCKED, "torch 2.14.1 would run here: the project's own lock keeps 2.13.0"),
        (Request(("torch>=2",)), None),
        (Request(("torch",)), None),
        (Request(("torch==2.14.1",)), None),
    ],
)
def test_reason_names_the_limit_of_torch(request_, message):
    reason = newer_torch(taken(request_), MACHINE, request_, frozen_catalog())
    assert (reason and reason.message) == message


def test_plan_without_lock_is_unchanged():
    request = Request(("torch",))
    assert choose_as_locked(MACHINE, request, frozen_catalog()) == choose(
        MACHINE, request, frozen_catalog()
    )
