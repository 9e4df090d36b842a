"""One case to decide: the machine, the demand and the catalogue, and what the rules ask of them again and again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING

from gpuinstall.plan.python import python_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from packaging.version import Version

    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.catalog import Catalog
    from gpuinstall.catalog.drivers import Floor
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.plan.demand import Demand
    from gpuinstall.plan.values import Reason
    from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion


@dataclass(frozen=True)
class PlanContext:
    """``gpus`` are those to plan for, in the order of their indices."""

    machine: Machine
    demand: Demand
    catalog: Catalog
    gpus: tuple[Gpu, ...] = ()

    @cached_property
    def builds(self) -> tuple[Build, ...]:
        """The builds for this platform, the newest torch first."""
        return self.catalog.builds_for(self.machine.os, self.machine.arch)

    @cached_property
    def places(self) -> dict[int, int]:
        """The place of each build of the platform, by identity."""
        return {id(build): place for place, build in enumerate(self.builds)}

    @cached_property
    def ages(self) -> dict[Version, int]:
        """The rank of each torch version of this platform: 0 is the newest."""
        return {torch: age for age, torch in enumerate(dict.fromkeys(build.torch for build in self.builds))}

    @cached_property
    def chips(self) -> tuple[ComputeCapability, ...]:
        """The compute capabilities of the GPUs, each once."""
        return tuple(dict.fromkeys(gpu.compute_capability for gpu in self.gpus if gpu.compute_capability is not None))

    @cached_property
    def wanted(self) -> frozenset[Version]:
        """The torch versions that satisfy the demand."""
        return frozenset(torch for torch in self.ages if self.demand.wants(torch))

    @cached_property
    def unwanted(self) -> frozenset[str]:
        """The builds that the demand excludes by name, as in ``torch!=2.15.0+cu132``."""
        return frozenset(one.version.lower() for one in self.demand.torch or () if one.operator == "!=")

    @cached_property
    def python(self) -> Callable[[tuple[str, ...]], str | Reason]:
        """The Python to take of those that a build has wheels for, or why there is none; each is decided once."""
        return cache(partial(python_for, case=self))

    @cached_property
    def driver_version(self) -> DriverVersion | None:
        """The driver's release, if known."""
        return self.machine.driver.version if self.machine.driver else None

    @cached_property
    def driver_branch(self) -> int | None:
        """The driver's branch; where its release is not known, the newest that its CUDA reaches (0: none)."""
        if self.driver_version is not None:
            row = self.catalog.drivers.branch(self.driver_version)
            return row[0] if row else self.driver_version.branch
        newest = self.driver_cuda
        if newest is None:
            return None
        return max((branch for branch, cuda in self.catalog.drivers.branches if cuda <= newest), default=0)

    @cached_property
    def driver_cuda(self) -> CudaVersion | None:
        """The newest CUDA that the driver serves: as it says, else as its branch does."""
        if self.machine.driver is not None and self.machine.driver.cuda is not None:
            return self.machine.driver.cuda
        row = self.catalog.drivers.branch(self.driver_version) if self.driver_version else None
        return row[1] if row else None

    @cached_property
    def floors(self) -> dict[int, DriverVersion]:
        """The oldest driver for each CUDA major on this system."""
        return {major: self.floor(floor) for major, floor in self.catalog.drivers.floors.items()}

    @property
    def driver(self) -> str:
        """The driver as people name it."""
        return f"driver {self.driver_version}" if self.driver_version else f"a driver for CUDA {self.driver_cuda}"

    def floor(self, floor: Floor) -> DriverVersion:
        """Return the floor for the system whose driver counts: in WSL that of Windows."""
        return floor.windows if self.machine.os == "windows" or self.machine.environment.wsl else floor.linux

    def reaches(self, floor: DriverVersion) -> bool:
        """Say whether the driver is at least ``floor``; a branch named alone stands for its newest release."""
        version = self.driver_version
        if version is None:
            return False
        return version.parts >= floor.parts or (len(version.parts) == 1 and version.branch == floor.branch)
