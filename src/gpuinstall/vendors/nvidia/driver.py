"""What a driver serves, which GPUs it drives, and which code of a build a chip runs under it.

A chip runs SASS of its own major, PTX that its driver can compile, or none."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.finding import Finding, Reason
from gpuinstall.vendors.protocol import Code
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.catalog.drivers import Drivers, Floor, Generation
    from gpuinstall.machine import Machine

    Toolkit = tuple[int, int] | None
    Made = tuple[tuple[str, ...], Toolkit, tuple[tuple[str, str], ...]]


class Sass(NamedTuple):
    """Machine code for one architecture: ``sm_90``, ``sm_90a`` (exactly that one), ``sm_103f`` (its family)."""

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, name: str) -> Sass:
        """Read ``"sm_90"``, ``"sm_90a"`` or ``"sm_103f"``."""
        number = name.removeprefix("sm_")
        suffix = number[-1] if number[-1] in "af" else ""
        return cls(ComputeCapability.from_sm(int(number.removesuffix(suffix))), suffix)

    def __str__(self) -> str:
        return f"{self.capability.sm}{self.suffix}"


@lru_cache
def split_code(names: tuple[str, ...]) -> tuple[tuple[Sass, ...], tuple[ComputeCapability, ...]]:
    """Read the code of a build: its SASS (``sm_90a``) and its PTX (``compute_90``)."""
    ptx = (
        name.removeprefix("compute_").rstrip("af") for name in names if name.startswith("compute_")
    )
    sass = tuple(Sass.parse(name) for name in names if name.startswith("sm_"))
    return sass, tuple(ComputeCapability.from_sm(int(number)) for number in ptx)


def code_for(
    build: Build, chip: ComputeCapability, drivers: Drivers, cuda: CudaVersion | None
) -> Code | Reason:
    """Find the code of ``build`` that ``chip`` runs with a driver that serves ``cuda``, or say why there is none."""
    return _code_for((build.code, build.toolkit, build.libraries), chip, drivers, cuda)


@lru_cache(maxsize=4096)
def _code_for(
    made: Made, chip: ComputeCapability, drivers: Drivers, cuda: CudaVersion | None
) -> Code | Reason:
    """Decide once for all builds that are made alike."""
    names, toolkit, libraries = made
    runnable = [code for code in split_code(names)[0] if _runs(code, chip, toolkit, drivers)]
    code = Code(str(max(runnable)), "sass") if runnable else _ptx_for(chip, names, toolkit, cuda)
    missing = isinstance(code, Code) and _cudnn_lacks(
        chip, dict(libraries).get("cudnn"), toolkit, drivers
    )
    return Reason("no-cudnn-code", missing) if missing else code


def _cudnn_lacks(
    chip: ComputeCapability, cudnn: str | None, toolkit: Toolkit, drivers: Drivers
) -> str | None:
    if cudnn is None:
        return None
    floor, ceiling = (
        drivers.cudnn_floor(cudnn),
        drivers.cudnn_ceiling(cudnn, toolkit and toolkit[0]),
    )
    if floor and chip < floor:
        return f"its cuDNN has no code for {chip.sm}, only for {floor.sm} and later"
    if ceiling and chip > ceiling:
        return f"its cuDNN {cudnn} has no code for {chip.sm}, only up to {ceiling.sm}"
    return None


def _runs(code: Sass, chip: ComputeCapability, toolkit: Toolkit, drivers: Drivers) -> bool:
    if code.capability == chip:
        return True
    if code.capability.major != chip.major or code.capability > chip or code.suffix == "a":
        return False
    if code.suffix == "f":
        return chip in drivers.families.get(code.capability, ())
    if chip not in drivers.tegra:
        return True
    unified = drivers.tegra[chip]
    return unified is not None and toolkit is not None and toolkit >= unified.ran


def _ptx_for(
    chip: ComputeCapability, names: tuple[str, ...], toolkit: Toolkit, cuda: CudaVersion | None
) -> Code | Reason:
    sass, ptx = split_code(names)
    newest = max((capability for capability in ptx if capability <= chip), default=None)
    if newest is None:
        return Reason(
            "no-code", f"no code for {chip.sm}, only for {', '.join(map(str, sass)) or 'none'}"
        )
    if toolkit is not None and (cuda is None or cuda < toolkit):
        needed = CudaVersion(*toolkit)
        return Reason(
            "driver-too-old-for-ptx",
            f"{chip.sm} would run its PTX, which needs a driver for CUDA {needed}",
        )
    return Code(f"compute_{newest.major}{newest.minor}", "ptx")


@dataclass(frozen=True)
class MachineDriver:
    """The driver of a machine, by the tables of the catalogue."""

    machine: Machine
    tables: Drivers

    def __str__(self) -> str:
        name = f"driver {self.version}" if self.version else f"a driver for CUDA {self.cuda}"
        return f"{name} with cuda-compat {self.cuda}" if self.is_compat else name

    @property
    def version(self) -> DriverVersion | None:
        """Its release, if known."""
        return self.machine.driver.version if self.machine.driver else None

    @cached_property
    def cuda(self) -> CudaVersion | None:
        """The newest CUDA that it serves: as it says, else as its branch does."""
        if self.machine.driver is not None and self.machine.driver.cuda is not None:
            return self.machine.driver.cuda
        row = self.tables.branch(self.version) if self.version else None
        return row[1] if row else None

    @property
    def is_compat(self) -> bool:
        """Whether its CUDA is that of NVIDIA's forward-compatibility package, a newer libcuda above the driver."""
        return self.machine.driver is not None and self.machine.driver.compat

    def compat_fault(self, label: str) -> Finding | None:
        """Return why the forward-compatibility package does not work for a GPU: it is for data-centre GPUs on Linux."""
        words = {*label.lower().split()} & {*self.tables.no_compat}
        if not self.is_compat or (
            self.machine.os == "linux" and not self.machine.environment.wsl and not words
        ):
            return None
        message = (
            f"cuda-compat is for data-centre GPUs on Linux, not for {label} on {self.machine.os}"
        )
        fix = "Plan with the driver alone: --driver"
        return Finding("forward-compatibility-unsupported", message, fixes=(fix,))

    @cached_property
    def branch(self) -> int | None:
        """Its branch; where its release is not known, the newest that its CUDA reaches (0: none)."""
        if self.version is not None:
            row = self.tables.branch(self.version)
            return row[0] if row else self.version.branch
        newest = self.cuda
        if newest is None:
            return None
        return max((branch for branch, cuda in self.tables.branches if cuda <= newest), default=0)

    @cached_property
    def floors(self) -> dict[int, DriverVersion]:
        """The oldest driver for each CUDA major on this system."""
        return {major: self.here(floor) for major, floor in self.tables.floors.items()}

    def here(self, floor: Floor) -> DriverVersion:
        """The floor for the system whose driver counts: in WSL that of Windows."""
        return (
            floor.windows
            if self.machine.os == "windows" or self.machine.environment.wsl
            else floor.linux
        )

    @property
    def is_unknown(self) -> bool:
        """Whether it is newer than every branch of the tables."""
        return self.version is not None and self.version.branch > self.tables.branches[-1][0]

    def serves(self, toolkit: tuple[int, int]) -> bool:
        """Whether it reaches the floor of a CUDA major; where only its CUDA is known, that decides.

        A major without a floor is newer than the tables: nothing but a CUDA of its own that is as new speaks for it.
        """
        floor = self.floors.get(toolkit[0])
        if floor is None:
            return self.cuda is not None and self.cuda >= toolkit
        if (self.version is None or self.is_compat) and self.cuda is not None:
            return self.cuda.major >= toolkit[0]
        return self._reaches(floor)

    def needed(self, toolkit: tuple[int, int]) -> str:
        """The driver that a toolkit needs, for people: ``driver 580 or newer``."""
        floor = self.floors.get(toolkit[0])
        return (
            f"driver {floor} or newer" if floor else f"a driver for CUDA {toolkit[0]}.{toolkit[1]}"
        )

    def ignores(self, chip: ComputeCapability, label: str, majors: Iterable[int]) -> Finding | None:
        """Return why it does not drive a GPU: it is older than the chip, or has dropped its generation.

        ``majors`` are the CUDA majors of the builds for the chip: a newer driver has to serve one.
        """
        if self.branch is None:
            return None
        generation, first = self.tables.generation(chip), self.first_for(chip)
        if (
            generation
            and generation.last_branch is not None
            and self.branch > generation.last_branch
        ):
            last = generation.last_branch
            message = f"{self} no longer drives {generation.name} GPUs such as {label}; {last} is the last that does"
            return Finding("driver-dropped-gpu", message, fixes=(f"Install driver {last}",))
        if first and not self._reaches(first):
            after = self.tables.first_drivers[chip].after
            since = (
                f"the first for it is newer than {after}"
                if after
                else f"{first} is the first for it"
            )
            message = f"{self} does not support {label}: it is older than the GPU, {since}"
            enough = max(
                first, min((self.floors.get(major, first) for major in majors), default=first)
            )
            newest = "the newest from NVIDIA" if after else f"{enough} or newer"
            return Finding(
                "driver-older-than-gpu", message, fixes=(f"Update the NVIDIA driver to {newest}",)
            )
        return None

    def first_for(self, chip: ComputeCapability) -> DriverVersion | None:
        """The first driver here that knows a chip; None where every driver that serves CUDA does."""
        floor = self.tables.first_drivers.get(chip)
        return floor and self.here(floor)

    def last_branch(self, chips: Sequence[ComputeCapability]) -> int | None:
        """The last branch that drives the newest chip and all that can share a driver with it; None: no end."""
        first = max((first.branch for chip in chips if (first := self.first_for(chip))), default=0)
        lasts = (generation.last_branch for generation in self._generations(chips))
        return min((last for last in lasts if last is not None and last >= first), default=None)

    def branches_for(self, chips: Sequence[ComputeCapability]) -> str:
        """Name the branches that drive chips and serve the newest CUDA that they can have."""
        last = self.last_branch(chips)
        if last is None:
            firsts = (first for chip in chips if (first := self.first_for(chip)))
            return f", {max((*self.floors.values(), *firsts))} or newer"
        names = {
            generation.name: None
            for generation in self._generations(chips)
            if generation.last_branch == last
        }
        return f" of branch {last}, the last for {' and '.join(names)}"

    def _generations(self, chips: Sequence[ComputeCapability]) -> list[Generation]:
        generations = (self.tables.generation(chip) for chip in chips)
        return [generation for generation in generations if generation is not None]

    def _reaches(self, floor: DriverVersion) -> bool:
        """Whether it is at least ``floor``; a branch named alone, or by its CUDA, stands for its newest release."""
        version = self.version
        if version is None:
            row = self.tables.branch(floor)
            return self.branch is not None and row is not None and self.branch >= row[0]
        return version.parts >= floor.parts or (
            len(version.parts) == 1 and version.branch == floor.branch
        )
