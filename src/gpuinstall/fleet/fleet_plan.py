"""The plan of a fleet: the fewest locks that serve every node that any lock can serve, exactly. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import NoBuildError
from gpuinstall.fleet.documents import UnservedNodes
from gpuinstall.fleet.hostlist import NodeName, compress
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.cover import ServingBuild, best_cover, serving_builds
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.requirement import parse_requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
    """Find the smallest set of locks; raise NoBuildError where its nodes have no Python in common.

    With ``newest`` it is the smallest in which each class has the torch that it would have alone.
    """
    return Planner(request, catalog, newest=newest).plan(classes)


class Planner:
    """Plans of one request and catalogue; what a class runs is found out once."""

    def __init__(self, request: Request, catalog: Catalog, *, newest: bool = False) -> None:
        self._request, self._catalog, self._newest = request, catalog, newest
        self._plans: dict[int, tuple[NodeClass, Plan | Rejected]] = {}

    def alone(self, kind: NodeClass) -> Plan | Rejected:
        """What a class would choose alone."""
        if id(kind) not in self._plans:
            plan = choose(kind.machine, self._request, self._catalog)
            if self._newest and isinstance(plan, Plan):
                torch = plan.choice.build.torch
                plan = replace(plan, runnable=tuple(build for build in plan.runnable if build.torch == torch))
            self._plans[id(kind)] = kind, plan
        return self._plans[id(kind)][1]

    def plan(self, classes: Sequence[NodeClass]) -> FleetPlan:
        """Find the smallest set of locks for classes."""
        plans = tuple(map(self.alone, classes))
        candidates = serving_builds([kind.machine for kind in classes], plans, self._catalog)
        cover = best_cover(candidates, [position for position, plan in enumerate(plans) if isinstance(plan, Plan)])
        python = self._python(cover, classes, plans) if cover else ""
        return FleetPlan(tuple(classes), plans, tuple(self._groups(cover, python, plans)))

    def _groups(
        self, cover: Sequence[ServingBuild], python: str, plans: Sequence[Plan | Rejected]
    ) -> Iterable[PlannedGroup]:
        """Give each class the build of the cover that it prefers."""
        mine: dict[int, list[int]] = {}
        for position, plan in enumerate(plans):
            fitting = [serving for serving in cover if position in serving.ranks]
            if fitting and isinstance(plan, Plan):
                order = {build.name: rank for rank, build in enumerate(plan.runnable)}
                best = min(fitting, key=lambda serving: order[serving.build.name])
                mine.setdefault(cover.index(best), []).append(position)
        for number, positions in sorted(mine.items()):
            yield PlannedGroup(cover[number].build, python, tuple(positions))

    def _python(
        self, cover: Sequence[ServingBuild], classes: Sequence[NodeClass], plans: Sequence[Plan | Rejected]
    ) -> str:
        """The Python for every node: one that all have where there is one, else one that can be fetched."""
        common = set.intersection(*(set(serving.build.pythons) for serving in cover))
        chosen = [plan.choice.python for plan in plans if isinstance(plan, Plan)]
        newest_first = sorted(common, key=lambda version: int(version.rstrip("t").partition(".")[2]), reverse=True)
        order = dict.fromkeys((*self._request.preferred_pythons, *chosen, self._catalog.settled_python, *newest_first))
        demands = parse_request(self._request, self._catalog.family, classes[0].machine)
        free = [version for version in order if version == self._request.python or not version.endswith("t")]
        usable = [version for version in free if version in common and any(one.suits(version) for one in demands)]
        machines = [classes[number].machine for serving in cover for number in sorted(serving.ranks)]
        at_hand = [version for version in usable if all(_has(machine.pythons, version) for machine in machines)]
        for python in (*at_hand, *usable):
            if all(self._runs(serving, python, classes) for serving in cover):
                return python
        message = "the nodes share no Python version that the builds support"
        raise NoBuildError("no-common-python", message, hint="the same with --python 3.12")

    def _runs(self, candidate: ServingBuild, python: str, classes: Sequence[NodeClass]) -> bool:
        """Say whether every class of a build has it with one Python."""
        alone, requirements = replace(self._catalog, builds=(candidate.build,)), self._request.requirements
        family = tuple(text for text in requirements if parse_requirement(text).name in self._catalog.family)
        wanted = replace(self._request, python=python, requirements=family or ("torch",))
        outcomes = (choose(classes[number].machine, wanted, alone) for number in candidate.ranks)
        return all(isinstance(outcome, Plan) for outcome in outcomes)


def _has(pythons: Sequence[str] | None, python: str) -> bool:
    return pythons is None or any(version.startswith(f"{python}.") for version in pythons)
