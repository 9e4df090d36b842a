"""What a refusal says to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpuinstall.catalog import load_catalog
from gpuinstall.errors import InstallationError
from gpuinstall.plan import choose
from gpuinstall.plan.error import error_of
from gpuinstall.request import Request
from tests.unit.plan.machines import machine

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog


def with_only_the_default_index() -> Catalog:
    catalog = load_catalog()
    builds = (build if build.on_default_index else replace(build, absent="unreachable") for build in catalog.builds)
    return replace(catalog, builds=tuple(builds))


@pytest.mark.parametrize(
    ("cards", "branches"),
    [(["RTX 4090"], "580 or newer"), (["GTX 1080"], "branch 580"), (["K80", "RTX 4090"], "branch 470")],
)
def test_a_missing_driver_is_asked_for_by_the_branches_that_drive_every_gpu(cards: list[str], branches: str) -> None:
    made = choose(machine(*cards, driver=None), Request(), load_catalog())

    assert (made.exit_code, made.reasons[0].code) == (8, "no-driver")
    assert branches in (made.fix or "").splitlines()[0]


def test_musl_is_not_offered_the_cpu_build_which_does_not_run_there_either() -> None:
    made = choose(machine("RTX 4090", libc="musl"), Request(), load_catalog())

    assert (made.exit_code, made.reasons[0].code) == (3, "musl")
    assert "--backend cpu" not in (made.fix or "")


def test_a_build_that_only_an_unreachable_index_has_is_a_failure_of_the_network() -> None:
    asked = machine("RTX 4090")
    made = choose(asked, Request(requirements=("torch==2.14.1+cu126",)), with_only_the_default_index())

    assert (made.exit_code, made.reasons[0].code) == (4, "unreachable")
    assert isinstance(error_of(made, asked), InstallationError)


def test_an_older_torch_taken_because_an_index_cannot_be_reached_says_so() -> None:
    made = choose(machine("RTX 4090", driver="535.183.01"), Request(), with_only_the_default_index())

    assert made.choice is not None
    assert made.choice.build.name == "2.10.0+cu128"
    assert made.reasons[0].code == "newest-reachable"
