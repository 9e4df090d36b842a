"""Rules that select and order CUDA builds for NVIDIA GPUs."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from gpuinstall.base.finding import Finding, Reason
from gpuinstall.base.vendors import NVIDIA
from gpuinstall.base.versions import ComputeCapability, CudaVersion, version_key
from gpuinstall.machine.nvidia.driver import MachineDriver, find_code, split_code
from gpuinstall.machine.protocol import Code, Preference, Rules, Toolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build

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
        return str(self._driver)

    @cached_property
    def _driver(self) -> MachineDriver:
        return MachineDriver(self.machine, self.catalog.drivers)

    def find_platform_fault(self) -> Finding | None:
        """Reject a Jetson whose older JetPack requires other wheels."""
        l4t = self.machine.environment.l4t
        release = version_key(l4t or "")
        if not release or release >= version_key(self.catalog.drivers.jetson):
            return None
        return Finding(
            "jetson",
            f"a Jetson with L4T {l4t} (before JetPack 7) requires NVIDIA's own wheels of torch",
            fixes=(f"NVIDIA's wheels: {_JETSON_WHEELS}", "Or update to JetPack 7"),
        )

    def find_driver_fault(self, gpus: Sequence[Gpu]) -> Finding | None:
        """Return a finding if the NVIDIA driver is missing."""
        driver = self._driver.driver
        if driver.version or driver.cuda:
            return None
        names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
        branches = self._driver.describe_branches(self._find_supported_chips(gpus))
        return Finding(
            "no-driver",
            f"there is no NVIDIA driver for {names}",
            fixes=(f"Install the NVIDIA driver{branches}",),
        )

    def find_gpu_fault(self, gpu: Gpu) -> Finding | None:
        """Return a finding if a GPU's chip is unknown or unsupported."""
        chip = _find_chip(gpu)
        if chip is None:
            return super().find_gpu_fault(gpu)
        return self._driver.find_fault(chip, gpu.label, self._find_cuda_majors(chip))

    def find_architecture(self, gpu: Gpu) -> str | None:
        """Return the name of a GPU's SASS architecture, such as ``sm_89``."""
        chip = _find_chip(gpu)
        return chip and chip.sm

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
        return find_code(build, chip, self.catalog.drivers, self._driver.cuda)

    def describe_missing_code(self, build: Build, gpus: Sequence[Gpu]) -> str:
        """Return the oldest architecture of a build if a GPU is older."""
        sass, _ = split_code(build.code)
        lowest = min(sass, default=None)
        if lowest and any(
            chip < lowest.capability for _, chip in _find_known_chips(gpus)
        ):
            return f"begins at {lowest}"
        return "has none"

    def find_no_code_cause(self, code: Sequence[str], gpu: Gpu) -> str:
        """Return the failure of a GPU that is newer or older than a build."""
        sass, _ = split_code(tuple(code))
        oldest = min(sass).capability if sass else (0, 0)
        # No build of the catalog is too old for a GPU below sm_75.
        is_newer = self.rank(gpu) > oldest and self.rank(gpu) >= (7, 5)
        return "F38" if is_newer else self.no_code

    def find_driver_rejection(self, build: Build) -> Reason | None:
        """Reject a build if its CUDA major requires a newer driver."""
        driver = self._driver
        toolkit = build.toolkit
        if toolkit is None or driver.supports_toolkit(toolkit):
            return None
        major = toolkit[0]
        text = f"CUDA {major}.x needs {driver.format_requirement(toolkit)}"
        if major not in driver.minimum_drivers:
            text += f"; {driver} supports CUDA {driver.cuda}"
        return Reason("driver-too-old", text)

    def format_required_driver(self, build: Build) -> str:
        """Return the minimum driver for the CUDA major version of a build."""
        return self._driver.format_requirement(build.toolkit or (0, 0))

    def find_driver_fix(
        self,
        build: Build,
        code: str,
        gpus: Sequence[Gpu],
    ) -> str | None:
        """Return instructions to install a driver that can run a build."""
        toolkit = build.toolkit
        if toolkit is None or code not in self.driver_reasons:
            return None
        last = None
        floor: object = self._driver.minimum_drivers.get(toolkit[0])
        # A driver cannot compile PTX from a newer CUDA version than its own.
        if code == "driver-too-old-for-ptx":
            branches = self.catalog.drivers.branches
            floor = next((branch for branch, cuda in branches if cuda >= toolkit), None)
        elif floor:
            last = self._driver.find_last_branch(self._find_supported_chips(gpus))
        if floor is None:
            cuda = CudaVersion(*toolkit)
            newer = f"a version that supports CUDA {cuda}"
            return self._driver.format_update(newer, self._find_supported_chips(gpus))
        newer = f"{floor} or newer"
        if last:
            newer = f"{newer}, up to {last}"
            excluded = [
                gpu.label
                for gpu, chip in _find_known_chips(self.machine.gpus)
                if (first := self._driver.find_first_driver(chip))
                and first.branch > last
            ]
            if excluded:
                newer += f"; these drivers do not support {' and '.join(excluded)}"
        newer += self._driver.describe_unsupported_gpus(
            [chip for _, chip in _find_known_chips(gpus)]
        )
        fixes = [
            self._driver.format_update(newer, self._find_supported_chips(gpus)),
            *self._update_commands(str(floor), last),
        ]
        if self._driver.supports_compat():
            package = f"cuda-compat-{toolkit[0]}-{toolkit[1]}"
            fixes.append(
                f"Or keep the driver and install NVIDIA's package {package} (data-center GPUs only)"
            )
        return "\n".join(fixes)

    def _update_commands(
        self,
        floor: str,
        last: int | None,
    ) -> tuple[str, ...]:
        """Return driver update commands, or a request to the administrator.

        A machine from ``--gpu`` has no update commands, because its distribution is
        unknown.
        """
        environment = self.machine.environment
        if not (self.machine.distribution or environment.container or environment.wsl):
            return ()
        # If newer drivers dropped a chip, use the last branch that supports it.
        branch = str(last) if last else floor.partition(".")[0]
        commands = self.catalog.driver_commands(self.machine, branch, last is not None)
        if environment.container or environment.wsl or environment.l4t:
            return commands
        version = self._driver.version
        sentence = (
            f"please update the NVIDIA driver from {version} to {floor} or newer; "
            "programs built for older CUDA versions keep working"
        )
        return (*commands, f"Without root, ask the administrator: {sentence}")

    def find_minimum_drivers(self, build: Build) -> Mapping[str, str]:
        """Return the minimum driver for a build on its operating system."""
        major, _ = build.toolkit or (0, 0)
        floor = self.catalog.drivers.floors.get(major)
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
        is_above = self._driver.cuda is not None and (major, minor) > self._driver.cuda
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
            (
                is_above,
                f"its toolkit is not above the driver's CUDA {self._driver.cuda}",
            ),
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
        driver = self._driver
        partial = self.catalog.drivers.partially_supported
        if build.toolkit is None or build.toolkit < partial.cuda:
            return None
        branch = driver.branch
        if branch is None or not partial.first <= branch <= partial.last:
            return None
        return Reason(
            "driver-barely-new-enough",
            f"{driver} runs CUDA {CudaVersion(*build.toolkit)} builds, but some kernels (optimizers) may fail (F19);"
            f" driver {partial.last + 1} or newer is not affected",
        )

    def _find_jetson_warning(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Reason | None:
        """Return a warning if a build does not list a Jetson's code."""
        for gpu, chip in _find_known_chips(gpus):
            tegra = self.catalog.drivers.tegra.get(chip)
            if toolkit and tegra and tegra.unified and toolkit < tegra.unified:
                return Reason(
                    "code-of-a-relative",
                    f"torch lists no code for {gpu.label} before CUDA {tegra.unified}. A user reported that builds like this one,"
                    f" for CUDA {CudaVersion(*toolkit)}, run; check with gpuinstall verify",
                )
        return None

    def _find_compiler_warning(
        self,
        toolkit: Toolkit,
        gpus: Sequence[Gpu],
    ) -> Reason | None:
        for gpu, chip in _find_known_chips(gpus):
            compilers = self.catalog.drivers.run_time_compilers.get(chip)
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
                code = find_code(build, chip, self.catalog.drivers, _ANY_CUDA)
                if isinstance(code, Code):
                    yield build.toolkit[0]

    def _find_supported_chips(self, gpus: Sequence[Gpu]) -> list[ComputeCapability]:
        """Return the compute capabilities of GPUs that any build supports."""
        return [
            chip for gpu, chip in _find_known_chips(gpus) if self.is_ever_supported(gpu)
        ]


def _find_known_chips(gpus: Sequence[Gpu]) -> Iterator[tuple[Gpu, ComputeCapability]]:
    for gpu in gpus:
        chip = _find_chip(gpu)
        if chip:
            yield gpu, chip


def _find_chip(gpu: Gpu) -> ComputeCapability | None:
    """Return a GPU's compute capability, reported or from its architecture."""
    if gpu.compute_capability is not None:
        return gpu.compute_capability
    architecture = re.fullmatch(r"sm_([0-9]{2,3})[af]?", gpu.architecture or "")
    if architecture:
        return ComputeCapability.from_sm(int(architecture[1]))
    return None
