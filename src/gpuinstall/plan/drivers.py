"""The build that a driver gives a machine: the question before a card or a driver is chosen."""

from __future__ import annotations

from gpuinstall.base.machine import Driver, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import replace
from gpuinstall.catalog.catalog import Catalog
from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan


def newest_branch(machine: Machine, catalog: Catalog) -> int | None:
    """Return the newest driver branch under which one build has code for every GPU; None if there is none."""
    for version in reversed(catalog.drivers.versions):
        with_driver = replace(machine, driver=Driver(version, found_via="words"))
        if native_build(with_driver, catalog):
            return version.branch
    return None


def native_build(machine: Machine, catalog: Catalog) -> str | None:
    """Return the build for a machine; None if there is none, or a GPU would run it as PTX alone.

    Args:
        machine: The machine, with the driver in question.
        catalog: The builds, and what is known of drivers.
    """
    plan = choose(machine, Request(), catalog)
    if isinstance(plan, Plan) and {run.how for run in plan.gpus}.isdisjoint(
        {"ptx", "none"}
    ):
        return plan.choice.build.name
    return None
