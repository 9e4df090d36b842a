"""The plan of a fleet: classes, the fewest locks, ties, what is not served, what newer drivers would give."""

from __future__ import annotations

import time
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuinstall.fleet.classes import NodeClass, node_classes
from gpuinstall.fleet.fleet_plan import FleetPlan, plan_fleet
from gpuinstall.fleet.hostlist import NodeName, expand
from gpuinstall.fleet.locks import lock_request
from gpuinstall.lock.code_check import served_gpus
from gpuinstall.plan import Plan
from gpuinstall.request import Request
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator

H100, A100, V100 = (
    ("H100 SXM", "580.95.05"),
    ("A100 SXM4 80GB", "535.183.01"),
    ("V100", "470.256.02"),
)
RTX_5090, B300, K80 = ("RTX 5090", "570.86.10"), ("B300", "580.95.05"), ("K80", "470.256.02")
DRIVERS = (
    "470.256.02",
    "525.60.13",
    "535.183.01",
    "550.144.03",
    "570.86.10",
    "580.95.05",
    "610.43.02",
)
GPUS = ("V100", "T4", "A100 SXM4 80GB", "L40S", "H100 SXM", "B200")


def document(gpu: str, driver: str, count: int = 8) -> dict[str, Any]:
    return machine_in_words((gpu,) * count, driver, None, None).to_dict()


def fleet(*kinds: tuple[str, str], each: int = 2) -> tuple[NodeClass, ...]:
    names = iter(expand("n[1-999]"))
    return node_classes((next(names), document(*kind)) for kind in kinds for _ in range(each))[0]


def planned(*kinds: tuple[str, str], asked: str = "torch") -> FleetPlan:
    return plan_fleet(fleet(*kinds), Request((asked,)), frozen_catalog())


def locks(plan: FleetPlan) -> dict[str, str]:
    """The classes of each lock, by the first node of each."""
    return {group.build.name: ",".join(plan.nodes(group.classes)) for group in plan.groups}


def test_nodes_that_a_choice_cannot_tell_apart_are_one_class() -> None:
    one, other = document(*H100), document(*H100)
    other["gpus"][0]["uuid"] = "GPU-another"
    fewer = document(*H100, count=7)
    classes, malformed = node_classes(zip(expand("n[1-3]"), (one, other, fewer), strict=True))

    assert [kind.nodes for kind in classes] == [("n1", "n2"), ("n3",)]
    assert malformed == ()
    assert classes[0].label == "8 × H100 SXM (sm_90) · driver 580.95.05"


def test_gpus_of_one_name_and_other_code_are_two_classes() -> None:
    gpus = [
        {"index": 0, "name": "AMD Radeon Graphics", "vendor": "amd", "compute_capability": None}
    ]
    least = {"schema": "gpuinstall.machine/1", "os": "linux", "arch": "x86_64"}
    documents = [
        (NodeName(f"n{number}"), {**least, "gpus": [{**gpus[0], "architecture": chip}]})
        for number, chip in enumerate(("gfx1100", "gfx1151", "gfx1100"))
    ]

    assert [(kind.gpus, kind.nodes) for kind in node_classes(documents)[0]] == [
        ("1 × AMD Radeon Graphics (gfx1100)", ("n0", "n2")),
        ("1 × AMD Radeon Graphics (gfx1151)", ("n1",)),
    ]


@pytest.mark.parametrize(
    "machine",
    [
        None,
        7,
        [],
        {},
        {"driver": 5},
        {"gpus": 1},
        {"pythons": [3]},
        {"schema": []},
        {"os": {"a": 1}},
    ],
)
def test_a_machine_that_is_none_is_that_of_its_node_alone(machine: Any) -> None:
    classes, (malformed,) = node_classes(
        [(NodeName("n1"), document(*H100)), (NodeName("n2"), machine)]
    )

    assert [kind.nodes for kind in classes] == [("n1",)]
    assert (malformed.nodes, malformed.code) == (("n2",), "machine-malformed")


def test_each_maker_has_a_lock_of_one_torch_and_its_chips_share_it() -> None:
    cards = (("H100 SXM", "580.95.05"), ("RX 7900 XTX", None), ("MI300X", None), ("Arc B580", None))
    documents = [
        (NodeName(f"n{number}"), machine_in_words((card,), driver).to_dict())
        for number, (card, driver) in enumerate(cards)
    ]
    plan = plan_fleet(node_classes(documents)[0], Request(("torch",)), frozen_catalog())

    assert locks(plan) == {"2.14.1+cu130": "n0", "2.14.1+rocm7.2": "n1,n2", "2.14.1+xpu": "n3"}
    assert plan.uncovered == ()


def test_one_lock_serves_all_where_one_can() -> None:
    assert locks(planned(H100, A100, V100)) == {"2.7.1+cu118": "n1,n2,n3,n4,n5,n6"}


def test_of_equally_few_locks_those_of_one_torch_are_taken() -> None:
    plan = planned(H100, RTX_5090, V100)

    assert len(plan.groups) == 2
    assert len({group.build.torch for group in plan.groups}) == 1


def test_every_lock_has_the_same_python() -> None:
    assert len({group.python for group in planned(H100, A100, V100, K80, B300).groups}) == 1


@pytest.mark.parametrize(
    ("asked", "python"), [("3.12", "3.12"), (">=3.12", "3.12"), ("3.13t", "3.13t")]
)
def test_the_python_that_is_asked_for_comes_before_those_preferred(asked: str, python: str) -> None:
    request = Request(python=asked, preferred_pythons=("3.11", "3.12"))
    assert {
        group.python for group in plan_fleet(fleet(H100, A100), request, frozen_catalog()).groups
    } == {python}


def test_a_lock_is_for_the_gpus_of_every_class_under_its_own_driver() -> None:
    plan = planned(("V100", "580.95.05"), ("H100 SXM", "610.43.02"))
    (group,) = plan.groups
    wanted = lock_request(group, plan, Request(), frozen_catalog())

    # Driver 610 no longer drives a V100, which has another.
    assert wanted.plan.warnings == ()
    assert [gpu.label for _, gpu in served_gpus(wanted, wanted.plan)] == ["V100"] * 8 + [
        "H100 SXM"
    ] * 8


def test_what_no_lock_serves_is_named_with_its_reason() -> None:
    plan = planned(H100, V100, asked="torch==2.14.1")
    (left,) = plan.to_dict()["uncovered"]

    assert (left["nodes"], left["count"]) == ("n[3-4]", 2)
    assert left["message"]
    assert left["hint"]


def test_nobody_surveyed_is_no_plan() -> None:
    assert plan_fleet((), Request(), frozen_catalog()).groups == ()


@given(
    st.lists(
        st.tuples(st.sampled_from(GPUS), st.sampled_from(DRIVERS)),
        min_size=1,
        max_size=5,
        unique=True,
    )
)
@settings(max_examples=25)
def test_no_smaller_set_serves_all_and_every_lock_runs_where_it_is_for(
    kinds: list[tuple[str, str]],
) -> None:
    plan = planned(*kinds)
    runs = [
        {build.name for build in each.runnable} for each in plan.plans if isinstance(each, Plan)
    ]
    names = set().union(*runs)
    fewer = combinations(sorted(names), max(0, len(plan.groups) - 1))

    assert not runs or not any(all(one & set(chosen) for one in runs) for chosen in fewer)
    for group in plan.groups:
        own = [plan.plans[position] for position in group.classes]
        assert all(isinstance(each, Plan) and group.build in each.runnable for each in own)
    covered = {position for group in plan.groups for position in group.classes}
    assert covered == set(range(len(plan.classes))) - set(plan.uncovered)


def kinds_of_forty() -> list[tuple[str, str]]:
    return [(gpu, driver) for gpu in GPUS for driver in DRIVERS][:40]


def many(count: int) -> Iterator[tuple[NodeName, dict[str, Any]]]:
    kinds = [document(*kind) for kind in kinds_of_forty()]
    return ((NodeName(f"n{number}"), kinds[number % len(kinds)]) for number in range(count))


def test_the_cost_of_a_plan_grows_no_faster_than_its_nodes() -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        plan_fleet(node_classes(many(count))[0], Request(), frozen_catalog())
        return time.process_time() - start

    seconds(40)
    assert seconds(16_000) < 6 * seconds(4_000) + 0.2
