"""Everything that was read about a machine with NVIDIA's GPUs, before anything is concluded from it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from gpuinstall.catalog.drivers import Drivers
from gpuinstall.catalog.gpus import Product
from gpuinstall.facts.bus import PciDevice
from gpuinstall.facts.source import Source
from gpuinstall.facts.steps import MachineFacts
from gpuinstall.failures.problems import FixContext
from gpuinstall.vendors.nvidia.libraries import LibcudaFacts, NvmlFacts, permitted
from gpuinstall.vendors.nvidia.linux import Fabric, LentByWindows, LinuxKernel
from gpuinstall.versions import ComputeCapability, DriverVersion

JETSON_RELEASE = "/etc/nv_tegra_release"
JETSON_COMPATIBLE = "/proc/device-tree/compatible"


class DriverSpan(NamedTuple):
    """The first driver that knows a chip, and the last branch that still drives it (None: no such bound is known).

    Where the first is only assumed, ``after`` is the newest that is known not to be it.
    """

    first: DriverVersion | None = None
    last: int | None = None
    after: str | None = None


@dataclass(frozen=True)
class Jetson:
    """The Tegra chip and the L4T release, as far as they are told: the GPU is part of the chip, not on the bus."""

    chip: str | None = None
    l4t: str = "unknown"

    @property
    def name(self) -> str | None:
        """The module's family."""
        return drivers().jetsons[self.chip].name if self.chip else None

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """What the chip can execute."""
        return drivers().jetsons[self.chip].capability if self.chip else None


def drivers() -> Drivers:
    """The catalogue's tables, loaded where a fault or a Jetson asks for them."""
    from gpuinstall.catalog.drivers import load_drivers

    return load_drivers()


def drivers_of(capability: ComputeCapability, system: str) -> DriverSpan:
    """Say which drivers drive a chip."""
    generation, floor = drivers().generation(capability), drivers().first_drivers.get(capability)
    first = floor and (floor.windows if system == "windows" else floor.linux)
    return DriverSpan(
        first, generation.last_branch if generation else None, floor.after if floor else None
    )


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Read the module; None where this is none. In a container the release file may be missing: the kernel tells."""
    chip = parse_compatible(source.text(JETSON_COMPATIBLE) or "")
    l4t = parse_l4t(source.text(JETSON_RELEASE) or "")
    if chip is None and l4t is None:
        return None
    return Jetson(
        chip, l4t or drivers().jetson_kernels.get(".".join(release.split(".")[:2]), "unknown")
    )


def parse_compatible(text: str) -> str | None:
    """Find the chip in the device tree's list of names, which NUL bytes separate."""
    matches = (re.fullmatch(r"nvidia,(tegra[0-9]{3})", name) for name in text.split("\0"))
    return next((match[1] for match in matches if match and match[1] in drivers().jetsons), None)


def parse_l4t(text: str) -> str | None:
    """Read ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text)
    return f"{match[1]}.{match[2]}" if match else None


NVIDIA_ON_PCI = 0x10DE


@dataclass(frozen=True)
class ToolkitVariables:
    """What the container toolkit reads: the devices asked for (void where CDI brings them), the driver's parts that
    are lent, and what the image demands of the driver."""

    devices: str | None = None
    capabilities: str | None = None
    required: str | None = None


@dataclass(frozen=True)
class BusCard:
    """An NVIDIA GPU on the bus."""

    device: PciDevice

    @cached_property
    def chip(self) -> Product | None:
        """Its chip, where the catalogue knows it."""
        from gpuinstall.catalog.gpus import product_of

        return product_of(self.device.device)

    @property
    def address(self) -> str:
        """Its address on the bus."""
        return self.device.address

    @property
    def name(self) -> str:
        """Its name and address, for a sentence."""
        return f"{self.chip.name if self.chip else 'NVIDIA ' + self.device.id} at {self.address}"

    @property
    def holder(self) -> str | None:
        """What drives it: a kernel driver's name; on Windows NVIDIA's release, or the error that stopped it."""
        driver = self.device.driver
        is_windows = driver is not None and re.fullmatch(r"[0-9.]+", driver) is not None
        return DriverVersion.of_windows(driver or "") if is_windows else driver


@dataclass(frozen=True)
class NvidiaEvidence:
    """The facts of all steps; ``nvml`` is nvidia-smi's answer where NVML itself could not be asked.

    ``nodes`` are the device nodes of cards, ``opened`` the addresses of the cards whose node may be opened, where not
    all of them are this process's; ``refused`` is what keeps it from the shared nodes; ``visible`` is
    CUDA_VISIBLE_DEVICES; ``shown`` the number of GPUs that files show, ``recounted`` that of those which a library
    must be asked about again; ``fabric`` is read where CUDA waits for it.
    """

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: tuple[str, ...] = ()
    opened: frozenset[str] = frozenset()
    shown: int = 0
    recounted: int = 0
    jetson: Jetson | None = None
    windows: LentByWindows | None = None
    toolkit: ToolkitVariables = field(default_factory=ToolkitVariables)
    visible: str | None = None
    nvml: NvmlFacts = field(default_factory=NvmlFacts)
    cuda: LibcudaFacts = field(default_factory=LibcudaFacts)
    kernel: LinuxKernel = field(default_factory=LinuxKernel)
    refused: tuple[str, ...] = ()
    fabric: Fabric | None = None

    @property
    def container(self) -> str | None:
        """The engine of the container, if it is one."""
        return self.facts.container.engine

    @property
    def cuda_works(self) -> bool:
        """Say whether cuInit succeeded."""
        return self.cuda.init == 0

    @property
    def shows_gpu(self) -> bool:
        """Say whether any source shows a GPU that this process was given."""
        lent = self.facts.wsl is not None and self.facts.wsl.gpu
        wsl = lent and (self.has_libraries or not (self.windows and self.windows.others_only))
        return bool(
            self.nvml.gpus or self.cuda.devices or self.cards or self.nodes or self.jetson or wsl
        )

    @property
    def has_libraries(self) -> bool:
        """Say whether any library of the driver could be loaded."""
        in_wsl = self.windows is not None and self.windows.libraries
        return self.nvml.library is not None or self.cuda.path is not None or in_wsl

    @property
    def driver(self) -> DriverVersion | None:
        """The driver's release: the kernel module's, else NVML's."""
        return self.kernel.module.version if self.kernel.module else self.nvml.driver

    @property
    def usable(self) -> tuple[PciDevice, ...]:
        """NVIDIA's display controllers that are not set aside for a virtual machine."""
        return tuple(device for device in gpus_on_bus(self.facts) if not device.is_reserved)

    @cached_property
    def cards(self) -> tuple[BusCard, ...]:
        """The cards on the bus that this process was given."""
        return _split_visible_gpus(self)[0]

    @cached_property
    def others(self) -> tuple[BusCard, ...]:
        """The cards on the bus that it was not given."""
        return _split_visible_gpus(self)[1]

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        words = {
            "release": self.kernel.release or self.facts.host.release or "$(uname -r)",
            "version": str(self.driver or "of the kernel module"),
            "running": str(self.driver.branch if self.driver else drivers().recommended_branch),
        }
        return FixContext(
            self.facts.fix_keys(*(("jetson",) if self.jetson else ())), tuple(words.items())
        )


def gpus_on_bus(facts: MachineFacts) -> tuple[PciDevice, ...]:
    """List NVIDIA's display controllers."""
    return tuple(
        device for device in facts.devices if device.vendor == NVIDIA_ON_PCI and device.is_display
    )


def _split_visible_gpus(
    evidence: NvidiaEvidence,
) -> tuple[tuple[BusCard, ...], tuple[BusCard, ...]]:
    """Tell the cards that this process was given from what the bus only shows."""
    given = {device.address for device in evidence.usable}
    if evidence.facts.container.shares_the_bus:
        listed = {gpu.bus_id for gpu in permitted(evidence.nvml).gpus}
        listed |= {device.bus_id for device in evidence.cuda.devices}
        given = (given & evidence.opened) | {address for address in listed if address}
    cards = tuple(map(BusCard, gpus_on_bus(evidence.facts)))
    ours = tuple(card for card in cards if card.address in given)
    return ours, tuple(card for card in cards if card.address not in given)
