"""Define the input of the selection rules: a request, a machine, and GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.catalog.catalog import Build, Catalog, CudaName
from gpuinstall.machine.protocol import Rules
from gpuinstall.plan.companions import Companions
from gpuinstall.plan.demand import Demand, Limit, prefer_python
from gpuinstall.plan.values import ProgramConstraints

if TYPE_CHECKING:
    from packaging.version import Version


class PlanContext(Value, eq=False):
    """The request, machine, and GPUs for which a build is selected."""

    machine: Machine
    demand: Demand
    rules: Rules
    """The selection rules of the GPU vendor."""

    gpus: tuple[Gpu, ...] = ()
    """The GPUs for which a build is selected, ordered by index."""

    program_constraints: ProgramConstraints | None = None
    """Constraints from resolving other packages; None before resolution."""

    excluded_gpus: Mapping[int, Finding] = {}
    """The problems due to which GPUs are excluded, by GPU index."""

    @property
    def catalog(self) -> Catalog:
        """The catalog of torch builds."""
        return self.rules.catalog

    @property
    def gpu_names(self) -> str:
        """The names of the distinct GPU models, joined for messages."""
        return " and ".join(dict.fromkeys(gpu.label for gpu in self.gpus))

    @property
    def builds(self) -> tuple[Build, ...]:
        """The torch builds for the machine's platform, newest torch first."""
        return self.catalog.builds_for(self.machine.os, self.machine.arch)

    @cached_property
    def requested_torches(self) -> frozenset[Version]:
        """The torch versions that satisfy the request."""
        torches = {build.torch for build in self.builds}
        return frozenset(filter(self.demand.torch_requirement.allows, torches))

    @cached_property
    def companions(self) -> Companions:
        """The requested companions of torch, such as torchvision."""
        releases = self.catalog.releases
        known = [torch for torch in self.requested_torches if torch in releases]
        return Companions(
            tuple(self.demand.family.values()),
            self.catalog,
            is_before_triton=not any(releases[torch].triton for torch in known),
        )

    @cached_property
    def cuda_names(self) -> dict[str, CudaName]:
        """The CUDA versions in package and extra names, by requirement."""
        cuda_names: dict[str, CudaName] = {}
        for requirement in self.demand.others:
            if not requirement.applies_in(self.demand.markers):
                continue
            if requirement.is_exact and self.demand.is_labeled:
                # A frozen file may contain packages for two CUDA majors.
                continue
            rows = self.catalog.cuda_names()
            extras = [f"{requirement.name}[{extra}]" for extra in requirement.extras]
            for name in (requirement.name, *extras):
                # A name without a number implies the latest CUDA only if no version is requested.
                if name in rows and not (requirement.specifier and name.isalpha()):
                    cuda_names.setdefault(requirement.text, rows[name])
        return cuda_names

    def rejects_cuda(self, limit: Limit, build: Build) -> bool:
        """Return whether a limit requires another CUDA than a build."""
        name = self.cuda_names.get(limit.requirement.text)
        return bool(name and build.toolkit and name.major != build.toolkit[0])

    def compatible_pythons(self, build: Build, *only: Requirement) -> list[str]:
        """Return requested Python versions that a build supports."""
        is_requested = self.demand.pythons.__contains__
        return list(filter(is_requested, self.companions.find_pythons(build, *only)))

    def select_python(self, build: Build) -> str:
        """Return the Python version for a build and its companions, or "".

        Preferred Python versions (in the environment, and running gpuinstall) come first, then installed versions from
        the newest, and finally a version to download.
        """
        compatible = self.compatible_pythons(build)
        if not compatible:
            return ""
        to_try = self.demand.pythons_to_try
        python = prefer_python(
            sorted(compatible, key=version_key, reverse=True),
            to_try,
            self.catalog.settled_python,
        )
        # If the machine's Python versions are unknown, assume that any version is available.
        may_download = (
            self.demand.request.managed_pythons or self.machine.pythons is None
        )
        return python if may_download or python in to_try else ""

    def with_gpus_at(self, positions: Iterable[int]) -> PlanContext:
        """Return a copy of the context with only the selected GPUs."""
        return replace(self, gpus=tuple(self.gpus[position] for position in positions))
