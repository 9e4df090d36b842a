"""The nearest request keeps what it can of the one that cannot be met."""

from gpuinstall.base.request import Request
from gpuinstall.plan import choose
from gpuinstall.plan.relax import nearest_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def test_a_constraint_that_excludes_no_torch_stays():
    there = machine("RTX 4090", driver="535.183.01")
    catalog = frozen_catalog()
    request = Request(("torch==2.15.0",), constraints=("numpy<2",))

    relaxed = nearest_request(
        request, catalog, lambda other: choose(there, other, catalog)
    )

    assert relaxed
    assert relaxed.request.constraints == request.constraints
