from __future__ import annotations

import pytest

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import UsageError
from gpuinstall.fleet.classes import classes_in, spanned
from gpuinstall.fleet.fleet_plan import FleetPlan, plan_fleet
from gpuinstall.plan import Plan
from gpuinstall.request import Request

NAMES = ("RTX 30", "RTX 40", "A800")


def covered(*names: str, drivers: str | None = None, newest: bool = False) -> FleetPlan:
    catalog = load_catalog()
    return plan_fleet(
        classes_in(names, drivers, "x86_64", catalog), Request(), catalog, newest=newest
    )


def served(plan: FleetPlan) -> list[tuple[str, str]]:
    return [
        (group.build.name, spanned(plan.classes[at] for at in group.classes))
        for group in plan.groups
    ]


def test_a_series_is_every_card_of_its_code_under_each_branch_of_the_range() -> None:
    classes = classes_in(NAMES, ">=525,<590", "x86_64", load_catalog())
    assert spanned(classes) == "RTX 30, RTX 40, A800 with driver 525–580"
    assert {str(kind.machine.gpus[0].compute_capability) for kind in classes} == {
        "8.6",
        "8.9",
        "8.0",
    }
    assert spanned(classes_in(["A800"], "570", "x86_64", load_catalog())) == "A800 with driver 570"


def test_the_fewest_locks_serve_a_range_and_with_the_newest_each_driver_has_its_own_torch() -> None:
    fewest, newest = (covered(*NAMES, drivers=">=470", newest=newest) for newest in (False, True))
    assert len(fewest.groups) == 1
    alone = [plan.choice.build.torch for plan in newest.plans if isinstance(plan, Plan)]
    torches = [group.build.torch for group in newest.groups for _ in group.classes]
    assert sorted(torches) == sorted(alone)
    assert {serves.rpartition(" ")[2] for _, serves in served(newest)} >= {"525–575"}


def test_what_no_build_runs_on_is_said_by_gpu_and_driver() -> None:
    plan = covered("RTX 40", drivers=">=470,<530")
    assert spanned(plan.classes[at] for at in plan.uncovered) == "RTX 40 with driver 470–515"


def test_every_gpu_that_is_known_is_served_under_some_driver_or_named() -> None:
    plan = covered()
    every = {position for group in plan.groups for position in group.classes} | set(plan.uncovered)
    assert every == set(range(len(plan.classes)))
    assert {"cuda", "rocm", "xpu"} == {group.build.backend.kind for group in plan.groups}


@pytest.mark.parametrize("drivers", ["new", ">=", "470-580"])
def test_a_range_that_is_none_is_refused(drivers: str) -> None:
    with pytest.raises(UsageError, match="not a range of driver branches"):
        classes_in(["RTX 30"], drivers, "x86_64", load_catalog())
