"""What each driver branch gives a machine: the question before a card or a driver is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.machine import Driver
from gpuinstall.plan.choice import choose
from gpuinstall.plan.values import Plan

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog


class DriverRange(NamedTuple):
    """Neighbouring driver branches with the same newest build."""

    first: int
    last: int
    build: str

    @property
    def branches(self) -> str:
        """The branches for people: ``570–575``, or one alone."""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


def driver_ranges(
    machine: Machine,
    catalog: Catalog,
    request: Request,
) -> list[DriverRange]:
    """Return the newest build under each driver branch that runs one on every GPU, the oldest branch first.

    If no build runs on all of them, the branches count under which each has one of its own.
    """
    return _ranges(native_build, machine, catalog, request) or _ranges(
        _build_of_some, machine, catalog, request
    )


def _ranges(
    build_for: Callable[[Machine, Request, Catalog], str | None],
    machine: Machine,
    catalog: Catalog,
    request: Request,
) -> list[DriverRange]:
    ranges: list[DriverRange] = []
    for version in catalog.drivers.versions:
        with_driver = replace(machine, driver=Driver(version, found_via="words"))
        build = build_for(with_driver, request, catalog)
        if build is None:
            continue
        first = version.branch
        if ranges and ranges[-1].build == build:
            first = ranges.pop().first
        ranges.append(DriverRange(first, version.branch, build))
    return ranges


def native_build(machine: Machine, request: Request, catalog: Catalog) -> str | None:
    """Return the build for a machine; None if there is none, or a GPU would run it as PTX alone."""
    plan = choose(machine, request, catalog)
    if isinstance(plan, Plan) and {run.how for run in plan.gpus}.isdisjoint({"ptx", "none"}):
        return plan.choice.build.name
    return None


def _build_of_some(machine: Machine, request: Request, catalog: Catalog) -> str | None:
    """Return the build for a machine on which each GPU by itself has one; None if one has none, or the only one."""
    alone = [replace(machine, gpus=(gpu,)) for gpu in machine.gpus]
    if len(alone) == 1 or not all(native_build(one, request, catalog) for one in alone):
        return None
    plan = choose(machine, request, catalog)
    return plan.choice.build.name if isinstance(plan, Plan) else None
