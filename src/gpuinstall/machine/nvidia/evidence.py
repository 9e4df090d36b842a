"""Facts about a machine with NVIDIA GPUs, as input of the diagnosis."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.values import Value
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.drivers import JetsonChip, load_drivers
from gpuinstall.machine.bus import PciDevice
from gpuinstall.machine.nvidia.libraries import (
    LibcudaFacts,
    NvmlFacts,
    is_compat,
    parse_libcuda_release,
)
from gpuinstall.machine.nvidia.linux import KernelModule
from gpuinstall.machine.prober import MachineFacts
from gpuinstall.machine.source import Source

if TYPE_CHECKING:
    from gpuinstall.catalog.failures.problems import FixContext
    from gpuinstall.catalog.gpus import Product

JETSON_RELEASE = "/etc/nv_tegra_release"
JETSON_COMPATIBLE = "/proc/device-tree/compatible"


class Jetson(Value):
    """Jetson, whose GPU is in the Tegra chip instead of on the PCI bus."""

    chip: JetsonChip | None
    l4t: str
    """The release of Jetson Linux (L4T)."""


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Detect a Jetson.

    Args:
        source: The source of machine facts.
        release: The kernel release, which determines L4T in a container without L4T's release file.
    """
    chip = parse_compatible(source.text(JETSON_COMPATIBLE) or "")
    l4t = parse_l4t(source.text(JETSON_RELEASE) or "")
    # In a container, only the kernel release may show that this is a Jetson.
    if chip is None and l4t is None and not release.endswith("-tegra"):
        return None
    kernel = ".".join(release.split(".")[:2])
    return Jetson(chip, l4t or load_drivers().jetson_kernels.get(kernel, "unknown"))


def parse_compatible(text: str) -> JetsonChip | None:
    """Return the Tegra chip from the NUL-separated names in a device tree."""
    for name in text.split("\0"):
        chip = load_drivers().jetsons.get(name.removeprefix("nvidia,"))
        if chip:
            return chip
    return None


def parse_l4t(text: str) -> str | None:
    """Parse ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(
        r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text
    )
    return f"{match[1]}.{match[2]}" if match else None


class BusCard(Value):
    """NVIDIA GPU on the PCI bus."""

    device: PciDevice

    @cached_property
    def chip(self) -> Product | None:
        """The GPU's chip, if the catalog contains it."""
        from gpuinstall.catalog.gpus import find_product_by_id

        return find_product_by_id(self.device.model)

    @property
    def capability(self) -> ComputeCapability | None:
        """The compute capability of the GPU's chip, if known."""
        return self.chip.capability if self.chip else None

    @property
    def label(self) -> str:
        """The name of the GPU's chip, or the PCI ID."""
        return self.chip.name if self.chip else f"NVIDIA {self.device.id}"

    @property
    def address(self) -> str:
        """The PCI address of the GPU."""
        return self.device.address

    @property
    def name(self) -> str:
        """The GPU's name and PCI address."""
        return f"{self.label} at {self.address}"

    @property
    def driver_text(self) -> str | None:
        """The kernel driver; on Windows, its release or an error."""
        driver = self.device.driver
        if driver and re.fullmatch(r"[0-9.]+", driver):
            return DriverVersion.from_windows(driver)
        return driver


class NvidiaEvidence(Value):
    """Facts about the machine, its NVIDIA driver, and its NVIDIA GPUs."""

    facts: MachineFacts
    nodes: tuple[str, ...]
    """The names of the GPUs' device nodes in /dev."""
    jetson: Jetson | None
    windows_libraries: bool
    """Whether WSL has a driver library from Windows."""
    shadow: str | None
    """A Linux libcuda in WSL that shadows the libcuda from Windows."""
    devices: str | None
    """The value of NVIDIA_VISIBLE_DEVICES, which lists a container's GPUs."""
    capabilities: str | None
    """The value of NVIDIA_DRIVER_CAPABILITIES, which containers set."""
    visible: str | None
    """The value of CUDA_VISIBLE_DEVICES."""
    nvml: NvmlFacts
    """NVML's facts without the GPUs of other jobs and containers."""
    cuda: LibcudaFacts
    module: KernelModule | None
    """The loaded kernel module on Linux."""
    on_disk: bool
    """Whether the kernel module is installed."""
    secure_boot: bool
    refused: tuple[str, ...]
    """The shared device nodes that this process cannot open."""

    @property
    def shows_gpu(self) -> bool:
        """Whether the driver or the PCI bus lists a GPU for this process."""
        listed = self.nvml.gpus or self.cuda.devices or self.cards
        return bool(listed or self.nodes or self.jetson or self._is_shared_by_windows)

    @property
    def _is_shared_by_windows(self) -> bool:
        wsl = self.facts.wsl
        if wsl is None or not wsl.gpu:
            return False
        return self.has_libraries or not wsl.vendors or "nvidia" in wsl.vendors

    @property
    def has_libraries(self) -> bool:
        """Whether any driver library could be loaded."""
        return bool(self.nvml.library or self.cuda.path or self.windows_libraries)

    @property
    def driver(self) -> DriverVersion | None:
        """The driver release that the kernel module or NVML reports."""
        if self.module:
            return self.module.version
        return self.nvml.driver

    @property
    def has_other_libcuda(self) -> bool:
        """Whether another libcuda, such as cuda-compat's, takes precedence."""
        release = parse_libcuda_release(self.cuda.path)
        if release and self.driver:
            return release != self.driver
        return is_compat(self.cuda.path)

    @cached_property
    def cards(self) -> tuple[BusCard, ...]:
        """The GPUs on the bus that belong to this process."""
        return tuple(
            card for card in self._all_cards if card.address in self._visible_addresses
        )

    @cached_property
    def others(self) -> tuple[BusCard, ...]:
        """The GPUs on the bus that do not belong to this process."""
        return tuple(card for card in self._all_cards if card not in self.cards)

    @cached_property
    def _all_cards(self) -> tuple[BusCard, ...]:
        return tuple(
            BusCard(device)
            for device in self.facts.devices
            if device.vendor == "nvidia" and device.is_display
        )

    @cached_property
    def _visible_addresses(self) -> set[str | None]:
        """The addresses of this process's GPUs."""
        usable = [
            card.address for card in self._all_cards if not card.device.is_reserved
        ]
        if not self.facts.container.has_shared_bus:
            return {*usable}
        # With a device node for every GPU, the container has all GPUs, even one that the driver has lost.
        if len(self.nodes) >= len(usable):
            return {*usable}
        listed: set[str | None] = {gpu.bus_id for gpu in self.nvml.gpus}
        listed |= {device.bus_id for device in self.cuda.devices}
        if listed:
            return listed
        # If no library lists the GPUs, use the device nodes, whose numbers are positions on the bus.
        given: set[str | None] = set()
        for number, address in enumerate(usable):
            if f"nvidia{number}" in self.nodes:
                given.add(address)
        return given

    @property
    def fix_context(self) -> FixContext:
        """The context that selects the commands that fix a problem."""
        if self.driver:
            branch = self.driver.branch
        else:
            branch = load_drivers().recommended
        return self.facts.place(jetson=self.jetson is not None).knowing(
            release=self.facts.host.release or "$(uname -r)",
            version=self.driver or "of the kernel module",
            running=branch,
        )
