"""The question of one lock: a request with its candidate builds.

Each alternative is a copy with some fields replaced. The questions of several targets
have a common Python and torch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import Advice, make_change
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import (
    COMMAND_LINE,
    Constraint,
    Requirement,
    RequirementT,
    requirement_names,
)
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value, asdict, field, replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import PAIRED
from gpuinstall.lock.file.target import Target, parse_minor
from gpuinstall.lock.request.lock_request import LockRequest, plan_or_raise
from gpuinstall.plan import Plan
from gpuinstall.plan.companions import Companions
from gpuinstall.plan.demand import parse_request
from gpuinstall.plan.python import find_release, get_minor_version
from gpuinstall.wheels.members import load_members

if TYPE_CHECKING:
    from packaging.tags import Tag
    from packaging.version import Version

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Catalog, Wheel
    from gpuinstall.machine.protocol import Rules

Requests = Sequence[LockRequest]

PER_TARGET = "Set per-target = true in [tool.gpuinstall] to select the newest torch for each target"
TARGETS_DISAGREE = "targets-disagree"
MOST_WORDS = 40
"""Maximum number of requirements in a command that a hint suggests."""


class Alternative(Value):
    """The preferred and pinned versions for one attempt, for all targets."""

    preferences: Mapping[str, str] = field(default_factory=dict)
    """The versions to keep unless a requirement excludes them."""

    moving: Mapping[str, str] = field(default_factory=dict)
    """The locked versions of the only packages to upgrade."""

    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of torch-family packages to pin."""

    locks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """All versions in each target's lock, to keep the lock unchanged."""

    other_python: str | None = None
    """The Python version to select if possible; None for the usual one."""

    kept: tuple[Wheel, ...] | None = None
    """The locked wheels that replace the pages of torch's source.

    A resolution that another torch may improve is refused. None: any torch is possible.
    """

    warnings: tuple[Reason, ...] = ()
    """The warnings about the resolution of this alternative."""

    hashes: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of locked files, by name and by URL."""

    optional_pins: tuple[Requirement, ...] = ()
    """The pins that uv may drop, last one first."""

    wheels_only: frozenset[str] = frozenset()
    """Packages that are not built from source."""

    metadata: tuple[Mapping[str, Any], ...] = ()
    """METADATA of local projects without their requirements."""

    @property
    def torch(self) -> Version | None:
        """The pinned version of torch."""
        pin = self.pins.get("torch")
        return parse_public_version(pin) if pin else None


class Question(Alternative, kw_only=True):
    """The request and builds to resolve for one target."""

    lock_request: LockRequest

    plan: Plan
    """The plan before packages are inspected."""

    builds: tuple[Build, ...]
    """The builds of torch that uv may select, best first."""

    requirements: tuple[Requirement, ...]
    """The requirements in the order in which uv decides them."""

    bounds: tuple[Constraint, ...] = ()
    """Lower bounds that request newer releases."""

    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    """The prebuilt file of each extension."""

    common: Version | None = None
    """The latest torch version for all targets; None for a single target."""

    common_limit: str = ""
    """The reason why not all targets support a later torch version."""

    @property
    def is_strict(self) -> bool:
        """Whether to refuse an answer that another torch may improve."""
        return self.kept is not None

    @property
    def python(self) -> str:
        """The Python version, ``X.Y``."""
        return self.plan.choice.python

    @cached_property
    def target(self) -> Target:
        """The target to resolve for, with its backend and platform."""
        return self.lock_request.create_target(self.builds[0])

    @cached_property
    def tags(self) -> tuple[Tag, ...]:
        """The wheel tags of the platform, best first."""
        return self.target.tags(self.python)

    @property
    def catalog(self) -> Catalog:
        """The builds that the sources currently list."""
        return self.lock_request.catalog

    @cached_property
    def gpus(self) -> tuple[tuple[Rules, Gpu], ...]:
        """The GPUs to support, each with the rules of its vendor."""
        return tuple(self.lock_request.find_running_gpus(self.plan))

    @cached_property
    def requested(self) -> frozenset[str]:
        """The names of the requested packages and torch."""
        return requirement_names(self.requirements) | {"torch"}

    @cached_property
    def programs(self) -> tuple[Requirement, ...]:
        """The requirements outside the torch family, for the target."""
        return tuple(
            one
            for one in self.requirements
            if one.name not in self.catalog.family and self.is_applicable(one)
        )

    @cached_property
    def is_frozen(self) -> bool:
        """Whether every requirement is pinned, as by ``pip freeze``.

        A single pin is an ordinary request.
        """
        counting = [*filter(self.is_applicable, self.lock_request.request.requirements)]
        return len(counting) > 1 and all(one.is_exact or one.url for one in counting)

    def is_applicable(self, requirement: Requirement) -> bool:
        """Return whether the marker of a requirement applies to the target."""
        return requirement.applies_in(self.markers)

    @cached_property
    def markers(self) -> Mapping[str, str]:
        """The marker values of the target and its Python."""
        one = self.lock_request
        release = find_release(self.python, one.request, one.machine)
        return self.target.environment(release)

    @cached_property
    def has_no_gpu(self) -> bool:
        """Whether the target has no GPU for which packages could have code."""
        is_for_cuda = any(build.backend.kind == "cuda" for build in self.builds)
        return not self.gpus and not is_for_cuda

    def find_limits(self, package: str) -> list[Requirement]:
        """Return the requested requirements and constraints for a package."""
        return [
            one
            for one in (*self.requirements, *self.constraints)
            if one.name == package and self.is_applicable(one)
        ]

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints of the request and of the alternative."""
        family = self.catalog.family
        own = [
            remove_backend_labels(one, family)
            for one in self.lock_request.request.constraints
        ]
        pins = [
            Constraint.of(name, f"=={parse_public_version(pin)}")
            for name, pin in self.pins.items()
        ]
        return (*own, *pins, *self.bounds)

    @property
    def is_open(self) -> bool:
        """Whether packages, not the plan, determine the build of torch.

        If the catalog lacks a version of torch or of a companion, only METADATA lists
        the compatible versions.
        """
        if self.lock_request.has_programs or self.plan.choice.build.learned:
            return True
        companions = Companions((), self.catalog)
        return any(
            companions.is_uncataloged(build, one)
            for build in self.plan.runnable
            for one in self.lock_request.request.requirements
        )

    @property
    def narrowed_request(self) -> LockRequest:
        """The request, limited to builds with compatible extension files."""
        if not self.files:
            return self.lock_request
        builds = set(self.builds)
        catalog = self.catalog.exclude_builds(
            lambda build: not (build.absent or build in builds), "without-extension"
        )
        return replace(self.lock_request, catalog=catalog)

    @property
    def torches(self) -> frozenset[Version]:
        """The versions of torch that uv may select."""
        return frozenset(build.torch for build in self.builds)

    def with_alternative(self, alternative: Alternative) -> Question:
        """Return a copy with an alternative and the versions of its lock."""
        locked = alternative.locks.get(str(self.target), {})
        own = replace(
            alternative,
            preferences={**alternative.preferences, **locked},
            pins=locked or alternative.pins,
        )
        return replace(self, **asdict(own))

    def with_torch_versions(self, torches: Container[Version]) -> Question:
        """Return a copy of the question for certain torch versions."""
        return self.with_builds(one for one in self.builds if one.torch in torches)

    def with_builds(self, builds: Iterable[Build]) -> Question:
        """Return a copy of the question for certain torch builds."""
        return replace(self, builds=tuple(builds))


def suggest_request_without(
    package: str, lock_request: LockRequest, torch: str = ""
) -> Advice:
    """Return the hint that omits a package from the request.

    Args:
        package: The package.
        lock_request: The request.
        torch: The requirement that replaces the requested one of torch, if any.
    """
    omitted = {package, "torch"} if torch else {package}
    kept = [one for one in lock_request.request.requirements if one.name not in omitted]
    without = [
        one
        for one in lock_request.request.requirements
        if one.name in omitted and one.origin == COMMAND_LINE
    ]
    words = [torch] if torch else []
    note = f"omits {package}"
    if package in requirement_names(without) or not lock_request.builds_here:
        if not words and not any(one.origin == COMMAND_LINE for one in kept):
            words = ["torch"] if lock_request.builds_here else []
        texts = [one.written or one.text for one in without]
        return make_change(*words, without=texts or [package], note=note)
    for one in kept:
        words += ["-e", one.url or ""] if one.editable else [one.text]
    if len(words) > MOST_WORDS:
        return make_change(without=[package])
    return make_change("--only", *(words or ["torch"]), note=note)


def is_library_of_torch(package: str) -> bool:
    """Return whether a package provides torch's libraries, such as cuDNN."""
    return package not in PAIRED and bool(load_members().with_torch.fullmatch(package))


def remove_backend_labels(
    requirement: RequirementT, family: frozenset[str]
) -> RequirementT:
    """Return a requirement without the backend labels in its versions.

    The builds already have the selected backend.
    """
    if requirement.name not in family or "+" not in str(requirement.specifier):
        return requirement
    clauses = []
    for clause in requirement.specifier or ():
        version, _, label = clause.version.partition("+")
        if not label:
            clauses.append(str(clause))
        elif clause.operator != "!=":
            clauses.append(f"=={version}")
    return requirement.with_specifier(",".join(clauses))


def allow_any_version(request: LockRequest, packages: Container[str]) -> LockRequest:
    """Return a request that allows any version of these packages."""
    requirements = tuple(
        one.with_specifier("") if one.name in packages and not one.url else one
        for one in request.request.requirements
    )
    constraints = tuple(
        one for one in request.request.constraints if one.name not in packages
    )
    return request.with_request_changes(
        requirements=requirements, constraints=constraints
    )


def create_question(lock_request: LockRequest, plan: Plan) -> Question:
    """Return the question for one lock file.

    For a request with only torch-family packages, the plan determines the build.
    Otherwise, uv may select any build that runs.
    """
    family = lock_request.catalog.family
    question = Question(
        lock_request=lock_request,
        plan=plan,
        builds=plan.runnable,
        requirements=tuple(
            remove_backend_labels(one, family)
            for one in lock_request.request.requirements
        ),
    )
    return question if question.is_open else question.with_builds([plan.choice.build])


def create_questions(
    requests: Requests, alternative: Alternative | None = None
) -> list[Question]:
    """Return a question for each target, with a common Python.

    Args:
        requests: The request for each target.
        alternative: The torch and Python to select if all targets support them.

    Raises:
        MachineError: A machine can run no build.
        NoBuildError: No build is compatible, or the targets have no common torch.
    """
    alternative = alternative or Alternative()
    first = requests[0]
    torches: list[Version | None] = [None]
    pythons: list[str | None]
    if len(requests) == 1:
        torches = [*dict.fromkeys((alternative.torch, None))]
        pythons = [*dict.fromkeys((alternative.other_python, None))]
    else:
        pythons = [
            *sorted(
                _list_pythons(requests), key=lambda one: one != alternative.other_python
            )
        ]
        if not first.request.newest_per_target:
            common = set.intersection(*map(set, map(list_torch_versions, requests)))
            locked = alternative.torch
            torches = [
                *sorted(common, key=lambda one: (one == locked, one), reverse=True)
            ]
    for torch, python in product(torches, pythons):
        outcomes = [one.choose_build(torch=torch, python=python) for one in requests]
        plans = [one for one in outcomes if isinstance(one, Plan)]
        if len(plans) == len(requests):
            questions = _create_with_python(requests, plans, python)
            return [question.with_alternative(alternative) for question in questions]
    # A target without any build raises its own error here.
    available = []
    for one in requests:
        listed = join_names([*map(str, list_torch_versions(one))])
        available.append(f"{one.label}: torch {listed}")
    raise NoBuildError(
        TARGETS_DISAGREE,
        "no torch version is available for all targets",
        evidence=" · ".join(available),
        hint=PER_TARGET,
    )


def list_torch_versions(request: LockRequest) -> list[Version]:
    """Return the torch versions that run on a target, latest first."""
    return sorted({build.torch for build in request.plan.runnable}, reverse=True)


def _list_pythons(requests: Requests) -> list[str]:
    """Return the Python versions to try for all targets, in order.

    The preferred versions are first, then the catalog's default, then the others from
    latest to oldest.
    """
    first = requests[0]
    demand = parse_request(first.request, first.catalog, first.machine)
    released = {
        python
        for request in requests
        for build in request.plan.runnable
        for python in build.pythons
    }
    pythons = [*map(get_minor_version, first.request.preferred_pythons)]
    pythons.append(first.catalog.settled_python)
    pythons += sorted(released, key=parse_minor, reverse=True)
    return list(dict.fromkeys(filter(demand.pythons.__contains__, pythons)))


def _create_with_python(
    requests: Requests,
    plans: Sequence[Plan],
    python: str | None,
) -> list[Question]:
    """Return the questions for one Python version.

    Args:
        requests: The request for each target.
        plans: The plan of each target.
        python: The ``X.Y`` version for all targets; None if each target has its own.
    """
    first = requests[0]
    if len(requests) > 1 and first.has_programs:
        plans = [
            plan_or_raise(one.choose_build(python=python), one.machine)
            for one in requests
        ]
    questions = [
        create_question(one, plan) for one, plan in zip(requests, plans, strict=True)
    ]
    if len(requests) == 1 or first.request.newest_per_target:
        return questions
    torches = frozenset.intersection(*(one.torches for one in questions))
    return [
        replace(
            one.with_torch_versions(torches),
            common=max(torches),
            common_limit=_explain_common_torch(requests, max(torches)),
        )
        for one in questions
    ]


def _explain_common_torch(requests: Requests, common: Version) -> str:
    """Return which targets have no later torch, or ""."""
    newest = {one.label: list_torch_versions(one)[0] for one in requests}
    limiting = [label for label, torch in newest.items() if torch == common]
    later = [torch for torch in newest.values() if torch > common]
    if not limiting or not later:
        return ""
    targets = join_names(limiting)
    return f"torch {common} is the newest for {targets}; the other targets support torch {min(later)}"
