"""Tests of finding the nearest satisfiable request."""

from gpuinstall.base.request import Request
from gpuinstall.plan import choose
from gpuinstall.plan.relax import find_nearest_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def test_relaxed_request_keeps_constraints_on_other_packages():
    there = machine("RTX 4090", driver="535.183.01")
    catalog = frozen_catalog()
    request = Request(("torch==2.15.0",), constraints=("numpy<2",))

    relaxed = find_nearest_request(
        request, catalog, lambda other: choose(there, other, catalog)
    )

    assert relaxed
    assert relaxed.request.constraints == request.constraints


def test_allowed_torch_is_kept_if_companions_are_relaxed():
    there = machine("RTX 4090", driver="580.95.05")
    catalog = frozen_catalog()
    request = Request(("torch==2.14.0", "torchvision==0.20.1"))

    relaxed = find_nearest_request(
        request, catalog, lambda other: choose(there, other, catalog)
    )

    assert relaxed
    assert relaxed.torch == "2.14.0"
