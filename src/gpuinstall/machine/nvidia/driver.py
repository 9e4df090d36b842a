"""NVIDIA's driver: supported CUDA versions, GPUs, and code.

A GPU runs SASS for its own major compute capability, or PTX that the driver can
compile.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.machine import Driver, Machine
from gpuinstall.base.values import Value
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.protocol import Code, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.catalog.drivers import Drivers, Floor


class Sass(NamedTuple):
    """Machine code for one architecture.

    The suffix ``a`` restricts the code to exactly that chip, and ``f`` restricts it to the chip's family.
    """

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Sass:
        """Parse ``"sm_90"``, ``"sm_90a"``, or ``"sm_103f"``."""
        number = name.removeprefix("sm_")
        suffix = number[-1] if number[-1] in "af" else ""
        return cls(ComputeCapability.from_sm(int(number.removesuffix(suffix))), suffix)

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.suffix}"


@lru_cache
def split_code(
    names: tuple[str, ...],
) -> tuple[tuple[Sass, ...], tuple[ComputeCapability, ...]]:
    """Split code into SASS (``sm_90a``) and PTX (``compute_90``)."""
    sass = []
    ptx = []
    for name in names:
        kind, _, number = name.partition("_")
        if kind == "sm":
            sass.append(Sass.parse(name))
        elif kind == "compute":
            ptx.append(ComputeCapability.from_sm(int(number.rstrip("af"))))
    return tuple(sass), tuple(ptx)


@lru_cache(maxsize=4096)
def find_code(
    build: Build,
    chip: ComputeCapability,
    drivers: Drivers,
    cuda: CudaVersion | None,
) -> Code | Reason:
    """Return a build's code for a chip, or the reason why it has none.

    Args:
        build: The build.
        chip: The GPU's compute capability.
        drivers: The tables of chips, toolkits, and cuDNN.
        cuda: The newest CUDA version that the driver supports, if known. This version limits which PTX can be compiled.
    """
    sass, _ = split_code(build.code)
    runnable = [
        code for code in sass if _is_runnable(code, chip, build.toolkit, drivers)
    ]
    code = _find_ptx(chip, build.code, build.toolkit, cuda)
    if runnable:
        code = Code(str(max(runnable)), "sass")
    cudnn = dict(build.libraries).get("cudnn")
    if cudnn is None or isinstance(code, Reason):
        return code
    return _find_cudnn_rejection(chip, cudnn, build.toolkit, drivers) or code


def _is_runnable(
    code: Sass,
    chip: ComputeCapability,
    toolkit: Toolkit,
    drivers: Drivers,
) -> bool:
    if code.capability == chip:
        return True
    if code.capability.major != chip.major or code.capability > chip:
        return False
    # This code uses features that only one chip has.
    if code.suffix == "a":
        return False
    if code.suffix == "f":
        family = drivers.families.get(code.capability)
        return family is not None and str(chip) in family
    # A Tegra chip runs code for desktop GPUs only if a user reported that it does.
    if chip not in drivers.tegra:
        return True
    ran = drivers.tegra[chip].ran
    return ran is not None and toolkit is not None and toolkit >= ran


def _find_ptx(
    chip: ComputeCapability,
    names: tuple[str, ...],
    toolkit: Toolkit,
    cuda: CudaVersion | None,
) -> Code | Reason:
    sass, ptx = split_code(names)
    older = [capability for capability in ptx if capability <= chip]
    newest = max(older, default=None)
    if newest is None:
        others = ", ".join(map(str, sass)) or "none"
        return Reason("no-code", f"no code for {chip.sm}, only for {others}")
    if toolkit is not None and (cuda is None or cuda < toolkit):
        return Reason(
            "driver-too-old-for-ptx",
            f"{chip.sm} would run its PTX, which requires a driver for CUDA {CudaVersion(*toolkit)}",
        )
    return Code(f"compute_{newest.major}{newest.minor}", "ptx")


def _find_cudnn_rejection(
    chip: ComputeCapability,
    cudnn: str,
    toolkit: Toolkit,
    drivers: Drivers,
) -> Reason | None:
    floor = drivers.cudnn_floor(cudnn)
    ceiling = drivers.cudnn_ceiling(cudnn, toolkit and toolkit[0])
    if floor and chip < floor:
        others = f"only for {floor.sm} and later"
    # torch's PTX does not help if cuDNN does not support the newer chip.
    elif ceiling and chip > ceiling:
        others = f"only up to {ceiling.sm}"
    else:
        return None
    return Reason(
        "no-cudnn-code", f"its cuDNN {cudnn} has no code for {chip.sm}, {others}"
    )


class MachineDriver(Value):
    """Driver of a machine, with the catalog's tables of drivers."""

    machine: Machine
    tables: Drivers

    def __str__(self) -> str:
        name = f"driver {self.version}"
        if self.version is None:
            name = f"a driver for CUDA {self.cuda}"
        return f"{name} ({self.driver.libcuda})" if self.driver.libcuda else name

    @cached_property
    def driver(self) -> Driver:
        """The NVIDIA driver. All fields are unknown if it is not installed."""
        return self.machine.driver or Driver()

    @property
    def version(self) -> DriverVersion | None:
        """The release of the NVIDIA driver, if known."""
        return self.driver.version

    @cached_property
    def cuda(self) -> CudaVersion | None:
        """The newest CUDA version that the driver or its branch supports."""
        row = self.version and self.tables.branch(self.version)
        return self.driver.cuda or (row.cuda if row else None)

    @cached_property
    def branch(self) -> int | None:
        """The release branch of the driver, if known.

        If only the supported CUDA is known, the result is the newest branch for this
        CUDA, or 0 if no branch is old enough.
        """
        if self.version is not None:
            row = self.tables.branch(self.version)
            return row.branch if row else self.version.branch
        served = self.cuda
        if served is None:
            return None
        reached = [branch for branch, cuda in self.tables.branches if cuda <= served]
        return max(reached, default=0)

    def supports_compat(self) -> bool:
        """Return whether cuda-compat supports this driver and all GPUs."""
        environment = self.machine.environment
        if self.version is None or environment.wsl or environment.l4t:
            return False
        words = {
            word for gpu in self.machine.gpus for word in gpu.label.lower().split()
        }
        return (
            self.machine.os == "linux"
            and self.version.branch >= self.tables.compat_base
            and self.tables.no_compat.isdisjoint(words)
        )

    @cached_property
    def minimum_drivers(self) -> dict[int, DriverVersion]:
        """The minimum driver for each CUDA major version on this machine."""
        return {
            major: self._select_minimum(floor)
            for major, floor in self.tables.floors.items()
        }

    def _select_minimum(self, floor: Floor) -> DriverVersion:
        """Return the minimum driver for Linux or, as in WSL, Windows."""
        if self.machine.os == "windows" or self.machine.environment.wsl:
            return floor.windows
        return floor.linux

    def supports_toolkit(self, toolkit: tuple[int, int]) -> bool:
        """Return whether the driver runs builds made with a CUDA toolkit.

        If only the driver's CUDA version is known, its major version is compared with
        the toolkit's.
        """
        floor = self.minimum_drivers.get(toolkit[0])
        if floor is None:
            # The tables lack this CUDA major, so only the driver's own CUDA version can show support.
            return self.cuda is not None and self.cuda >= toolkit
        if self.version is None and self.cuda is not None:
            return self.cuda.major >= toolkit[0]
        return self._is_at_least(floor)

    def _is_at_least(self, floor: DriverVersion) -> bool:
        """Return whether the driver is as new as the minimum driver ``floor``.

        If the driver's release is unknown, the newest release of its branch is assumed.
        """
        version = self.version
        if version is None:
            row = self.tables.branch(floor)
            return self.branch is not None and row is not None and self.branch >= row[0]
        if len(version.parts) == 1:
            return version.branch >= floor.branch
        return version.parts >= floor.parts

    def format_requirement(self, toolkit: tuple[int, int]) -> str:
        """Return the minimum driver for a toolkit: ``driver 580 or newer``."""
        floor = self.minimum_drivers.get(toolkit[0])
        if floor is None:
            return f"a driver for CUDA {CudaVersion(*toolkit)}"
        return f"driver {floor} or newer"

    def find_fault(
        self,
        chip: ComputeCapability,
        label: str,
        majors: Iterable[int] = (),
    ) -> Finding | None:
        """Return a finding if the driver does not support a GPU.

        The driver may be older than the GPU's chip, or may no longer support its
        generation.

        Args:
            chip: The GPU's compute capability.
            label: The GPU's name.
            majors: The CUDA majors of builds for the chip. The suggested driver
                supports at least one.
        """
        branch = self.branch
        if branch is None:
            return None
        generation = self.tables.generation(chip)
        last = generation.last_branch if generation else None
        if generation and last is not None and branch > last:
            libcuda = self.driver.libcuda
            fix = f"Remove {libcuda}" if libcuda else f"Install driver {last}"
            return Finding(
                "driver-dropped-gpu",
                f"{self} no longer supports {generation.name} GPUs such as {label}; the last branch with support is {last}",
                fixes=(fix,),
            )
        first = self.find_first_driver(chip)
        if first is None or self._is_at_least(first):
            return None
        floors = [self.minimum_drivers.get(major, first) for major in majors]
        floor = f"driver {first} or newer"
        newer = f"{max(first, min(floors, default=first))} or newer"
        after = self.tables.first_drivers[chip].after
        if after:
            floor = f"a driver newer than {after}"
            newer = "the latest version"
        chips = [gpu.compute_capability for gpu in self.machine.gpus]
        newer += self.describe_unsupported_gpus([chip, *filter(None, chips)])
        return Finding(
            "driver-older-than-gpu",
            f"{self} does not support {label}, which requires {floor}",
            fixes=(self.format_update(newer, [chip]),),
        )

    def format_update(self, newer: str, chips: Iterable[ComputeCapability]) -> str:
        """Return the instruction to update the driver, or JetPack."""
        jetsons = {row.capability for row in self.tables.jetsons.values()}
        if jetsons.isdisjoint(chips):
            return f"Update the NVIDIA driver to {newer}"
        return "Update to a newer JetPack: the driver is part of it"

    def find_first_driver(self, chip: ComputeCapability) -> DriverVersion | None:
        """Return the first driver that supports a chip, or None if all do."""
        floor = self.tables.first_drivers.get(chip)
        return self._select_minimum(floor) if floor else None

    def find_last_branch(self, chips: Sequence[ComputeCapability]) -> int | None:
        """Return the last driver branch that supports the newest chip.

        Returns:
            The branch, or None if current branches support the chips.
        """
        first = self._find_first_branch(chips)
        lasts = self._find_last_branches(chips).values()
        return min((last for last in lasts if last >= first), default=None)

    def describe_branches(self, chips: Sequence[ComputeCapability]) -> str:
        """Describe the driver branches for some chips and their builds."""
        last = self.find_last_branch(chips)
        if last is None:
            firsts = filter(None, map(self.find_first_driver, chips))
            newest = max((*self.minimum_drivers.values(), *firsts))
            return f", {newest} or newer{self.describe_unsupported_gpus(chips)}"
        ended = self._find_last_branches(chips).items()
        names = " and ".join(name for name, branch in ended if branch == last)
        return f" of branch {last}, the last for {names}{self.describe_unsupported_gpus(chips)}"

    def describe_unsupported_gpus(self, chips: Sequence[ComputeCapability]) -> str:
        """Return a note if no driver supports the chips of all GPUs."""
        first = self._find_first_branch(chips)
        ended = self._find_last_branches(chips).items()
        dropped = [f"{name} (last: {last})" for name, last in ended if last < first]
        if not dropped:
            return ""
        return f"; no driver supports all GPUs, and this one does not support {' and '.join(dropped)}"

    def _find_first_branch(self, chips: Sequence[ComputeCapability]) -> int:
        """Return the first driver branch for the newest chip, or 0."""
        firsts = filter(None, map(self.find_first_driver, chips))
        return max((first.branch for first in firsts), default=0)

    def _find_last_branches(self, chips: Sequence[ComputeCapability]) -> dict[str, int]:
        """Return the last driver branch for each generation of old chips."""
        rows = filter(None, map(self.tables.generation, chips))
        return {row.name: row.last_branch for row in rows if row.last_branch}
