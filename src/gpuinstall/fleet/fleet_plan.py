"""The plan of a fleet: the fewest locks for every node that any lock can serve, exactly. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import GpuInstallError, NoBuildError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.cover import Cover, ServingBuild, best_cover, serving_builds
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.fleet.classes import NodeClass
    from gpuinstall.request import Request


@dataclass(frozen=True)
class PlannedGroup:
    """A build for one Python, and the positions of the classes that it serves."""

    build: Build
    python: str
    classes: tuple[int, ...]


@dataclass(frozen=True)
class FleetPlan:
    """The locks to make for classes of nodes."""

    classes: tuple[NodeClass, ...]
    plans: tuple[Plan | Rejected, ...]
    """What each class would choose alone, by position."""
    groups: tuple[PlannedGroup, ...]
    """The locks to make."""

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The classes that no lock can serve."""
        plans = enumerate(self.plans)
        return tuple(position for position, plan in plans if isinstance(plan, Rejected))

    def nodes(self, positions: Iterable[int]) -> tuple[NodeName, ...]:
        """Return the nodes of some classes."""
        nodes: list[NodeName] = []
        for position in positions:
            nodes += self.classes[position].nodes
        return tuple(nodes)

    def to_dict(self) -> dict[str, Any]:
        """Return what is known before the locks are made."""
        builds = {}
        for group in self.groups:
            builds.update(dict.fromkeys(group.classes, group.build.name))
        classes = []
        for position, kind in enumerate(self.classes):
            classes.append(
                {
                    "label": kind.label,
                    "nodes": compress(kind.nodes),
                    "count": len(kind.nodes),
                    "build": builds.get(position),
                }
            )
        uncovered = [self._uncovered(position).to_dict() for position in self.uncovered]
        return {"classes": classes, "uncovered": uncovered}

    def _uncovered(self, position: int) -> UnservedNodes:
        kind = self.classes[position]
        plan = self.plans[position]
        error: GpuInstallError = NoBuildError("refused", "no build fits")
        if isinstance(plan, Rejected):
            error = plan.error(kind.machine)
        return UnservedNodes(kind.nodes, error.code, error.message, error.hint, kind.label)


def plan_fleet(
    classes: Sequence[NodeClass],
    request: Request,
    catalog: Catalog,
    *,
    newest: bool = False,
) -> FleetPlan:
    """Return the smallest set of locks.

    Args:
        classes: The nodes.
        request: What all of them are to have.
        catalog: The builds to choose from.
        newest: Whether each class has the torch that it would have alone.

    Raises:
        NoBuildError: The nodes have no Python in common.
    """
    plans = [choose(kind.machine, request, catalog) for kind in classes]
    if newest:
        plans = [_of_newest_torch(plan) if isinstance(plan, Plan) else plan for plan in plans]
    served = [position for position, plan in enumerate(plans) if isinstance(plan, Plan)]
    builds = serving_builds([kind.machine for kind in classes], plans, catalog)
    cover = best_cover(builds, served)
    python = _common_python(cover, classes, plans, request, catalog) if cover else ""
    groups = _groups(cover, python, plans)
    return FleetPlan(tuple(classes), tuple(plans), tuple(groups))


def _of_newest_torch(plan: Plan) -> Plan:
    torch = plan.choice.build.torch
    return replace(plan, runnable=tuple(build for build in plan.runnable if build.torch == torch))


def _groups(
    cover: Cover,
    python: str,
    plans: Sequence[Plan | Rejected],
) -> Iterator[PlannedGroup]:
    """Yield each build of the cover with the classes that prefer it."""
    members: dict[int, list[int]] = {}
    for position, plan in enumerate(plans):
        fitting = [number for number, serving in enumerate(cover) if position in serving.ranks]
        if not fitting or isinstance(plan, Rejected):
            continue
        ranks = {build.name: rank for rank, build in enumerate(plan.runnable)}
        best = min(fitting, key=lambda number: ranks[cover[number].build.name])
        members.setdefault(best, []).append(position)
    for number, positions in sorted(members.items()):
        yield PlannedGroup(cover[number].build, python, tuple(positions))


def _common_python(
    cover: Cover,
    classes: Sequence[NodeClass],
    plans: Sequence[Plan | Rejected],
    request: Request,
    catalog: Catalog,
) -> str:
    """Return the Python for every node: one that all have, else one that can be fetched."""
    common = set.intersection(*(set(serving.build.pythons) for serving in cover))
    preferred = [
        *request.preferred_pythons,
        *(plan.choice.python for plan in plans if isinstance(plan, Plan)),
        catalog.settled_python,
        *sorted(common, key=_minor, reverse=True),
    ]
    demands = parse_request(request, catalog.family, classes[0].machine)
    usable = []
    for python in dict.fromkeys(preferred):
        is_unrequested = python.endswith("t") and python != request.python
        if python not in common or is_unrequested:
            continue
        if any(demand.suits(python) for demand in demands):
            usable.append(python)
    positions = {position for serving in cover for position in serving.ranks}
    installed = [classes[position].machine.pythons for position in positions]
    at_hand = [python for python in usable if all(_has(own, python) for own in installed)]
    for python in (*at_hand, *usable):
        wanted = replace(request, python=python)
        if all(_runs_everywhere(serving, classes, wanted, catalog) for serving in cover):
            return python
    message = "the nodes share no Python version that the builds support"
    raise NoBuildError("no-common-python", message, hint="the same with --python 3.12")


def _minor(python: str) -> int:
    return int(python.rstrip("t").partition(".")[2])


def _runs_everywhere(
    serving: ServingBuild,
    classes: Sequence[NodeClass],
    request: Request,
    catalog: Catalog,
) -> bool:
    """Whether every class of a build can have it with the Python of the request."""
    names = catalog.family
    family = [text for text in request.requirements if parse_requirement(text).name in names]
    wanted = replace(request, requirements=tuple(family) or ("torch",))
    own_catalog = replace(catalog, builds=(serving.build,))
    for position in serving.ranks:
        outcome = choose(classes[position].machine, wanted, own_catalog)
        if isinstance(outcome, Rejected):
            return False
    return True


def _has(pythons: Sequence[str] | None, python: str) -> bool:
    return pythons is None or any(version.startswith(f"{python}.") for version in pythons)
