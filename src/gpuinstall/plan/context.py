"""What the rules are given: the terms of a request on a platform, and the machine with its GPUs and its driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.requirement import marker_holds, normalised, parse_requirement
from gpuinstall.base.values import dataclass
from gpuinstall.machine.protocol import Code
from gpuinstall.plan.companions import Companions
from gpuinstall.plan.python import at_hand, minor_version, number, span

if TYPE_CHECKING:
    from packaging.version import Version

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Gpu
    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.catalog import Build, CudaName
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.plan.demand import Demand
    from gpuinstall.plan.values import ProgramConstraints


Codes = tuple[Code | Reason, ...]
"""What each GPU of a context runs of a build, or why it runs nothing."""

GpuPositions = tuple[int, ...]
"""A set of GPUs, by their positions among those of a context."""


@dataclass(frozen=True, eq=False)
class Terms:
    """What a choice depends on beside GPUs and driver, and what it looks up for each build."""

    demand: Demand
    platform: Machine
    catalog: Catalog

    @cached_property
    def builds(self) -> tuple[Build, ...]:
        """The builds for this platform, the newest torch first."""
        platform = self.platform
        return self.catalog.builds_for(platform.os, platform.arch)

    @cached_property
    def positions(self) -> dict[Build, int]:
        """The position of each build in the order of the catalogue."""
        return {build: position for position, build in enumerate(self.builds)}

    @cached_property
    def companions(self) -> Companions:
        """The requested packages of torch's family."""
        newest = {}
        for python in sorted(self.platform.pythons or (), key=number):
            newest[minor_version(python)] = python
        releases = self.catalog.releases
        known = [torch for torch in self.requested_torches if torch in releases]
        return Companions(
            self.demand.family,
            self.catalog,
            newest_patches=frozenset(newest.values()),
            is_before_triton=not any(releases[torch].triton for torch in known),
        )

    @cached_property
    def ages(self) -> dict[Version, int]:
        """The rank of each torch version of this platform: 0 is the newest."""
        torches = dict.fromkeys(build.torch for build in self.builds)
        return {torch: age for age, torch in enumerate(torches)}

    @cached_property
    def requested_torches(self) -> frozenset[Version]:
        """The torch versions that satisfy the demand."""
        return frozenset(filter(self.demand.wants, self.ages))

    @cached_property
    def excluded_builds(self) -> frozenset[str]:
        """The builds that the demand excludes by name, as in ``torch!=2.15.0+cu132``."""
        excluded = set()
        for specifier in self.demand.torch or ():
            if specifier.operator == "!=":
                excluded.add(specifier.version.lower())
        return frozenset(excluded)

    @cached_property
    def cuda_names(self) -> dict[str, CudaName]:
        """What is requested, beside the family, by a name that carries a CUDA."""
        cuda_names = {}
        for requirement in map(parse_requirement, self.demand.others):
            cuda_name = self._cuda_name(requirement)
            if cuda_name:
                cuda_names[requirement.text] = cuda_name
        return cuda_names

    def _cuda_name(self, requirement: ParsedRequirement) -> CudaName | None:
        """Return the CUDA in the name or in an extra of a requirement that counts on this machine."""
        marker = requirement.marker
        python = self.catalog.settled_python
        if marker and not marker_holds(marker, self.platform, python):
            return None
        rows = self.catalog.cuda_names()
        extras = [f"{requirement.name}[{normalised(name)}]" for name in requirement.extra_names]
        for name in (requirement.name, *extras):
            # A name without a number has no CUDA if a version is requested.
            if requirement.specifier and name.isalpha():
                continue
            if name in rows:
                return rows[name]
        return None

    def python(self, pythons: tuple[str, ...]) -> str | Reason:
        """Return the Python for a build that has wheels for some, or why there is none.

        The order: what is fixed; the Python of the environment being replaced and the one running; the newest at hand;
        one that can be fetched.
        """
        demand = self.demand
        fitting = [python for python in pythons if demand.suits(python)]
        if not fitting:
            return self._unsupported(pythons)
        if not isinstance(demand.python, str):
            # A free-threaded Python is never chosen unless it is requested.
            fitting = [python for python in fitting if not python.endswith("t")]
        for python in at_hand(demand.preferred, self.platform):
            if python in fitting:
                return python
        can_fetch = demand.managed or self.platform.pythons is None
        if fitting and can_fetch:
            newest = number(self.catalog.settled_python)
            supported = [python for python in fitting if number(python) <= newest]
            if supported:
                return max(supported, key=number)
            return min(fitting, key=number)
        minors = map(minor_version, self.platform.pythons or ())
        installed = ", ".join(dict.fromkeys(minors)) or "none"
        message = (
            f"it requires Python {span(fitting or pythons)}; "
            f"installed: {installed}, and no other is available"
        )
        return Reason("no-python", message)

    def _unsupported(self, pythons: tuple[str, ...]) -> Reason:
        """Return that there are wheels for these Pythons, and not for the requested one."""
        packages = {package for package, _ in self.catalog.companions}
        companions = [name for name in self.demand.family if name in packages]
        subject = "it has"
        if companions:
            subject = f"it and {' and '.join(companions)} have"
        return Reason(
            "python-unsupported",
            f"{subject} wheels for Python {span(pythons)}, not {self.demand.python}",
        )


@dataclass(frozen=True)
class PlanContext:
    """What one choice is made from."""

    machine: Machine
    terms: Terms
    rules: Rules
    """Those of the maker of the GPUs."""

    gpus: tuple[Gpu, ...] = ()
    """Those to plan for, in the order of their indices."""

    program_constraints: ProgramConstraints | None = None
    """What the programs of the request came to; None if they were not resolved."""

    left_out: Mapping[int, Finding] = field(default_factory=dict)
    """What is wrong with the GPUs that are not planned for, by their indices."""

    @property
    def demand(self) -> Demand:
        """What must hold of the plan."""
        return self.terms.demand

    @property
    def catalog(self) -> Catalog:
        """The builds to choose from, and what is known of them."""
        return self.terms.catalog

    @cached_property
    def every_position(self) -> GpuPositions:
        """All its GPUs."""
        return tuple(range(len(self.gpus)))

    def with_gpus_at(self, positions: tuple[int, ...]) -> PlanContext:
        """Return the context of some of its GPUs."""
        gpus = [self.gpus[position] for position in positions]
        return replace(self, gpus=tuple(gpus))
