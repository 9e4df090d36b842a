"""The fewest builds that serve several machines."""

from __future__ import annotations

from gpuinstall.plan.cover import ServingBuild, best_cover
from tests.frozen import frozen_catalog


def candidate(age: int, ranks: dict[int, int]):
    return ServingBuild(frozen_catalog().builds[0], age=age, ranks=ranks)


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
