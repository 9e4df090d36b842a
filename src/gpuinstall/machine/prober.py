"""Interface and results of vendor probers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from gpuinstall.base.machine import Driver, Gpu, Machine, MigDevice
from gpuinstall.base.values import Value, replace
from gpuinstall.machine.container import ContainerInfo, Wsl, read_job_devices
from gpuinstall.machine.vendors import FIRST_VENDOR, find_vendor

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.catalog.failures.problems import FixContext
    from gpuinstall.machine.bus import PciDevice
    from gpuinstall.machine.host import Host
    from gpuinstall.machine.jetson import Jetson
    from gpuinstall.machine.source import Source

PreflightOutcome = Literal["proven", "unproven", "failed"]
OUTCOMES: tuple[PreflightOutcome, ...] = get_args(PreflightOutcome)
"""The preflight outcomes from best to worst."""

_SUMMARIES: dict[PreflightOutcome, str] = {
    "proven": "a kernel ran on {}",
    "unproven": "not verified: {}",
    "failed": "failed: {}",
}


class MachineFacts(Value):
    """Facts about a machine that do not require a GPU driver."""

    machine: Machine
    """The machine without GPUs."""
    host: Host
    container: ContainerInfo
    wsl: Wsl | None
    jetson: Jetson | None
    devices: tuple[PciDevice, ...]

    def cards(self, vendor: str) -> list[PciDevice]:
        """Return a vendor's devices that no virtual machine reserves."""
        return [
            device
            for device in self.devices
            if device.vendor == vendor and not device.is_reserved
        ]

    def create_fix_context(self) -> FixContext:
        """Create the context that selects the commands that fix a problem."""
        from gpuinstall.catalog.failures.problems import FixContext

        return FixContext.of_machine(self.machine)


class VendorFindings(Value):
    """Results of a vendor's prober."""

    gpus: tuple[Gpu, ...]
    """The vendor's GPUs, numbered from 0."""
    problems: tuple[Finding, ...]
    shows_gpu: bool = False
    """Whether any source indicates a GPU, even if ``gpus`` is empty."""
    driver: Driver | None = None
    devices: tuple[PciDevice, ...] = ()
    """The Windows display adapters, if they were queried."""
    facts: Mapping[str, Any] = {}
    """The vendor-specific table of the Machine document."""

    def renumber_from(self, first: int) -> VendorFindings:
        """Return the same findings with GPU indices from ``first`` up."""
        gpus = [replace(gpu, index=gpu.index + first) for gpu in self.gpus]
        problems = []
        for problem in self.problems:
            indices = tuple(gpu + first for gpu in problem.gpus)
            problems.append(replace(problem, gpus=indices))
        return replace(self, gpus=tuple(gpus), problems=tuple(problems))


class Preflight(Value):
    """Outcome of running a small kernel on each GPU before any download."""

    outcomes: Mapping[int, PreflightOutcome] = {}
    """The preflight outcomes by GPU index. A busy GPU is ``unproven``."""
    problems: tuple[Finding, ...] = ()
    seconds: float = 0.0

    def with_outcome(self, outcome: PreflightOutcome) -> tuple[int, ...]:
        """Return the indices of the GPUs with the given preflight outcome."""
        return tuple(index for index, end in self.outcomes.items() if end == outcome)

    @property
    def summary(self) -> str:
        """The preflight outcomes of all GPUs in one line."""
        count = len(self.outcomes)
        if len(self.with_outcome("proven")) == count > 1:
            return f"a kernel ran on {'both' if count == 2 else f'all {count}'} GPUs"
        parts = []
        for outcome, text in _SUMMARIES.items():
            gpus = self.with_outcome(outcome)
            if gpus:
                parts.append(text.format(format_gpus(gpus)))
        return " · ".join(parts)

    def to_dict(self) -> dict[str, Any]:
        """Return the preflight's entry in the output of ``doctor --json``."""
        gpus = [{"index": index, "status": end} for index, end in self.outcomes.items()]
        return {
            "gpus": gpus,
            "problems": [problem.to_dict() for problem in self.problems],
            "seconds": round(self.seconds, 3),
        }


class GpuPart(Value):
    """GPU or MIG slice that can run a kernel on its own."""

    gpu: Gpu
    slice: MigDevice | None
    name: str
    """The UUID of the GPU or slice, or its position among the GPUs."""
    withheld: str | None
    """The reason why this process cannot use the GPU or slice, if any."""


class Prober(ABC):
    """Detection of one vendor's GPUs."""

    vendor: ClassVar[str]
    job_variables: ClassVar[tuple[str, ...]] = ()
    """The variables that list a job's GPUs.

    A GPU is visible only if each of these variables that is set lists it.
    """

    @abstractmethod
    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Read this process's GPUs of the vendor, and their problems."""

    def preflight(
        self,
        machine: Machine,
        reporter: Reporter,
    ) -> Preflight:
        """Run a small kernel on each usable GPU before any download.

        By default, no kernel runs, and the GPUs are unproven.
        """
        indices = [part.gpu.index for part in self.find_usable_parts(machine)]
        return Preflight(dict.fromkeys(indices, "unproven"))

    def find_usable_parts(self, machine: Machine) -> list[GpuPart]:
        """Return usable GPUs and MIG slices, or none on a faulty machine."""
        if machine.blocking:
            return []
        return [part for part in self.list_parts(machine) if part.withheld is None]

    def list_parts(self, machine: Machine) -> Iterator[GpuPart]:
        """Yield the vendor's GPUs, or the slices of GPUs in MIG mode."""
        # A GPU of unknown vendor without a PCI ID, such as the GPU of a Jetson, counts as an NVIDIA GPU.
        ours = [
            gpu
            for gpu in sorted(machine.gpus, key=lambda gpu: gpu.index)
            if (find_vendor(gpu, machine) or FIRST_VENDOR) == self.vendor
        ]
        given = {
            variable: (devices, select_visible(devices, ours))
            for variable, devices in read_job_devices(self.job_variables).items()
        }
        # Unlike NVML, CUDA numbers the GPUs of a process from 0.
        for ordinal, gpu in enumerate(ours):
            for part in gpu.mig_devices or (None,):
                name = part.uuid if part else gpu.uuid or str(ordinal)
                withheld = machine.blocked_gpus.get(gpu.index)
                for variable, (devices, visible) in given.items():
                    if not withheld and visible.isdisjoint(
                        {str(ordinal), gpu.uuid, name}
                    ):
                        withheld = f"not assigned to this job: {variable}={devices}"
                yield GpuPart(gpu, part, name, withheld)


def select_visible(devices: str, gpus: Sequence[Gpu]) -> set[str]:
    """Return the ordinals and UUIDs of visible GPUs and MIG slices.

    An entry may abbreviate a UUID. The first entry that does not match exactly one
    device (``-1``, ``NoDevFiles``, or empty) ends the list, and a repeated device hides
    all, as in torch's ``_parse_visible_devices`` (torch/cuda/__init__.py). Intel's
    ``0.1``, a tile of GPU 0, makes GPU 0 visible.

    Args:
        devices: The list of devices in the format of CUDA_VISIBLE_DEVICES.
        gpus: The GPUs of the process in order.
    """
    ordinals = {str(ordinal) for ordinal in range(len(gpus))}
    uuids = {gpu.uuid for gpu in gpus}
    uuids |= {part.uuid for gpu in gpus for part in gpu.mig_devices}
    selected: list[tuple[str, str]] = []
    for entry in devices.split(","):
        name, _, tile = entry.strip().partition(".")
        matches = ordinals & {name}
        if name.startswith(("GPU-", "MIG-")):
            matches = {uuid for uuid in uuids if uuid and uuid.startswith(name)}
        if len(matches) != 1:
            break
        selected.append((matches.pop(), tile))
    if len(set(selected)) < len(selected):
        return set()
    return {name for name, _ in selected}


def format_gpus(gpus: tuple[int, ...]) -> str:
    """Format GPU indices for a message: ``GPUs 0, 1 and 2``."""
    if not gpus:
        return "the GPU"
    *first, last = map(str, gpus)
    return f"GPUs {', '.join(first)} and {last}" if first else f"GPU {last}"
