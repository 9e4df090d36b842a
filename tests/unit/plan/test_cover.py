"""The fewest builds that serve several machines."""

from __future__ import annotations

from gpuinstall.plan.cover import ServingBuild, best_cover
from tests.frozen import frozen_catalog


def candidate(
    age: int, ranks: dict[int, int], *, nccl: str = "1", compiled: frozenset[int] = frozenset()
) -> ServingBuild:
    return ServingBuild(
        frozen_catalog().builds[0], age=age, collective_library=nccl, ranks=ranks, compiled=compiled
    )


def test_ties_are_broken_in_order():
    other = candidate(1, {0: 0})
    pairs = {
        "one collective library": (candidate(1, {1: 0}), candidate(1, {1: 0}, nccl="2")),
        "machine code": (candidate(1, {1: 5}), candidate(1, {1: 0}, compiled=frozenset({1}))),
        "the newest toolkit": (candidate(1, {1: 0}), candidate(1, {1: 1})),
    }
    wrong = []
    for name, (better, worse) in pairs.items():
        covers = [
            best_cover(order, {0, 1}) for order in ([other, worse, better], [better, worse, other])
        ]
        if not all(better in cover for cover in covers):
            wrong.append(name)
    assert wrong == []


def test_one_torch_for_all_comes_before_the_newest():
    old = [candidate(5, {0: 9}), candidate(5, {1: 9})]
    new = candidate(0, {1: 0})

    assert set(best_cover([*old, new], {0, 1})) == set(old)


def test_a_machine_that_no_build_serves_leaves_no_cover():
    assert best_cover([candidate(0, {0: 0})], {0, 1}) == ()
