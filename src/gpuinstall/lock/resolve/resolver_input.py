"""The resolver input of one lock: a request with its candidate builds.

Each alternative is a copy with some fields replaced.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    RequirementT,
    requirement_names,
)
from gpuinstall.base.values import Value, field, replace
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.plan import Plan

if TYPE_CHECKING:
    from packaging.tags import Tag

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build, Catalog, Wheel
    from gpuinstall.machine.protocol import Rules

Requests = Sequence[LockRequest]


class Alternative(Value):
    """The preferred and pinned versions for one attempt, for all targets."""

    preferences: Mapping[str, str] = field(default_factory=dict)
    """The versions to keep unless a requirement excludes them."""

    pins: Mapping[str, str] = field(default_factory=dict)
    """The versions of torch-family packages to pin."""

    locks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """All versions in each target's lock, to keep the lock unchanged."""

    python: str | None = None
    hashes: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of locked files, by name and by URL."""

    optional_pins: tuple[Requirement, ...] = ()
    """The pins that uv may drop, last one first."""

    metadata: tuple[Mapping[str, Any], ...] = ()
    """METADATA of local projects without their requirements."""

    @property
    def torch(self) -> Version | None:
        """The pinned version of torch."""
        pin = self.pins.get("torch")
        return parse_public_version(pin) if pin else None


class ResolverInput(Value):
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

    alternative: Alternative = field(default_factory=Alternative)

    files: Mapping[str, tuple[Wheel, ...]] = field(default_factory=dict)
    """The prebuilt file of each extension."""

    common: Version | None = None
    """The latest torch version for all targets; None for a single target."""

    limiting_target: str = ""
    """The target that does not support a later torch version."""

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
        return requirement.applies_on(self.lock_request.machine, self.python)

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
            for name, pin in self.alternative.pins.items()
        ]
        return (*own, *pins, *self.bounds)

    @property
    def is_open(self) -> bool:
        """Whether packages, not the plan, determine the build of torch.

        If the catalog lacks a torch version, only METADATA lists its companions.
        """
        return (
            self.lock_request.has_programs or self.plan.choice.build.learned is not None
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

    def with_alternative(self, alternative: Alternative) -> ResolverInput:
        """Return a copy with an alternative and the versions of its lock."""
        locked = alternative.locks.get(str(self.target), {})
        own = replace(
            alternative,
            preferences={**alternative.preferences, **locked},
            pins=locked or alternative.pins,
        )
        return replace(self, alternative=own)

    def with_torch_versions(self, torches: Container[Version]) -> ResolverInput:
        """Return a copy of the resolver input for certain torch versions."""
        return self.with_builds(one for one in self.builds if one.torch in torches)

    def with_builds(self, builds: Iterable[Build]) -> ResolverInput:
        """Return a copy of the resolver input for certain torch builds."""
        return replace(self, builds=tuple(builds))


def parse_public_version(version: str) -> Version:
    """Return a version without its local label."""
    return Version(Version(version).public)


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
