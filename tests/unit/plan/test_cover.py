"""What serves several GPUs, and several machines."""

from packaging.version import Version

from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.machine.vendors import rules_for
from gpuinstall.plan.candidates import gpus_to_serve
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.cover import ServingBuild, best_cover
from gpuinstall.plan.demand import parse_request
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import card, machine


def candidate(age, ranks):
    """A build, the torch of which has so many that are newer."""
    build = frozen_catalog().builds[0]
    return ServingBuild(replace(build, torch=Version(f"2.{99 - age}.0")), ranks)


def test_of_equally_small_covers_the_newest_torch_comes_first_then_what_the_machines_would_choose():
    other = candidate(1, {0: 0})
    for better, worse in (
        (candidate(1, {1: 5}), candidate(2, {1: 0})),
        (candidate(1, {1: 0}), candidate(1, {1: 1})),
    ):
        for order in ([other, worse, better], [better, worse, other]):
            assert better in best_cover(order, {0, 1})


def test_one_torch_for_all_comes_before_the_newest():
    old = [candidate(5, {0: 9}), candidate(5, {1: 9})]
    new = candidate(0, {1: 0})

    assert set(best_cover([*old, new], {0, 1})) == set(old)


def test_a_machine_that_no_build_serves_leaves_no_cover():
    assert best_cover([candidate(0, {0: 0})], {0, 1}) == ()


def test_gpus_are_served_by_capability_then_memory_then_number_then_index():
    unknown = [card("V100", index, memory_mib=None) for index in (4, 5, 6)]
    there = machine("A100", "T4", "V100", "V100", *unknown)
    catalog = frozen_catalog()
    demand = parse_request(Request(), frozenset({"torch"}), there)
    context = PlanContext(there, demand, rules_for(there, catalog), there.gpus)

    assert gpus_to_serve([(0,), (1, 2, 3)], context) == (0,)
    assert gpus_to_serve([(2,), (3, 4), (2, 3)], context) == (2, 3)
    assert gpus_to_serve([(2,), (2, 4)], context) == (2, 4)
    assert gpus_to_serve([(4,), (5, 6)], context) == (5, 6)
    assert gpus_to_serve([(3,), (2,)], context) == (2,)
    assert gpus_to_serve([], context) == ()
