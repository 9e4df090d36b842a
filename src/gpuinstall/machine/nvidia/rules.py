"""Rules that select and order CUDA builds for NVIDIA GPUs."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from gpuinstall.base.advice import Hint, make_command
from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.machine import Driver, Gpu
from gpuinstall.base.values import replace
from gpuinstall.base.vendors import NVIDIA
from gpuinstall.base.versions import (
    ComputeCapability,
    CudaVersion,
    DriverVersion,
    version_key,
)
from gpuinstall.machine.nvidia.code import find_code, split_code
from gpuinstall.machine.protocol import Code, Preference, Rules, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.catalog.drivers import Drivers, Floor

_ANY_CUDA = CudaVersion(999, 0)
_JETSON_WHEELS = (
    "https://docs.nvidia.com/deeplearning/frameworks/install-pytorch-jetson-platform/"
)


class NvidiaRules(Rules):
    """Rules for one machine's NVIDIA GPUs, from tables in ``drivers.toml``."""

    vendor = NVIDIA.name
    name = NVIDIA.label
    kind = NVIDIA.kind
    software = "CUDA"
    code_reasons = ("no-code", "no-cudnn-code")
    driver_reasons = ("driver-too-old-for-ptx", "driver-too-old")
    needs_architecture = False
    torch_device = "cuda"
    variables: ClassVar = {
        "CUDA_VISIBLE_DEVICES": "{}",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
    # This variable overrides torch's settings, but verification needs exact float32 products.
    misleading_variables = ("NVIDIA_TF32_OVERRIDE",)

    @property
    def driver(self) -> str:
        """The driver and its version for messages: ``driver 535.183.01``."""
        name = f"driver {self._version}"
        if self._version is None:
            name = f"a driver for CUDA {self._cuda}"
        return f"{name} ({self._driver.libcuda})" if self._driver.libcuda else name

    @cached_property
    def _driver(self) -> Driver:
        """The NVIDIA driver. All fields are unknown if it is not installed."""
        return self.machine.driver or Driver()

    @property
    def _tables(self) -> Drivers:
        return self.catalog.drivers

    @property
    def _version(self) -> DriverVersion | None:
        return self._driver.version

    @cached_property
    def _cuda(self) -> CudaVersion | None:
        """The newest CUDA version that the driver or its branch supports."""
        row = self._version and self._tables.branch(self._version)
        return self._driver.cuda or (row.cuda if row else None)

    @cached_property
    def _branch(self) -> int | None:
        """The release branch of the driver, if known.

        If only the supported CUDA is known, the result is the newest branch for this
        CUDA, or 0 if no branch is old enough.
        """
        if self._version is not None:
            row = self._tables.branch(self._version)
            return row.branch if row else self._version.branch
        served = self._cuda
        if served is None:
            return None
        reached = [branch for branch, cuda in self._tables.branches if cuda <= served]
        return max(reached, default=0)

    def _find_floor(self, major: int) -> DriverVersion | None:
        """Return the minimum driver for a CUDA major version, if known."""
        floor = self._tables.floors.get(major)
        return self._select_minimum(floor) if floor else None

    def _select_minimum(self, floor: Floor) -> DriverVersion:
        """Return the minimum driver for Linux or, as in WSL, Windows."""
        if self.machine.os == "windows" or self.machine.environment.wsl:
            return floor.windows
        return floor.linux

    def _is_at_least(self, floor: DriverVersion) -> bool:
        """Return whether the driver is as new as the minimum driver ``floor``.

        If the driver's release is unknown, the newest release of its branch is assumed.
        """
        version = self._version
        if version is None:
            row = self._tables.branch(floor)
            branch = self._branch
            return branch is not None and row is not None and branch >= row[0]
        if len(version.parts) == 1:
            return version.branch >= floor.branch
        return version.parts >= floor.parts

    def find_platform_fault(self) -> Finding | None:
        """Reject a Jetson whose older JetPack requires other wheels."""
        l4t = self.machine.environment.l4t
        release = version_key(l4t or "")
        if not release or release >= version_key(self._tables.jetson):
            return None
        return Finding(
            "jetson",
            f"a Jetson with L4T {l4t} (before JetPack 7) requires NVIDIA's own wheels of torch",
            fixes=(f"NVIDIA's wheels: {_JETSON_WHEELS}", "Or update to JetPack 7"),
        )

    def find_driver_fault(self, gpus: Sequence[Gpu]) -> Finding | None:
        """Return a finding if the NVIDIA driver is missing."""
        if self._version or self._driver.cuda:
            return None
        names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
        chips = self._find_supported_chips(gpus)
        last = self._find_last_branch(chips)
        if last is None:
            floors = [*map(self._select_minimum, self._tables.floors.values())]
            floors += filter(None, map(self._find_first_driver, chips))
            branches = f", {max(floors)} or newer"
        else:
            ended = self._find_last_branches(chips).items()
            dropped = " and ".join(name for name, branch in ended if branch == last)
            branches = f" of branch {last}, the last for {dropped}"
        branches += self._describe_unsupported_gpus(chips)
        return Finding(
            "no-driver",
            f"there is no NVIDIA driver for {names}",
            fixes=(f"Install the NVIDIA driver{branches}",),
        )

    def find_gpu_fault(self, gpu: Gpu) -> Finding | None:
        """Return a finding if a GPU is unknown or lacks a suitable driver.

        The driver may be older than the GPU's chip, or may no longer support its
        generation.
        """
        chip = _find_chip(gpu)
        if chip is None:
            return super().find_gpu_fault(replace(gpu, architecture=None))
        branch = self._branch
        if branch is None:
            return None
        generation = self._tables.generation(chip)
        last = generation.last_branch if generation else None
        chips = [chip, *_find_chips(self.machine.gpus)]
        conflict = self._describe_unsupported_gpus(chips)
        # Another driver would be for this GPU, but not for one that works.
        working = filter(self.is_ever_supported, self.machine.gpus)
        is_harmful = bool(conflict) and any(
            map(self._supports, _find_chips([*working]))
        )
        if generation and last is not None and branch > last:
            libcuda = self._driver.libcuda
            fix = f"Remove {libcuda}" if libcuda else f"Install driver {last}"
            return Finding(
                "driver-dropped-gpu",
                f"{self.driver} no longer supports {generation.name} GPUs such as {gpu.label}"
                + (conflict or f"; the last branch with support is {last}"),
                fixes=() if is_harmful else (fix,),
            )
        first = self._find_first_driver(chip)
        if first is None or self._is_at_least(first):
            return None
        majors = self._find_cuda_majors(chip)
        floors = [self._find_floor(major) or first for major in majors]
        floor = f"driver {first} or newer"
        newer = f"{max(first, min(floors, default=first))} or newer"
        after = self._tables.first_drivers[chip].after
        if after:
            floor = f"a driver newer than {after}"
            newer = "the latest version"
        update = self._format_update(newer, [chip])
        return Finding(
            "driver-older-than-gpu",
            f"{self.driver} does not support {gpu.label}, which requires {floor}{conflict}",
            fixes=() if is_harmful else (update,),
        )

    def _supports(self, chip: ComputeCapability) -> bool:
        """Return whether the driver supports a chip."""
        generation = self._tables.generation(chip)
        last = generation.last_branch if generation else None
        first = self._find_first_driver(chip)
        is_ended = last is not None and (self._branch or 0) > last
        return not is_ended and (first is None or self._is_at_least(first))

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Rank GPUs by their compute capability."""
        return _find_chip(gpu) or (0, 0)

    def is_ever_supported(self, gpu: Gpu) -> bool:
        """Return whether any CUDA build for this platform supports a GPU."""
        chip = _find_chip(gpu)
        return chip is None or any(self._find_cuda_majors(chip))

    def find_code(self, build: Build, gpu: Gpu) -> Code | Reason:
        """Return the SASS or PTX code in a build that a GPU can run.

        The code in bundled libraries such as cuDNN is considered too. A build that the
        user forces and whose code is unknown is assumed to support the GPU.
        """
        chip = _find_chip(gpu)
        if chip is None:
            return Reason(
                "no-code", f"the compute capability of {gpu.label} is unknown"
            )
        if build.lists_no_code:
            return Code(chip.sm, "sass")
        return find_code(build, chip, self._tables, self._cuda)

    def find_no_code_cause(self, code: Sequence[str], gpu: Gpu) -> str:
        """Return the failure of a GPU that is newer or older than a build."""
        sass, _ = split_code(tuple(code))
        oldest = min(sass).capability if sass else (0, 0)
        # No build of the catalog is too old for a GPU below sm_75.
        is_newer = self.rank(gpu) > oldest and self.rank(gpu) >= (7, 5)
        return "F38" if is_newer else self.no_code

    def find_driver_rejection(self, build: Build) -> Reason | None:
        """Reject a build if its CUDA major requires a newer driver.

        If only the driver's CUDA version is known, its major version is compared with
        the toolkit's.
        """
        toolkit = build.toolkit
        if toolkit is None:
            return None
        major, floor = toolkit[0], self._find_floor(toolkit[0])
        if floor is None:
            # The tables lack this CUDA major, so only the driver's own CUDA version can show support.
            is_supported = self._cuda is not None and self._cuda >= toolkit
        elif self._version is None and self._cuda is not None:
            is_supported = self._cuda.major >= major
        else:
            is_supported = self._is_at_least(floor)
        if is_supported:
            return None
        text = f"CUDA {major}.x needs {self._format_required_driver(build)}"
        if floor is None:
            text += f"; {self.driver} supports CUDA {self._cuda}"
        return Reason("driver-too-old", text)

    def _format_required_driver(self, build: Build) -> str:
        """Return the minimum driver for the CUDA major version of a build."""
        toolkit = build.toolkit or (0, 0)
        floor = self._find_floor(toolkit[0])
        if floor is None:
            return f"a driver for CUDA {CudaVersion(*toolkit)}"
        return f"driver {floor} or newer"

    def find_driver_fix(
        self,
        build: Build,
        code: str,
        gpus: Sequence[Gpu],
    ) -> tuple[Hint, ...]:
        """Return instructions to install a driver that can run a build."""
        toolkit = build.toolkit
        if toolkit is None or code not in self.driver_reasons:
            return ()
        chips = self._find_supported_chips(gpus)
        last = None
        floor: object = self._find_floor(toolkit[0])
        # A driver cannot compile PTX from a newer CUDA version than its own.
        if code == "driver-too-old-for-ptx":
            floor = self._tables.find_first_branch(toolkit)
        elif floor:
            last = self._find_last_branch(chips)
        if floor is None:
            newer = f"a version that supports CUDA {CudaVersion(*toolkit)}"
            return (self._format_update(newer, chips),)
        newer = f"{floor} or newer"
        if last:
            newer = f"{newer}, up to {last}"
            excluded = []
            for gpu in self.machine.gpus:
                chip = _find_chip(gpu)
                first = chip and self._find_first_driver(chip)
                if first and first.branch > last:
                    excluded.append(gpu.label)
            if excluded:
                newer += f"; these drivers do not support {' and '.join(excluded)}"
        newer += self._describe_unsupported_gpus(_find_chips(gpus))
        fixes: list[Hint] = [
            self._format_update(newer, chips),
            *self._update_commands(str(floor), last),
        ]
        if self._supports_compat():
            package = f"cuda-compat-{toolkit[0]}-{toolkit[1]}"
            fixes.append(
                f"Or keep the driver and install NVIDIA's package {package} (data-center GPUs only)"
            )
        return tuple(fixes)

    def _update_commands(
        self,
        floor: str,
        last: int | None,
    ) -> tuple[Hint, ...]:
        """Return driver update commands, or a request to the administrator.

        A machine from ``--gpu`` has no update commands, because its distribution is
        unknown.
        """
        environment = self.machine.environment
        is_guest = environment.container or environment.wsl
        if not (self.machine.distribution or is_guest):
            return ()
        # If newer drivers dropped a chip, use the last branch that supports it.
        branch = str(last) if last else floor.partition(".")[0]
        commands = self.catalog.driver_commands(self.machine, branch, last is not None)
        if is_guest or environment.l4t:
            return commands
        sentence = (
            f"please update the NVIDIA driver from {self._version} to {floor} or newer; "
            "programs built for older CUDA versions keep working"
        )
        return (*commands, f"Without root, ask the administrator: {sentence}")

    def _supports_compat(self) -> bool:
        """Return whether cuda-compat supports this driver and all GPUs."""
        environment, version = self.machine.environment, self._version
        if version is None or environment.wsl or environment.l4t:
            return False
        words = {
            word for gpu in self.machine.gpus for word in gpu.label.lower().split()
        }
        return (
            self.machine.os == "linux"
            and version.branch >= self._tables.compat_base
            and self._tables.no_compat.isdisjoint(words)
        )

    def _format_update(self, newer: str, chips: Iterable[ComputeCapability]) -> str:
        """Return the instruction to update the driver, or JetPack."""
        jetsons = {row.capability for row in self._tables.jetsons.values()}
        if jetsons.isdisjoint(chips):
            return f"Update the NVIDIA driver to {newer}"
        return "Update to a newer JetPack: the driver is part of it"

    def _find_first_driver(self, chip: ComputeCapability) -> DriverVersion | None:
        """Return the first driver that supports a chip, or None if all do."""
        floor = self._tables.first_drivers.get(chip)
        return self._select_minimum(floor) if floor else None

    def _find_last_branch(self, chips: Sequence[ComputeCapability]) -> int | None:
        """Return the last driver branch that supports the newest chip.

        Returns:
            The branch, or None if current branches support the chips.
        """
        first = self._find_first_branch(chips)
        lasts = self._find_last_branches(chips).values()
        return min((last for last in lasts if last >= first), default=None)

    def _describe_unsupported_gpus(self, chips: Sequence[ComputeCapability]) -> str:
        """Return a note if no driver supports the chips of all GPUs."""
        first = self._find_first_branch(chips)
        ended = self._find_last_branches(chips).items()
        dropped = [f"for {name} is {last}" for name, last in ended if last < first]
        if not dropped:
            return ""
        return f"; no driver supports all GPUs: the last {' and '.join(dropped)}"

    def _find_first_branch(self, chips: Sequence[ComputeCapability]) -> int:
        """Return the first driver branch for the newest chip, or 0."""
        firsts = filter(None, map(self._find_first_driver, chips))
        return max((first.branch for first in firsts), default=0)

    def _find_last_branches(self, chips: Sequence[ComputeCapability]) -> dict[str, int]:
        """Return the last driver branch for each generation of old chips."""
        rows = filter(None, map(self._tables.generation, chips))
        return {row.name: row.last_branch for row in rows if row.last_branch}

    def find_minimum_drivers(self, build: Build) -> Mapping[str, str]:
        """Return the minimum driver for a build on its operating system."""
        major, _ = build.toolkit or (0, 0)
        floor = self._tables.floors.get(major)
        if floor is None:
            return {}
        driver = floor.windows if build.os == "windows" else floor.linux
        return {"driver": str(driver)}

    def create_preference_key(
        self,
        toolkit: Toolkit,
        codes: Sequence[Code | Reason],
        gpus: Sequence[Gpu],
    ) -> Preference:
        """Prefer listed code, SASS, supported compilers, and newer toolkits.

        A supported compiler is a runtime compiler (NVRTC) that supports the GPUs. The
        newest toolkit up to the driver's CUDA version is preferred, or the oldest
        toolkit if all are newer.
        """
        major, minor = toolkit or (0, 0)
        is_above = self._cuda is not None and (major, minor) > self._cuda
        needs_ptx = any(code.how == "ptx" for code in codes if isinstance(code, Code))
        return (
            (
                self._find_jetson_warning(toolkit, gpus) is not None,
                "torch lists code for this Jetson",
            ),
            (needs_ptx, "it requires no PTX compilation at first use"),
            (
                self._find_compiler_warning(toolkit, gpus) is not None,
                "its runtime compilers support the GPU",
            ),
            (is_above, f"its toolkit is not above the driver's CUDA {self._cuda}"),
            (is_above and (major, minor), "its toolkit is closer to the driver"),
            ((-major, -minor), "its toolkit is newer"),
        )

    def list_warnings(
        self,
        build: Build,
        gpus: Sequence[Gpu],
    ) -> tuple[Reason, ...]:
        """Return warnings about partial support by the driver or GPUs."""
        reasons = (
            self._find_driver_warning(build),
            self._find_jetson_warning(build.toolkit, gpus),
            self._find_compiler_warning(build.toolkit, gpus),
        )
        return tuple(filter(None, reasons))

    def _find_driver_warning(self, build: Build) -> Reason | None:
        partial = self._tables.partially_supported
        if build.toolkit is None or build.toolkit < partial.cuda:
            return None
        branch = self._branch
        if branch is None or not partial.first <= branch <= partial.last:
            return None
        return Reason(
            "driver-barely-new-enough",
            f"{self.driver} runs CUDA {CudaVersion(*build.toolkit)} builds, but some kernels (optimizers) may fail (F19);"
            f" driver {partial.last + 1} or newer is not affected",
        )

    def _find_jetson_warning(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Reason | None:
        """Return a warning if a build does not list a Jetson's code."""
        for gpu in gpus:
            chip = _find_chip(gpu)
            tegra = self._tables.tegra.get(chip) if chip else None
            if toolkit and tegra and tegra.unified and toolkit < tegra.unified:
                return Reason(
                    "code-of-a-relative",
                    f"torch lists no code for {gpu.label} before CUDA {tegra.unified}. A user reported that builds like this one,"
                    f" for CUDA {CudaVersion(*toolkit)}, run",
                    fixes=(make_command("verify"),),
                )
        return None

    def _find_compiler_warning(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Reason | None:
        for gpu in gpus:
            chip = _find_chip(gpu)
            compilers = self._tables.run_time_compilers.get(chip) if chip else None
            if compilers and toolkit and toolkit < compilers:
                return Reason(
                    "run-time-compiler-too-old",
                    f"torch.compile may fail: the runtime compilers of CUDA {CudaVersion(*toolkit)}"
                    f" do not support {gpu.label} (the compilers of CUDA {compilers} do)",
                )
        return None

    def _find_cuda_majors(self, chip: ComputeCapability) -> Iterator[int]:
        """Yield the CUDA major versions whose builds support a chip."""
        for build in self.catalog.builds_for(self.machine.os, self.machine.arch):
            if build.toolkit and build.backend.kind == self.kind:
                code = find_code(build, chip, self._tables, _ANY_CUDA)
                if isinstance(code, Code):
                    yield build.toolkit[0]

    def _find_supported_chips(self, gpus: Sequence[Gpu]) -> list[ComputeCapability]:
        """Return the compute capabilities of GPUs that any build supports."""
        return _find_chips([gpu for gpu in gpus if self.is_ever_supported(gpu)])


def _find_chips(gpus: Sequence[Gpu]) -> list[ComputeCapability]:
    return [chip for chip in map(_find_chip, gpus) if chip]


def _find_chip(gpu: Gpu) -> ComputeCapability | None:
    """Return a GPU's compute capability, reported or from its architecture."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    architecture = re.fullmatch(r"sm_([0-9]{2,3})[af]?", gpu.architecture or "")
    if architecture:
        return ComputeCapability.from_sm(int(architecture[1]))
    return None
