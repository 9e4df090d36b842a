"""A backend that the request prefers is taken among the builds of the torch that is chosen anyway."""

from __future__ import annotations

from typing import NamedTuple

from gpuinstall.api import choose
from gpuinstall.base.request import Request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


class Case(NamedTuple):
    """A card with its driver (none: a machine without a GPU), a torch, the preference, and a backend by name."""

    card: str
    driver: str
    torch: str
    preferred: str
    backend: str | None = None


UNMET = "cu118 is preferred by the request, but"
EXPECTED = {
    Case("RTX 4090", "535.183.01", "torch==2.6.*", "cu124"): ("2.6.0+cu124", ""),
    Case("RTX 4090", "535.183.01", "torch", "cu118"): (
        "2.14.1+cu126",
        f"{UNMET} it has no build of torch 2.14.1: cu126 is taken; --backend cu118 forces it",
    ),
    Case("RTX 5090", "580.95.05", "torch==2.7.*", "cu118"): (
        "2.7.1+cu128",
        f"{UNMET} it does not run here: cu128 is taken; --backend cu118 forces it",
    ),
    Case("RTX 4090", "535.183.01", "torch==2.6.*", "cu124", "cu126"): ("2.6.0+cu126", ""),
    Case("RTX 4090", "535.183.01", "torch==2.6.*", "cpu"): (
        "2.6.0+cu118",
        "cpu is preferred by the request, but this machine has GPUs: cu118 is taken; --backend cpu forces it",
    ),
    Case("", "", "torch==2.6.*", "cu118"): (
        "2.6.0+cpu",
        f"{UNMET} it does not run here: cpu is taken; --backend cu118 forces it",
    ),
    Case("", "", "torch==2.6.*", "cpu"): ("2.6.0+cpu", ""),
}


def answer(case: Case) -> tuple[str, str]:
    """What is chosen, and what is said of the preference."""
    here = machine(case.card, driver=case.driver) if case.card else machine(driver=None)
    request = Request((case.torch,), backend=case.backend, preferred_backend=case.preferred)
    plan = choose(here, request, frozen_catalog())
    assert plan.choice
    warnings = [warning.message for warning in plan.warnings if warning.code == "preference-unmet"]
    return plan.choice.build.name, " ".join(warnings)


def test_a_preferred_backend_is_taken_where_it_runs_and_has_the_torch():
    assert {case: answer(case) for case in EXPECTED} == EXPECTED


def test_the_reason_of_a_preferred_backend_is_the_request():
    request = Request(("torch==2.6.*",), preferred_backend="cu124")
    plan = choose(machine("RTX 4090", driver="535.183.01"), request, frozen_catalog())
    reasons = {reason.code: reason.message for reason in plan.reasons}
    assert reasons["backend"] == "cu124 and not cu118: the request prefers it"
