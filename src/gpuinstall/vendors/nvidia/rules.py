"""NVIDIA's rules: which driver runs which build, which GPUs it drives, which build is the better one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from gpuinstall.vendors.nvidia.code import code_for, parse_code
from gpuinstall.vendors.protocol import Code, Fault, Reason
from gpuinstall.versions import ComputeCapability, CudaVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.drivers import Drivers, Floor, Generation
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.versions import DriverVersion

_ANY_CUDA = CudaVersion(999, 0)
_JETSON_WHEELS = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/"


@dataclass(frozen=True)
class NvidiaRules:
    """The rules for one machine, by the tables of ``drivers.toml``."""

    machine: Machine
    catalog: Catalog

    vendor: ClassVar = "nvidia"
    name: ClassVar = "NVIDIA"
    kind: ClassVar = "cuda"
    software: ClassVar = "CUDA"
    code_reasons: ClassVar = ("no-code", "no-cudnn-code")
    driver_reasons: ClassVar = ("driver-too-old-for-ptx", "driver-too-old")

    # The driver.

    @property
    def driver(self) -> str:
        """The driver as people name it."""
        return f"driver {self._version}" if self._version else f"a driver for CUDA {self._cuda}"

    def platform_fault(self) -> Fault | None:
        """Refuse a Jetson before JetPack 7."""
        l4t = self.machine.environment.l4t
        number = re.search(r"[0-9]+", l4t or "")
        if number is None or int(number[0]) >= self._drivers.server_l4t:
            return None
        reason = Reason("jetson", f"a Jetson with L4T {l4t} (before JetPack 7) runs only NVIDIA's own wheels of torch")
        return Fault(reason, f"NVIDIA's wheels: {_JETSON_WHEELS}\nor update to JetPack 7")

    def driver_fault(self, gpus: Sequence[Gpu]) -> Fault | None:
        """Name a driver that is missing, or says neither its release nor its CUDA."""
        driver = self.machine.driver
        if driver is not None and (driver.version is not None or driver.cuda is not None):
            return None
        names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
        if driver is None:
            reason = Reason("no-driver", f"there is no NVIDIA driver for {names}")
            return Fault(reason, f"install the NVIDIA driver{self._branches(gpus)}")
        reason = Reason("driver-unknown", f"the NVIDIA driver for {names} does not say its version")
        return Fault(reason, "nvidia-smi should say it; if it fails, reinstall the driver")

    def against_driver(self, build: Build) -> Reason | None:
        """Keep the floor of the build's CUDA major; where only the driver's CUDA is known, its major decides."""
        if build.toolkit is None:
            return None
        major = build.toolkit[0]
        floor = self._floors.get(major)
        if self._version is None and self._cuda is not None:
            fits = self._cuda.major >= major
        else:
            fits = floor is not None and self._reaches(floor)
        return None if fits else Reason("driver-too-old", f"CUDA {major}.x needs driver {floor} or newer")

    def driver_for(self, build: Build) -> str:
        """The oldest driver that runs a build."""
        return f"driver {self._floors[build.toolkit[0] if build.toolkit else 0]} or newer"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:
        """Name the driver to update to: of the build's CUDA major, or one that compiles its PTX."""
        if build.toolkit is None or code not in self.driver_reasons:
            return None
        if code == "driver-too-old-for-ptx":
            first = next(branch for branch, cuda in self._drivers.branches if cuda >= build.toolkit)
            return f"update the NVIDIA driver to {first} or newer"
        last = self._last_branch(gpus)
        return f"update the NVIDIA driver to {self._floors[build.toolkit[0]]} or newer" + (
            f", up to {last}" if last else ""
        )

    def floors(self, build: Build) -> Mapping[str, str]:
        """The floor of the build's CUDA major on its operating system."""
        floor = self._drivers.floors.get(build.toolkit[0]) if build.toolkit else None
        return {"driver": str(floor.windows if build.os == "windows" else floor.linux)} if floor else {}

    # The GPUs.

    def gpu_fault(self, gpu: Gpu) -> Fault | None:
        """Say that the chip is not known, or that the driver is from before its generation, or has dropped it."""
        chip = _chip(gpu)
        if chip is None:
            message = f"the compute capability of {gpu.label} is not known: its driver tells it"
            return Fault(Reason("unknown-gpu", message), "install a driver that drives it, then try again")
        generation = self._drivers.generation(chip)
        if not generation or self._branch is None:
            return None
        chips = f"{generation.name} GPUs such as {gpu.label}"
        last = generation.last_branch
        if last is not None and self._branch > last:
            message = f"{self.driver} no longer drives {chips}; {last} is the last that does"
            return Fault(Reason("driver-dropped-gpu", message), f"install driver {last}")
        floor = generation.floor and self._here(generation.floor)
        if floor and not (self._reaches(floor) if self._version else self._branch >= floor.branch):
            message = f"{self.driver} does not know {chips}; {floor} is the first that does"
            return Fault(Reason("driver-older-than-gpu", message), f"update the NVIDIA driver to {floor} or newer")
        return None

    def architecture(self, gpu: Gpu) -> str | None:
        """The name of its SASS, ``sm_89``."""
        chip = _chip(gpu)
        return chip and chip.sm

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Its compute capability."""
        return _chip(gpu) or (0, 0)

    def ever_served(self, gpu: Gpu) -> bool:
        """Say whether a CUDA build for this platform has code for a chip, under the newest driver there could be."""
        chip = _chip(gpu)
        builds = self.catalog.builds_for(self.machine.os, self.machine.arch)
        return chip is None or any(
            isinstance(code_for(build, chip, self._drivers, _ANY_CUDA), Code)
            for build in builds
            if build.backend.kind == self.kind
        )

    # The builds.

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Find the SASS or the PTX that a GPU runs; the libraries in the wheel count as the wheel."""
        chip = _chip(gpu)
        if chip is None:
            return Reason("no-code", f"the compute capability of {gpu.label} is not known")
        return code_for(build, chip, self._drivers, self._cuda)

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:
        """Say where a build's SASS begins, if that is above a GPU."""
        lowest = min(parse_code(build.code)[0], default=None)
        chips = [chip for gpu in gpus if (chip := _chip(gpu))]
        above = lowest is not None and any(chip < lowest.capability for chip in chips)
        return f"begins at {lowest}" if above else "has none"

    def preference(self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]) -> tuple[object, ...]:
        """Prefer SASS alone, then run-time compilers that know the chips, then the toolkit.

        The toolkit is the newest that is not above the driver's own CUDA, else the lowest above it.
        """
        toolkit = build.toolkit or (0, 0)
        above = self._cuda is not None and toolkit > self._cuda
        return (
            any(code.how == "ptx" for code in codes if isinstance(code, Code)),
            self._old_compiler(build, gpus) is not None,
            above,
            toolkit if above else tuple(-number for number in toolkit),
        )

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        """Say what the better build has, in the order of ``preference``."""
        ptx, compiler, above, _ = (theirs and not ours for ours, theirs in zip(better, other, strict=True))
        if ptx:
            return "it needs no PTX compiled at first use"
        if compiler:
            return "its run-time compilers know the GPU"
        if above:
            return f"its toolkit is not above the driver's CUDA {self._cuda}"
        return f"its toolkit is {'closer to the driver' if other[2] else 'newer'}"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        """Warn of a driver that runs only part of a build's kernels, and of compilers that do not know a chip."""
        found = (self._partially_supported(build), self._old_compiler(build, gpus))
        return tuple(reason for reason in found if reason is not None)

    def _partially_supported(self, build: Build) -> Reason | None:
        partial = self._drivers.partially_supported
        branch = self._version.branch if self._version else self._branch
        if build.toolkit is None or build.toolkit < partial.cuda or not partial.includes(branch):
            return None
        builds = f"CUDA {CudaVersion(*build.toolkit)} builds"
        safe = partial.last + 1
        message = f"{self.driver} runs {builds}, but some kernels (optimizers) may fail (F19): {safe} is safe"
        return Reason("driver-barely-new-enough", message)

    def _old_compiler(self, build: Build, gpus: Sequence[Gpu]) -> Reason | None:
        for gpu in gpus:
            chip = _chip(gpu)
            major = chip and self._drivers.compilers.get(chip)
            if major and build.toolkit and build.toolkit[0] < major:
                compilers = f"the run-time compilers of CUDA {CudaVersion(*build.toolkit)}"
                message = f"{compilers} do not know {gpu.label}: torch.compile may fail"
                return Reason("run-time-compiler-too-old", message)
        return None

    # What the driver is.

    @property
    def _drivers(self) -> Drivers:
        return self.catalog.drivers

    @cached_property
    def _version(self) -> DriverVersion | None:
        return self.machine.driver.version if self.machine.driver else None

    @cached_property
    def _branch(self) -> int | None:
        """The driver's branch; where its release is not known, the newest that its CUDA reaches (0: none)."""
        if self._version is not None:
            row = self._drivers.branch(self._version)
            return row[0] if row else self._version.branch
        newest = self._cuda
        if newest is None:
            return None
        return max((branch for branch, cuda in self._drivers.branches if cuda <= newest), default=0)

    @cached_property
    def _cuda(self) -> CudaVersion | None:
        """The newest CUDA that the driver serves: as it says, else as its branch does."""
        if self.machine.driver is not None and self.machine.driver.cuda is not None:
            return self.machine.driver.cuda
        row = self._drivers.branch(self._version) if self._version else None
        return row[1] if row else None

    @cached_property
    def _floors(self) -> dict[int, DriverVersion]:
        """The oldest driver for each CUDA major on this system."""
        return {major: self._here(floor) for major, floor in self._drivers.floors.items()}

    def _here(self, floor: Floor) -> DriverVersion:
        """The floor for the system whose driver counts: in WSL that of Windows."""
        return floor.windows if self.machine.os == "windows" or self.machine.environment.wsl else floor.linux

    def _reaches(self, floor: DriverVersion) -> bool:
        """Say whether the driver is at least ``floor``; a branch named alone stands for its newest release."""
        version = self._version
        if version is None:
            return False
        return version.parts >= floor.parts or (len(version.parts) == 1 and version.branch == floor.branch)

    def _branches(self, gpus: Sequence[Gpu]) -> str:
        """Name the branches that drive the GPUs and serve the newest CUDA that they can have."""
        last = self._last_branch(gpus)
        if last is None:
            return f", {max(self._floors.values())} or newer"
        names = dict.fromkeys(found.name for found in self._generations(gpus) if found.last_branch == last)
        return f" of branch {last}, the last for {' and '.join(names)}"

    def _last_branch(self, gpus: Sequence[Gpu]) -> int | None:
        """The last branch that drives the newest GPU and all that can share a driver with it; None: no end."""
        generations = self._generations(gpus)
        first = max((self._here(found.floor).branch for found in generations if found.floor), default=0)
        lasts = [found.last_branch for found in generations if found.last_branch is not None]
        return min((last for last in lasts if last >= first), default=None)

    def _generations(self, gpus: Sequence[Gpu]) -> list[Generation]:
        """The generations, as far as the catalogue knows them, of the GPUs that a build was ever made for."""
        chips = [chip for gpu in gpus if (chip := _chip(gpu)) and self.ever_served(gpu)]
        found = (self._drivers.generation(chip) for chip in chips)
        return [generation for generation in found if generation is not None]


def _chip(gpu: Gpu) -> ComputeCapability | None:
    """What a GPU can execute: as it says, else by the name of its architecture."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    named = re.fullmatch(r"sm_([0-9]{2,3})[af]?", gpu.architecture or "")
    return ComputeCapability.from_sm(int(named[1])) if named else None
