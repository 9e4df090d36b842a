"""The problem that uv is given of a lock: what is wanted, and beside it what narrows the search."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    RequirementT,
    names_of,
)
from gpuinstall.base.text import some
from gpuinstall.base.values import Value, field, replace
from gpuinstall.lock.file.target import Target, minor
from gpuinstall.lock.request.lock_request import LockRequest, plan_or_raise
from gpuinstall.plan import Plan
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.values import HELD_BACK

if TYPE_CHECKING:
    from packaging.tags import Tag

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Catalog, Wheel
    from gpuinstall.machine.protocol import Rules


Requests = Sequence[LockRequest]

PER_TARGET = (
    "Set per-target = true in [tool.gpuinstall]: each target gets its own newest torch"
)


TARGETS_DISAGREE = "targets-disagree"


class Near(Value):
    """What narrows the search for a lock: the versions of earlier locks that stay, and the pins that may give way."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """The versions that stay if nothing is against them."""

    pinned: Mapping[str, str] = field(default_factory=dict)
    """The versions of the family that stay whatever is against them, as torch does."""

    locks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """All versions of the lock of each target, if the whole lock is to stay as it is."""

    python: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of the files that stay, by name and by address."""

    yielding: tuple[Requirement, ...] = ()
    """The pins that may give way, the last of them first."""

    metadata: tuple[Mapping[str, Any], ...] = ()
    """Rows in place of the METADATA of projects in folders, whose requirements stand among those of the request."""

    @property
    def torch(self) -> Version | None:
        """The torch that stays."""
        pin = self.pinned.get("torch")
        return public(pin) if pin else None


class Problem(Value):
    """One lock to make: what the user wants never changes, what narrows the search is beside it."""

    wanted: LockRequest

    plan: Plan
    """The choice before the programs are looked at."""

    builds: tuple[Build, ...]
    """The builds of torch that it may have, the best first."""

    requirements: tuple[Requirement, ...]
    """What uv is to resolve, in the user's order."""

    common: Version | None = None
    """The newest torch that all targets run; None: there is no other target."""

    holder: str = ""
    """The target that runs no newer one."""

    near: Near = field(default_factory=Near)
    """What stays of the lock of its target; its plan was made for the torch of it."""

    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    """The one file of each extension, by name."""

    @property
    def python(self) -> str:
        """The Python that it is for, ``X.Y``."""
        return self.plan.choice.python

    @cached_property
    def target(self) -> Target:
        """The platform that it is for."""
        return self.wanted.target(self.builds[0])

    @cached_property
    def tags(self) -> tuple[Tag, ...]:
        """The tags of the wheels that can be installed, the best first."""
        return self.target.tags(self.python)

    @property
    def catalog(self) -> Catalog:
        """The catalogue, as the sources list it today."""
        return self.wanted.catalog

    @cached_property
    def gpus(self) -> tuple[tuple[Rules, Gpu], ...]:
        """The GPUs to serve, each with the rules of its machine."""
        return tuple(self.wanted.gpus(self.plan))

    @cached_property
    def requested(self) -> frozenset[str]:
        """The names of what is requested, torch among them."""
        return names_of(self.requirements) | {"torch"}

    @property
    def programs(self) -> tuple[Requirement, ...]:
        """What is requested beside the family, by name and in order, and what else is required of it."""
        return tuple(
            one
            for one in self.requirements
            if one.name not in self.catalog.family and self.counts(one)
        )

    def counts(self, requirement: Requirement) -> bool:
        """Whether the marker of a requirement holds here."""
        return requirement.counts_on(self.wanted.machine, self.python)

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The user's own constraints, and those that keep what a lock holds."""
        family = self.catalog.family
        constraints = self.wanted.request.constraints
        own = [without_label(one, family) for one in constraints]
        pins = [
            Constraint.of(name, f"=={public(pin)}")
            for name, pin in self.near.pinned.items()
        ]
        return (*own, *pins)

    @property
    def is_open(self) -> bool:
        """Whether what is requested decides which of the builds that run is taken, and not the plan alone.

        Which companions go with a torch that the catalogue does not know, METADATA alone tells.
        """
        if self.wanted.names_programs:
            return True
        return self.plan.choice.build.learned is not None

    @property
    def narrowed(self) -> LockRequest:
        """What is wanted, without the builds that no file of an extension goes with."""
        if not self.files:
            return self.wanted
        builds = set(self.builds)
        catalog = self.catalog.without(
            lambda build: not (build.absent or build in builds), "without-extension"
        )
        return replace(self.wanted, catalog=catalog)

    @property
    def torches(self) -> frozenset[Version]:
        """The versions of torch that it may have."""
        return frozenset(build.torch for build in self.builds)

    def near_to(self, near: Near) -> Problem:
        """Return the same near to what stays of the lock of its target."""
        locked = near.locks.get(str(self.target), {})
        own = replace(
            near,
            versions={**near.versions, **locked},
            pinned=locked or near.pinned,
        )
        return replace(self, near=own)

    def with_torches(self, torches: Container[Version]) -> Problem:
        """Return the same with the builds of some releases of torch."""
        return self.with_builds(one for one in self.builds if one.torch in torches)

    def with_builds(self, builds: Iterable[Build]) -> Problem:
        """Return the same with some of its builds."""
        return replace(self, builds=tuple(builds))


def pose(wanted: LockRequest, plan: Plan) -> Problem:
    """Return the problem of a lock: of the family alone the plan decides, else every build that runs is open."""
    choice = plan.choice
    problem = Problem(wanted, plan, (choice.build,), choice.requirements)
    if not problem.is_open:
        return problem
    family = wanted.catalog.family
    return replace(
        problem,
        builds=plan.runnable or problem.builds,
        requirements=tuple(
            without_label(one, family) for one in wanted.request.requirements
        ),
    )


def pose_together(
    requests: Requests,
    *,
    torch: Version | None = None,
    python: str | None = None,
) -> list[Problem]:
    """Return a problem for every lock, with one Python and the torches that all of them run, or each its own.

    Args:
        requests: The locks.
        torch: The torch that stays if all can have it.
        python: The Python that stays if all can have it.

    Raises:
        MachineError: if a machine can have none.
        NoBuildError: if there is none for all.
    """
    first = requests[0]
    torches: list[Version | None] = [None]
    if len(requests) == 1:
        # Each is tried once: without a lock, both are None.
        torches = [*dict.fromkeys((torch, None))]
        pythons = [*dict.fromkeys((python, None))]
    else:
        pythons = sorted(_pythons(requests), key=lambda one: one != python)
        if not first.request.newest_per_target:
            common = common_torches(requests)
            torches = sorted(common, key=lambda one: one != torch)
    for one_torch, one_python in product(torches, pythons):
        outcomes = [
            request.outcome_with(torch=one_torch, python=one_python)
            for request in requests
        ]
        plans = [one for one in outcomes if isinstance(one, Plan)]
        if len(plans) == len(requests):
            return _agreed(requests, plans, one_python)
    # What refuses one of them by itself is raised here.
    available = [f"{one.label}: torch {_torches_of(one)}" for one in requests]
    raise NoBuildError(
        TARGETS_DISAGREE,
        "no torch version is available for all targets",
        evidence=" · ".join(available),
        hint=PER_TARGET,
    )


def _torches_of(request: LockRequest) -> str:
    """Return the torch versions that a target can have, latest first."""
    torches = {build.torch for build in request.plan.runnable}
    return some([str(torch) for torch in sorted(torches, reverse=True)])


def held_back_by(requests: Requests, chosen: Version) -> list[Reason]:
    """Return which target or machine keeps torch at the one chosen, and what the others would have."""
    first = requests[0]
    # Of several targets with programs each says it of itself.
    are_told = len(requests) > 1 and first.names_programs
    if are_told or first.request.newest_per_target:
        return []
    return [
        Reason(HELD_BACK, f"{newest_for(name, chosen)}; the others would have {torch}")
        for name, torch in holders(requests, chosen).items()
    ]


def newest_for(name: str, torch: Version) -> str:
    """Return in words who keeps torch at a version."""
    return f"torch {torch} is the newest for {name}"


def holders(requests: Requests, chosen: Version) -> dict[str, Version]:
    """Return the targets that prevent a newer torch, each with that torch."""
    members = {request.label: request for request in requests}
    torches = {
        name: {build.torch for build in one.plan.runnable}
        for name, one in members.items()
    }
    found: dict[str, Version] = {}
    if len(members) == 1:
        return found
    common = set.intersection(*torches.values())
    if chosen < max(common):
        return found
    for name in members:
        others = [torches[other] for other in members if other != name]
        without = max(set.intersection(*others))
        if without > chosen:
            found[name] = without
    return found


def _agreed(
    requests: Requests,
    plans: Sequence[Plan],
    python: str | None,
) -> list[Problem]:
    """Return the problems for one Python: of programs with all torches that every target runs, else with the newest.

    Args:
        requests: One for each target.
        plans: What each of them comes to by itself.
        python: The ``X.Y`` that all are to have; None: their own.
    """
    first = requests[0]
    is_shared = len(requests) > 1 and first.names_programs
    if is_shared:
        plans = [
            plan_or_raise(one.outcome_with(python=python), one.machine)
            for one in requests
        ]
    problems = [pose(one, plan) for one, plan in zip(requests, plans, strict=True)]
    if not is_shared or first.request.newest_per_target:
        return problems
    common = frozenset.intersection(*(problem.torches for problem in problems))
    holder = next(iter(holders(requests, max(common))), "all targets")
    agreed = [replace(one, common=max(common), holder=holder) for one in problems]
    return [one.with_torches(common) for one in agreed]


def without_versions(
    request: LockRequest,
    packages: Collection[str],
) -> LockRequest:
    """Return a request that leaves the versions of some packages open."""
    requirements = []
    for requirement in request.request.requirements:
        is_open = requirement.name in packages and not requirement.url
        requirements.append(requirement.with_specifier("") if is_open else requirement)
    constraints = request.request.constraints
    kept = [one for one in constraints if one.name not in packages]
    return request.asking(requirements=tuple(requirements), constraints=tuple(kept))


def public(version: str) -> Version:
    """Return a version without its label."""
    return Version(Version(version).public)


def without_label(requirement: RequirementT, family: frozenset[str]) -> RequirementT:
    """Return a requirement of the family without the backend in its versions: the page has builds of that one alone."""
    if requirement.name not in family or "+" not in str(requirement.specifier):
        return requirement
    clauses = []
    for clause in requirement.specifier or ():
        public, _, label = clause.version.partition("+")
        if not label:
            clauses.append(str(clause))
        elif clause.operator != "!=":
            clauses.append(f"=={public}")
    return requirement.with_specifier(",".join(clauses))


def common_torches(requests: Requests) -> list[Version]:
    """Return the torch versions that run for every request, newest first; raise what refuses one of them."""
    torches = [{build.torch for build in request.plan.runnable} for request in requests]
    return sorted(set.intersection(*torches), reverse=True)


def _pythons(requests: Requests) -> list[str]:
    """Return the Pythons to try for all: the one that is fixed, else those preferred, the settled one, the newest first."""
    first = requests[0]
    demand = parse_request(first.request, first.catalog.family, first.machine)
    if isinstance(demand.python, str):
        return [demand.python]
    released = {
        python
        for request in requests
        for build in request.plan.runnable
        for python in build.pythons
    }
    pythons = [*first.request.preferred_pythons, first.catalog.settled_python]
    pythons += sorted(released, key=minor, reverse=True)
    return list(dict.fromkeys(filter(demand.pythons.__contains__, pythons)))
