"""What a choice depends on beside GPUs and driver is looked up once for all machines of a platform."""

from gpuinstall.base.request import Request
from gpuinstall.plan.context import bare_machine, terms_of
from gpuinstall.plan.demand import parse_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def test_other_gpus_and_drivers_share_the_terms_of_a_request():
    old = bare_machine(machine("GTX 1080", driver="535.183.01"))
    new = bare_machine(machine("RTX 5090", driver="580.95.05"))
    catalog = frozen_catalog()
    (demand,) = parse_request(Request(("torch", "torchvision")), catalog.family, old)
    (same,) = parse_request(Request(("torch", "torchvision")), catalog.family, new)

    assert terms_of(demand, old, catalog) is terms_of(same, new, catalog)


def test_another_glibc_has_terms_of_its_own():
    here = bare_machine(machine("T4"))
    older = bare_machine(machine("T4", glibc="2.17"))
    catalog = frozen_catalog()
    (demand,) = parse_request(Request(), catalog.family, here)

    assert terms_of(demand, here, catalog) is not terms_of(demand, older, catalog)
