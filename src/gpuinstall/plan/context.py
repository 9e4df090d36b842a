"""What the rules are given: what is requested, and the machine with its GPUs and its driver."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import Build, Catalog, CudaName
from gpuinstall.machine.protocol import Rules
from gpuinstall.plan.companions import Companions
from gpuinstall.plan.demand import Demand
from gpuinstall.plan.python import number
from gpuinstall.plan.values import ProgramConstraints

if TYPE_CHECKING:
    from packaging.version import Version


class PlanContext(Value, eq=False):
    """What one choice is made from."""

    machine: Machine
    demand: Demand
    rules: Rules
    """Those of the maker of the GPUs."""

    gpus: tuple[Gpu, ...] = ()
    """Those to plan for, in the order of their indices."""

    program_constraints: ProgramConstraints | None = None
    """What the programs of the request came to; None if they were not resolved."""

    left_out: Mapping[int, Finding] = {}
    """What is wrong with the GPUs that are not planned for, by their indices."""

    @property
    def catalog(self) -> Catalog:
        """The builds to choose from, and what is known of them."""
        return self.rules.catalog

    @property
    def gpu_names(self) -> str:
        """The GPUs as people name them, each kind once."""
        return " and ".join(dict.fromkeys(gpu.label for gpu in self.gpus))

    @property
    def builds(self) -> tuple[Build, ...]:
        """The builds for this platform, the newest torch first."""
        return self.catalog.builds_for(self.machine.os, self.machine.arch)

    @cached_property
    def requested_torches(self) -> frozenset[Version]:
        """The torch versions that satisfy the demand."""
        return frozenset(
            filter(self.demand.wants, {build.torch for build in self.builds})
        )

    @cached_property
    def companions(self) -> Companions:
        """The requested packages of torch's family."""
        releases = self.catalog.releases
        known = [torch for torch in self.requested_torches if torch in releases]
        return Companions(
            tuple(self.demand.family.values()),
            self.catalog,
            is_before_triton=not any(releases[torch].triton for torch in known),
        )

    @cached_property
    def cuda_names(self) -> dict[str, CudaName]:
        """What is requested, beside the family, by a name or an extra that carries a CUDA, as far as it counts here."""
        cuda_names: dict[str, CudaName] = {}
        for requirement in self.demand.others:
            # The Python is chosen later: a marker about it is judged by the usual one.
            if not requirement.counts_on(self.machine, self.catalog.settled_python):
                continue
            rows = self.catalog.cuda_names()
            extras = [f"{requirement.name}[{extra}]" for extra in requirement.extras]
            for name in (requirement.name, *extras):
                # A name without a number has no CUDA if a version is requested.
                if name in rows and not (requirement.specifier and name.isalpha()):
                    cuda_names.setdefault(requirement.text, rows[name])
        return cuda_names

    def fitting_pythons(self, build: Build) -> list[str]:
        """Return the Pythons that a build and its companions have wheels for, and that the request allows."""
        is_requested = self.demand.pythons.__contains__
        return list(filter(is_requested, self.companions.pythons(build)))

    def python(self, build: Build) -> str:
        """Return the Python for a build and its companions; empty if there is none.

        The order: what is fixed; the Python of the environment being replaced and the one running; the newest at hand;
        one that can be fetched.
        """
        fitting = self.fitting_pythons(build)
        for python in self.demand.pythons_at_hand:
            if python in fitting:
                return python
        # Of a machine that does not tell its Pythons any can be had.
        may_fetch = self.demand.request.managed_pythons or self.machine.pythons is None
        if not fitting or not may_fetch:
            return ""
        newest = number(self.catalog.settled_python)
        supported = [python for python in fitting if number(python) <= newest]
        if supported:
            return max(supported, key=number)
        return min(fitting, key=number)

    def with_gpus_at(self, positions: Iterable[int]) -> PlanContext:
        """Return the context of some of its GPUs."""
        return replace(self, gpus=tuple(self.gpus[position] for position in positions))
