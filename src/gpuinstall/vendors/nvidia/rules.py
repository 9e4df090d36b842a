"""NVIDIA's rules: which driver and which code run which build, and which build is the better one."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.finding import Finding, Reason
from gpuinstall.vendors.nvidia.driver import MachineDriver, code_for, split_code
from gpuinstall.vendors.protocol import Code, Rules
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.machine import Gpu

_ANY_CUDA = CudaVersion(999, 0)
_JETSON_WHEELS = "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/"


class NvidiaRules(Rules):
    """The rules for one machine, by the tables of ``drivers.toml``."""

    vendor = "nvidia"
    name = "NVIDIA"
    kind = "cuda"
    software = "CUDA"
    code_reasons = ("no-code", "no-cudnn-code")
    driver_reasons = ("driver-too-old-for-ptx", "driver-too-old")

    @property
    def driver(self) -> str:
        """The driver as people name it."""
        return str(self._driver)

    @cached_property
    def _driver(self) -> MachineDriver:
        return MachineDriver(self.machine, self.catalog.drivers)

    def platform_fault(self) -> Finding | None:
        """Refuse a Jetson before JetPack 7."""
        l4t = self.machine.environment.l4t
        number = re.search(r"[0-9]+", l4t or "")
        if number is None or int(number[0]) >= self.catalog.drivers.server_l4t:
            return None
        message = f"a Jetson with L4T {l4t} (before JetPack 7) needs NVIDIA's own wheels of torch"
        return Finding(
            "jetson",
            message,
            fixes=(f"NVIDIA's wheels: {_JETSON_WHEELS}", "Or update to JetPack 7"),
        )

    def driver_fault(self, gpus: Sequence[Gpu]) -> Finding | None:
        """Name a driver that is missing, or says neither its release nor its CUDA."""
        driver = self.machine.driver
        if driver is not None and (driver.version is not None or driver.cuda is not None):
            return None
        names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
        if driver is None:
            fix = f"Install the NVIDIA driver{self._driver.branches_for(self._chips(gpus))}"
            return Finding("no-driver", f"there is no NVIDIA driver for {names}", fixes=(fix,))
        message = f"the NVIDIA driver for {names} does not report its version"
        fix = "nvidia-smi   # should show it; if it fails, reinstall the driver"
        return Finding("driver-unknown", message, fixes=(fix,))

    def gpu_fault(self, gpu: Gpu) -> Finding | None:
        """Return that the chip is not known, or that the driver ignores it."""
        chip = _chip(gpu)
        if chip is None:
            return self._unknown(gpu)
        return self._driver.compat_fault(gpu.label) or self._driver.ignores(
            chip, gpu.label, self._majors(chip)
        )

    def _unknown(self, gpu: Gpu) -> Finding:
        if self.machine.driver is None:
            message = (
                f"the compute capability of {gpu.label} is unknown until its driver is installed"
            )
            return Finding(
                "unknown-gpu", message, fixes=("Install a driver that supports it, then try again",)
            )
        message = f"neither the driver nor its name tells the compute capability of {gpu.label}"
        fix = "nvidia-smi --query-gpu=name,compute_cap --format=csv   # asks a driver from R495 on"
        return Finding("unknown-gpu", message, fixes=(fix,))

    def architecture(self, gpu: Gpu) -> str | None:
        """The name of its SASS, ``sm_89``."""
        chip = _chip(gpu)
        return chip and chip.sm

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Its compute capability."""
        return _chip(gpu) or (0, 0)

    def ever_served(self, gpu: Gpu) -> bool:
        """Whether a CUDA build for this platform has code for a chip, under the newest driver there could be."""
        chip = _chip(gpu)
        return chip is None or any(self._majors(chip))

    def code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Find the SASS or the PTX that a GPU runs; the libraries in the wheel count as the wheel.

        A build that does not say what it has, and is forced, is taken to have what the GPU needs.
        """
        chip = _chip(gpu)
        if chip is None:
            return Reason("no-code", f"the compute capability of {gpu.label} is not known")
        if build.lists_no_code:
            return Code(chip.sm, "sass")
        return code_for(build, chip, self.catalog.drivers, self._driver.cuda)

    def lacks(self, build: Build, gpus: Sequence[Gpu]) -> str:
        """Return where a build's SASS begins, if that is above a GPU."""
        lowest = min(split_code(build.code)[0], default=None)
        above = lowest is not None and any(
            chip < lowest.capability for gpu in gpus if (chip := _chip(gpu))
        )
        return f"begins at {lowest}" if above else "has none"

    def predates(self, build: Build, gpu: Gpu) -> bool:
        """Compare the highest SASS with the chip."""
        highest, chip = max(split_code(build.code)[0], default=None), _chip(gpu)
        return highest is not None and chip is not None and highest.capability < chip

    def against_driver(self, build: Build) -> Reason | None:
        """Keep the floor of the build's CUDA major."""
        if build.toolkit is None or self._driver.serves(build.toolkit):
            return None
        needed = f"CUDA {build.toolkit[0]}.x needs {self._driver.needed(build.toolkit)}"
        has = (
            ""
            if build.toolkit[0] in self._driver.floors
            else f"; {self._driver} says CUDA {self._driver.cuda}"
        )
        return Reason("driver-too-old", f"{needed}{has}")

    def driver_for(self, build: Build) -> str:
        """The floor of the build's CUDA major."""
        return self._driver.needed(build.toolkit) if build.toolkit else "no driver"

    def driver_fix(self, build: Build, code: str, gpus: Sequence[Gpu]) -> str | None:
        """Name the driver to update to: of the build's CUDA major, or one that compiles its PTX."""
        if build.toolkit is None or code not in self.driver_reasons:
            return None
        floor = self._driver.floors.get(build.toolkit[0])
        if code == "driver-too-old-for-ptx":
            branches = self.catalog.drivers.branches
            floor = next(
                (
                    DriverVersion.parse(str(branch))
                    for branch, cuda in branches
                    if cuda >= build.toolkit
                ),
                None,
            )
            return (
                f"Update the NVIDIA driver to {floor} or newer"
                if floor
                else _newest_driver(build.toolkit)
            )
        if floor is None:
            return _newest_driver(build.toolkit)
        last = self._driver.last_branch(self._chips(gpus))
        return f"Update the NVIDIA driver to {floor} or newer" + (f", up to {last}" if last else "")

    def floors(self, build: Build) -> Mapping[str, str]:
        """The floor of the build's CUDA major on its operating system."""
        floor = self.catalog.drivers.floors.get(build.toolkit[0]) if build.toolkit else None
        return (
            {"driver": str(floor.windows if build.os == "windows" else floor.linux)}
            if floor
            else {}
        )

    def preference(
        self, build: Build, codes: Sequence[Code | Reason], gpus: Sequence[Gpu]
    ) -> tuple[object, ...]:
        """Prefer code that torch counts for a chip, SASS alone, run-time compilers that know the chips, the toolkit.

        The toolkit is the newest that is not above the driver's own CUDA, else the lowest above it.
        """
        toolkit = build.toolkit or (0, 0)
        above = self._driver.cuda is not None and toolkit > self._driver.cuda
        return (
            self._not_unified(build, gpus) is not None,
            any(code.how == "ptx" for code in codes if isinstance(code, Code)),
            self._old_compiler(build, gpus) is not None,
            above,
            toolkit if above else tuple(-number for number in toolkit),
        )

    def merit(self, better: tuple[object, ...], other: tuple[object, ...]) -> str:
        """Return what the better build has, in the order of ``preference``."""
        foreign, ptx, compiler, above, _ = (
            theirs and not ours for ours, theirs in zip(better, other, strict=True)
        )
        if foreign:
            return "torch counts its code for this Jetson"
        if ptx:
            return "it needs no PTX compiled at first use"
        if compiler:
            return "its run-time compilers support the GPU"
        if above:
            return f"its toolkit is not above the driver's CUDA {self._driver.cuda}"
        return f"its toolkit is {'closer to the driver' if other[3] else 'newer'}"

    def warnings(self, build: Build, gpus: Sequence[Gpu]) -> tuple[Reason, ...]:
        """Warn of a driver that runs only part of the kernels, of compilers that do not know a chip, of what is new."""
        reasons = (
            self._partially_supported(build),
            self._not_unified(build, gpus),
            self._old_compiler(build, gpus),
        )
        return (*self._compat(), *filter(None, reasons), *self._newer_than_catalog(gpus))

    def _compat(self) -> tuple[Reason, ...]:
        """Say under which conditions the forward-compatibility package works."""
        if not self._driver.is_compat:
            return ()
        limits = "every program must load its libcuda (LD_LIBRARY_PATH), without interoperation with graphics"
        message = (
            f"{self._driver}: {limits}; the supported drivers are in NVIDIA's table; verify decides"
        )
        return (Reason("forward-compatibility", message),)

    def _newer_than_catalog(self, gpus: Sequence[Gpu]) -> Iterator[Reason]:
        """Yield what is newer than the tables, and what it is judged by."""
        tables, driver, catalogue = (
            self.catalog.drivers,
            self._driver,
            f"the catalogue of {self.catalog.date}",
        )
        if driver.is_unknown:
            newest = f"{catalogue} ({tables.branches[-1][0]})"
            judged = f"it is judged by its CUDA {driver.cuda}"
            yield Reason("driver-not-in-catalogue", f"{driver} is newer than {newest}: {judged}")
        unknown = {
            chip: gpu.label for gpu in gpus if (chip := _chip(gpu)) and not tables.generation(chip)
        }
        for chip, label in unknown.items():
            judged = "it is judged by its compute capability"
            yield Reason(
                "chip-not-in-catalogue", f"{label} ({chip.sm}) is newer than {catalogue}: {judged}"
            )

    def _partially_supported(self, build: Build) -> Reason | None:
        partial, driver = self.catalog.drivers.partially_supported, self._driver
        branch = driver.version.branch if driver.version else driver.branch
        if build.toolkit is None or build.toolkit < partial.cuda or not partial.includes(branch):
            return None
        builds, safe = f"CUDA {CudaVersion(*build.toolkit)} builds", partial.last + 1
        message = (
            f"{driver} runs {builds}, but some kernels (optimizers) may fail (F19): {safe} is safe"
        )
        return Reason("driver-barely-new-enough", message)

    def _not_unified(self, build: Build, gpus: Sequence[Gpu]) -> Reason | None:
        """Warn of code that a Jetson was seen to run, and that torch does not count for it."""
        for gpu in gpus:
            unified = self.catalog.drivers.tegra.get(_chip(gpu) or ComputeCapability(0, 0))
            if unified and build.toolkit and build.toolkit < unified.toolkit:
                message = f"torch has no code for {gpu.label} before CUDA {unified.toolkit}, and {build.name} is older"
                return Reason(
                    "code-of-a-relative", f"{message}: a user saw such a build run; verify decides"
                )
        return None

    def _old_compiler(self, build: Build, gpus: Sequence[Gpu]) -> Reason | None:
        for gpu in gpus:
            chip = _chip(gpu)
            first = chip and self.catalog.drivers.compilers.get(chip)
            if first and build.toolkit and build.toolkit < first:
                compilers = f"the run-time compilers of CUDA {CudaVersion(*build.toolkit)}"
                message = f"{compilers} do not support {gpu.label}, those of {first} do: torch.compile may fail"
                return Reason("run-time-compiler-too-old", message)
        return None

    def _majors(self, chip: ComputeCapability) -> Iterator[int]:
        """The CUDA majors of the builds for this platform that have code for a chip, whatever the driver."""
        for build in self.catalog.builds_for(self.machine.os, self.machine.arch):
            served = build.backend.kind == self.kind and code_for(
                build, chip, self.catalog.drivers, _ANY_CUDA
            )
            if build.toolkit and isinstance(served, Code):
                yield build.toolkit[0]

    def _chips(self, gpus: Sequence[Gpu]) -> list[ComputeCapability]:
        """The chips of the GPUs that a build was ever made for."""
        return [chip for gpu in gpus if (chip := _chip(gpu)) and self.ever_served(gpu)]


def _newest_driver(toolkit: tuple[int, int]) -> str:
    return f"Update the NVIDIA driver to the newest: one for CUDA {CudaVersion(*toolkit)} is needed"


def _chip(gpu: Gpu) -> ComputeCapability | None:
    """What a GPU can execute: as it says, else by the name of its architecture."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    named = re.fullmatch(r"sm_([0-9]{2,3})[af]?", gpu.architecture or "")
    return ComputeCapability.from_sm(int(named[1])) if named else None
