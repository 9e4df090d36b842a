"""What a newer driver on some nodes would give, the fewest nodes first: a table for the administrator. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.fleet.fleet_plan import FleetPlan, Planner
from gpuinstall.fleet.hostlist import compress
from gpuinstall.machine import Driver
from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.fleet.classes import NodeClass
    from gpuinstall.request import Request


@dataclass(frozen=True)
class DriverUpdate:
    """A driver's branch for some nodes, what it gives, and the drivers that they have now."""

    nodes: tuple[str, ...]
    now: tuple[str, ...]
    branch: int
    gives: tuple[str, ...]

    def __str__(self) -> str:
        count = f"{len(self.nodes)} nodes" if len(self.nodes) > 1 else "1 node"
        return f"driver {', '.join(self.now)} → {self.branch} on {count} gives {' and '.join(self.gives)}"

    def to_dict(self) -> dict[str, Any]:
        """Write a row of the table."""
        return {
            "nodes": compress(self.nodes),
            "count": len(self.nodes),
            "now": list(self.now),
            "branch": self.branch,
            "gives": list(self.gives),
            "message": str(self),
        }


def driver_updates(plan: FleetPlan, request: Request, catalog: Catalog) -> tuple[DriverUpdate, ...]:
    """Find the updates that help, each for one class or for all that are behind, the cheapest first."""
    planner, branch = Planner(request, catalog), catalog.drivers.recommended_branch
    behind = [number for number, one in enumerate(plan.classes) if _is_behind(one, branch)]
    alone = [found for number in behind if (found := _update(plan, (number,), branch, planner))]
    together = _update(plan, tuple(behind), branch, planner) if len(behind) > 1 else None
    known = {gain for each in alone for gain in each.gives}
    more = [together] if together and not known.issuperset(together.gives) else []
    return (*sorted(alone, key=lambda each: len(each.nodes)), *more)


def _update(plan: FleetPlan, positions: tuple[int, ...], branch: int, planner: Planner) -> DriverUpdate | None:
    classes = [_updated(one, branch) if number in positions else one for number, one in enumerate(plan.classes)]
    gives = tuple(_gains(plan, planner.plan(classes), positions))
    now = (plan.classes[number].machine.driver for number in positions)
    drivers = tuple(dict.fromkeys(str(driver.version) if driver else "none" for driver in now))
    return DriverUpdate(plan.nodes(positions), drivers, branch, gives) if gives else None


def _gains(now: FleetPlan, then: FleetPlan, positions: tuple[int, ...]) -> Iterable[str]:
    """What is better than it was: nodes that were not served, fewer locks, a newer torch for the oldest."""
    if gained := [number for number in positions if number in now.uncovered and number not in then.uncovered]:
        count = len(now.nodes(gained))
        yield f"a lock for {count} more node{'s' if count > 1 else ''}"
    if now.groups and len(then.groups) < len(now.groups) and len(then.uncovered) <= len(now.uncovered):
        yield "one lock for all" if len(then.groups) == 1 else f"{len(then.groups)} locks instead of {len(now.groups)}"
    oldest, newer = (min((group.build.torch for group in plan.groups), default=None) for plan in (now, then))
    if oldest and newer and newer > oldest:
        yield f"torch {newer} instead of {oldest}"


def _is_behind(one: NodeClass, branch: int) -> bool:
    """Say whether a class has a driver that is older than the one to have; what is broken is repaired first."""
    driver = one.machine.driver
    return bool(driver and driver.version and driver.version.branch < branch and not one.machine.refusing)


def _updated(one: NodeClass, branch: int) -> NodeClass:
    driver = Driver(DriverVersion.parse(str(branch)), None, "update")
    return replace(one, machine=replace(one.machine, driver=driver))
