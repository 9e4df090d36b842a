"""What the rules are given: the machine, the demand, the catalogue, the maker's rules, and what they ask again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING

from gpuinstall.finding import Reason
from gpuinstall.plan.companions import Companions
from gpuinstall.plan.python import at_hand, minor_version, number, span
from gpuinstall.plan.requirement import marker_holds, normalised, parse_requirement

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.version import Version

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.catalog import Build, CudaName
    from gpuinstall.finding import Finding
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan.demand import Demand
    from gpuinstall.plan.values import Settled
    from gpuinstall.vendors.protocol import Rules


@dataclass(frozen=True)
class PlanContext:
    """What one choice is made from."""

    machine: Machine
    demand: Demand
    catalog: Catalog
    rules: Rules
    """Those of the maker of the GPUs."""

    gpus: tuple[Gpu, ...] = ()
    """Those to plan for, in the order of their indices."""

    settled: Settled | None = None
    """What the programs of the request came to; None if they were not resolved."""

    left_out: Mapping[int, Finding] = field(default_factory=dict)
    """What is wrong with the GPUs that are not planned for, by their indices."""

    @cached_property
    def builds(self) -> tuple[Build, ...]:
        """The builds for this platform, the newest torch first."""
        return self.catalog.builds_for(self.machine.os, self.machine.arch)

    @cached_property
    def companions(self) -> Companions:
        """The requested packages of torch's family."""
        newest = {
            minor_version(python): python
            for python in sorted(self.machine.pythons or (), key=number)
        }
        return Companions(self.demand.family, self.catalog, frozenset(newest.values()))

    @cached_property
    def ages(self) -> dict[Version, int]:
        """The rank of each torch version of this platform: 0 is the newest."""
        return {
            torch: age
            for age, torch in enumerate(dict.fromkeys(build.torch for build in self.builds))
        }

    @cached_property
    def architecture_names(self) -> tuple[str | None, ...]:
        """The architecture of each GPU."""
        return tuple(map(self.rules.architecture, self.gpus))

    @cached_property
    def architectures(self) -> dict[str | None, Gpu]:
        """One GPU of each architecture, the first."""
        first: dict[str | None, Gpu] = {}
        for name, gpu in zip(self.architecture_names, self.gpus, strict=True):
            first.setdefault(name, gpu)
        return first

    @cached_property
    def wanted(self) -> frozenset[Version]:
        """The torch versions that satisfy the demand."""
        return frozenset(torch for torch in self.ages if self.demand.wants(torch))

    @cached_property
    def unwanted(self) -> frozenset[str]:
        """The builds that the demand excludes by name, as in ``torch!=2.15.0+cu132``."""
        return frozenset(
            part.version.lower() for part in self.demand.torch or () if part.operator == "!="
        )

    @cached_property
    def cuda_names(self) -> dict[str, CudaName]:
        """What is requested, beside the family, by a name that carries a CUDA; one without a number has no version."""
        rows = self.catalog.cuda_names() if self.demand.others else {}
        carried: dict[str, CudaName] = {}
        for requirement in map(parse_requirement, self.demand.others):
            extras = (
                f"{requirement.name}[{normalised(extra)}]" for extra in requirement.extra_names
            )
            names = [name for name in (requirement.name, *extras) if name in rows]
            if requirement.specifier:
                names = [name for name in names if not name.isalpha()]
            marker = requirement.marker
            if names and (
                marker is None or marker_holds(marker, self.machine, self.catalog.settled_python)
            ):
                carried[requirement.text] = rows[names[0]]
        return carried

    @cached_property
    def python(self) -> Callable[[tuple[str, ...]], str | Reason]:
        """Return the Python for a build that has wheels for some, or why there is none; each is decided once.

        The order: what is fixed; the Python of the environment being replaced and the one running; the newest at hand;
        one that can be fetched.
        """
        return cache(self._python)

    def _python(self, pythons: tuple[str, ...]) -> str | Reason:
        demand, machine = self.demand, self.machine
        fitting = [python for python in pythons if demand.suits(python)]
        if not fitting:
            counted = {package for package, _ in self.catalog.companions}
            companions = [name for name in demand.family if name in counted]
            have = (
                f"it and {' and '.join(companions)} have wheels" if companions else "it has wheels"
            )
            return Reason(
                "python-unsupported", f"{have} for Python {span(pythons)}, not {demand.python}"
            )
        if not isinstance(demand.python, str):
            fitting = [python for python in fitting if not python.endswith("t")]
        for python in at_hand(demand.preferred, machine):
            if python in fitting:
                return python
        if fitting and (demand.managed or machine.pythons is None):
            supported = [
                python
                for python in fitting
                if number(python) <= number(self.catalog.settled_python)
            ]
            return max(supported, key=number) if supported else min(fitting, key=number)
        here = (
            ", ".join(dict.fromkeys(minor_version(python) for python in machine.pythons or ()))
            or "none"
        )
        needed = span(fitting or pythons)
        return Reason(
            "no-python",
            f"it requires Python {needed}; installed: {here}, and no other is available",
        )
