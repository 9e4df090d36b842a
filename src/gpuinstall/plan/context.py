"""What the rules are given: the machine, the demand, the catalogue, the maker's rules, and what they ask again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from gpuinstall.plan.python import python_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan.demand import Demand
    from gpuinstall.plan.values import Settled
    from gpuinstall.vendors.protocol import Reason, Rules


@dataclass(frozen=True)
class PlanContext:
    """``gpus`` are those to plan for, in the order of their indices; ``rules`` are their maker's.

    ``settled`` is what the programs of the request came to, where they have been looked at.
    """

    machine: Machine
    demand: Demand
    catalog: Catalog
    rules: Rules
    gpus: tuple[Gpu, ...] = ()
    settled: Settled | None = None

    @cached_property
    def builds(self) -> tuple[Build, ...]:
        """The builds for this platform, the newest torch first."""
        return self.catalog.builds_for(self.machine.os, self.machine.arch)

    @cached_property
    def has_makers_builds(self) -> bool:
        """Say whether any build for this platform is of the kind that serves the maker's GPUs."""
        return any(build.backend.kind == self.rules.kind for build in self.builds)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position of each build of the platform, by identity."""
        return {id(build): position for position, build in enumerate(self.builds)}

    @cached_property
    def ages(self) -> dict[Version, int]:
        """The rank of each torch version of this platform: 0 is the newest."""
        return {torch: age for age, torch in enumerate(dict.fromkeys(build.torch for build in self.builds))}

    @cached_property
    def architecture_names(self) -> tuple[str | None, ...]:
        """The architecture of each GPU."""
        return tuple(map(self.rules.architecture, self.gpus))

    @cached_property
    def architectures(self) -> dict[str | None, Gpu]:
        """One GPU of each architecture, the first."""
        found: dict[str | None, Gpu] = {}
        for name, gpu in zip(self.architecture_names, self.gpus, strict=True):
            found.setdefault(name, gpu)
        return found

    @cached_property
    def wanted(self) -> frozenset[Version]:
        """The torch versions that satisfy the demand."""
        return frozenset(torch for torch in self.ages if self.demand.wants(torch))

    @cached_property
    def unwanted(self) -> frozenset[str]:
        """The builds that the demand excludes by name, as in ``torch!=2.15.0+cu132``."""
        return frozenset(one.version.lower() for one in self.demand.torch or () if one.operator == "!=")

    @cached_property
    def suiting(self) -> dict[tuple[int, str], tuple[str, ...] | None]:
        """The versions of each companion that suit a build, by the build's identity: each is looked up once."""
        return {}

    @cached_property
    def python(self) -> Callable[[tuple[str, ...]], str | Reason]:
        """The Python to take of those that a build has wheels for, or why there is none; each is decided once."""
        return cache(partial(python_for, demand=self.demand, machine=self.machine, catalog=self.catalog))
