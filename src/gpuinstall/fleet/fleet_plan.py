"""The plan of a fleet: the fewest locks that serve every node that any lock can serve, exactly. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import NoBuildError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.cover import Cover, ServingBuild, best_cover, serving_builds
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.requirement import parse_requirement

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
    """``plans`` are what each class would choose alone, by position; ``groups`` are the locks to make."""

    classes: tuple[NodeClass, ...]
    plans: tuple[Plan | Rejected, ...]
    groups: tuple[PlannedGroup, ...]

    @property
    def uncovered(self) -> tuple[int, ...]:
        """The classes that no lock can serve."""
        return tuple(position for position, plan in enumerate(self.plans) if isinstance(plan, Rejected))

    def nodes(self, positions: Iterable[int]) -> tuple[NodeName, ...]:
        """The nodes of some classes."""
        return tuple(node for position in positions for node in self.classes[position].nodes)

    def to_dict(self) -> dict[str, Any]:
        """Write what is known before the locks are made."""
        lock_of = {position: group.build.name for group in self.groups for position in group.classes}
        classes = []
        for position, kind in enumerate(self.classes):
            row = {"label": kind.label, "nodes": compress(kind.nodes), "count": len(kind.nodes)}
            classes.append(row | {"build": lock_of.get(position)})
        return {"classes": classes, "uncovered": [self._uncovered(position).to_dict() for position in self.uncovered]}

    def _uncovered(self, position: int) -> UnservedNodes:
        kind, plan = self.classes[position], self.plans[position]
        refused = NoBuildError("refused", "no build fits")
        error = plan.error(kind.machine) if isinstance(plan, Rejected) else refused
        return UnservedNodes(kind.nodes, error.code, error.message, error.hint, kind.label)


def plan_fleet(classes: Sequence[NodeClass], request: Request, catalog: Catalog, *, newest: bool = False) -> FleetPlan:
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
    cover = best_cover(serving_builds([kind.machine for kind in classes], plans, catalog), served)
    python = _common_python(cover, classes, plans, request, catalog) if cover else ""
    return FleetPlan(tuple(classes), tuple(plans), tuple(_groups(cover, python, plans)))


def _of_newest_torch(plan: Plan) -> Plan:
    torch = plan.choice.build.torch
    return replace(plan, runnable=tuple(build for build in plan.runnable if build.torch == torch))


def _groups(cover: Cover, python: str, plans: Sequence[Plan | Rejected]) -> Iterator[PlannedGroup]:
    """Yield each build of the cover with the classes that prefer it."""
    members: dict[int, list[int]] = {}
    for position, plan in enumerate(plans):
        fitting = [serving for serving in cover if position in serving.ranks]
        if fitting and isinstance(plan, Plan):
            order = {build.name: rank for rank, build in enumerate(plan.runnable)}
            best = min(fitting, key=lambda serving: order[serving.build.name])
            members.setdefault(cover.index(best), []).append(position)
    for number, positions in sorted(members.items()):
        yield PlannedGroup(cover[number].build, python, tuple(positions))


def _common_python(
    cover: Cover,
    classes: Sequence[NodeClass],
    plans: Sequence[Plan | Rejected],
    request: Request,
    catalog: Catalog,
) -> str:
    """Return the Python for every node: one that all have if there is one, else one that can be fetched."""
    common = set.intersection(*(set(serving.build.pythons) for serving in cover))
    chosen = [plan.choice.python for plan in plans if isinstance(plan, Plan)]
    newest_first = sorted(common, key=lambda version: int(version.rstrip("t").partition(".")[2]), reverse=True)
    order = dict.fromkeys((*request.preferred_pythons, *chosen, catalog.settled_python, *newest_first))
    demands = parse_request(request, catalog.family, classes[0].machine)
    released = [version for version in order if version == request.python or not version.endswith("t")]
    usable = [version for version in released if version in common and any(one.suits(version) for one in demands)]
    machines = [classes[number].machine for serving in cover for number in sorted(serving.ranks)]
    at_hand = [version for version in usable if all(_has(machine.pythons, version) for machine in machines)]
    for python in (*at_hand, *usable):
        wanted = replace(request, python=python)
        if all(_runs_everywhere(serving, classes, wanted, catalog) for serving in cover):
            return python
    message = "the nodes share no Python version that the builds support"
    raise NoBuildError("no-common-python", message, hint="the same with --python 3.12")


def _runs_everywhere(serving: ServingBuild, classes: Sequence[NodeClass], request: Request, catalog: Catalog) -> bool:
    """Whether every class of a build can have it with the Python of the request."""
    family = tuple(text for text in request.requirements if parse_requirement(text).name in catalog.family)
    wanted, alone = replace(request, requirements=family or ("torch",)), replace(catalog, builds=(serving.build,))
    outcomes = (choose(classes[number].machine, wanted, alone) for number in serving.ranks)
    return all(isinstance(outcome, Plan) for outcome in outcomes)


def _has(pythons: Sequence[str] | None, python: str) -> bool:
    return pythons is None or any(version.startswith(f"{python}.") for version in pythons)
