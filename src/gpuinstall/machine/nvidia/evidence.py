"""Everything that was read about a machine with NVIDIA's GPUs, before anything is concluded from it."""

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
    libcuda_release,
)
from gpuinstall.machine.nvidia.linux import KernelModule
from gpuinstall.machine.prober import MachineFacts
from gpuinstall.machine.source import Source

if TYPE_CHECKING:
    from gpuinstall.catalog.failures.problems import FixContext
    from gpuinstall.catalog.gpus import Product

NVIDIA_ON_PCI = 0x10DE
JETSON_RELEASE = "/etc/nv_tegra_release"
JETSON_COMPATIBLE = "/proc/device-tree/compatible"


class Jetson(Value):
    """A Jetson, as far as it is told: its GPU is part of the Tegra chip, not on the bus."""

    chip: JetsonChip | None
    l4t: str
    """The release of Jetson Linux."""


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Return the module; None if this is none.

    Args:
        source: The machine.
        release: The kernel's release. In a container L4T's own file may be missing: then this tells it.
    """
    chip = parse_compatible(source.text(JETSON_COMPATIBLE) or "")
    l4t = parse_l4t(source.text(JETSON_RELEASE) or "")
    # Of all three a plain container shows the kernel's name alone.
    if chip is None and l4t is None and not release.endswith("-tegra"):
        return None
    kernel = ".".join(release.split(".")[:2])
    return Jetson(chip, l4t or load_drivers().jetson_kernels.get(kernel, "unknown"))


def parse_compatible(text: str) -> JetsonChip | None:
    """Return the chip in the device tree's list of names, which NUL bytes separate."""
    for name in text.split("\0"):
        chip = load_drivers().jetsons.get(name.removeprefix("nvidia,"))
        if chip:
            return chip
    return None


def parse_l4t(text: str) -> str | None:
    """Return ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(
        r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text
    )
    return f"{match[1]}.{match[2]}" if match else None


class BusCard(Value):
    """An NVIDIA GPU on the bus."""

    device: PciDevice

    @cached_property
    def chip(self) -> Product | None:
        """Its chip, if the catalogue knows it."""
        from gpuinstall.catalog.gpus import product_of

        return product_of(self.device.device)

    @property
    def capability(self) -> ComputeCapability | None:
        """What its chip can execute."""
        return self.chip.capability if self.chip else None

    @property
    def label(self) -> str:
        """The name of its chip, or its number."""
        return self.chip.name if self.chip else f"NVIDIA {self.device.id}"

    @property
    def address(self) -> str:
        """Its address on the bus."""
        return self.device.address

    @property
    def name(self) -> str:
        """Its name and address, for a sentence."""
        return f"{self.label} at {self.address}"

    @property
    def holder(self) -> str | None:
        """What drives it: a kernel driver's name; on Windows NVIDIA's release, or the error that stopped it."""
        driver = self.device.driver
        if driver and re.fullmatch(r"[0-9.]+", driver):
            return DriverVersion.of_windows(driver)
        return driver


class NvidiaEvidence(Value):
    """The facts of the machine, and NVIDIA's own."""

    facts: MachineFacts
    nodes: tuple[str, ...]
    """The device nodes of cards."""
    jetson: Jetson | None
    lent_libraries: bool
    """Whether Windows lent WSL a library of the driver."""
    shadow: str | None
    """In WSL, a libcuda that hides the one that Windows lent."""
    devices: str | None
    """NVIDIA_VISIBLE_DEVICES, which the container toolkit reads: the devices asked for (void if CDI brings them)."""
    capabilities: str | None
    """NVIDIA_DRIVER_CAPABILITIES: the parts of the driver that it lends."""
    visible: str | None
    """CUDA_VISIBLE_DEVICES."""
    nvml: NvmlFacts
    """Without the cards of other jobs and containers."""
    cuda: LibcudaFacts
    module: KernelModule | None
    """Linux's, as it is loaded."""
    on_disk: bool
    """Whether the module lies on the disk."""
    secure_boot: bool
    refused: tuple[str, ...]
    """What keeps this process from the shared nodes."""

    @property
    def shows_gpu(self) -> bool:
        """Whether any source shows a GPU that this process was given."""
        listed = self.nvml.gpus or self.cuda.devices or self.cards
        return bool(listed or self.nodes or self.jetson or self._is_lent_by_windows)

    @property
    def _is_lent_by_windows(self) -> bool:
        wsl = self.facts.wsl
        if wsl is None or not wsl.gpu:
            return False
        return self.has_libraries or not wsl.makers or "nvidia" in wsl.makers

    @property
    def has_libraries(self) -> bool:
        """Whether any library of the driver could be loaded."""
        return bool(self.nvml.library or self.cuda.path or self.lent_libraries)

    @property
    def driver(self) -> DriverVersion | None:
        """The driver's release: the kernel module's, else NVML's."""
        if self.module:
            return self.module.version
        return self.nvml.driver

    @property
    def has_other_libcuda(self) -> bool:
        """Whether a libcuda, such as cuda-compat, loads before the own one."""
        release = libcuda_release(self.cuda.path)
        if release and self.driver:
            return release != self.driver
        return is_compat(self.cuda.path)

    @cached_property
    def cards(self) -> tuple[BusCard, ...]:
        """The cards on the bus that this process was given."""
        return tuple(card for card in self._all_cards if card.address in self._given)

    @cached_property
    def others(self) -> tuple[BusCard, ...]:
        """The cards on the bus that it was not given."""
        return tuple(card for card in self._all_cards if card not in self.cards)

    @cached_property
    def _all_cards(self) -> tuple[BusCard, ...]:
        return tuple(
            BusCard(device)
            for device in self.facts.devices
            if device.vendor == NVIDIA_ON_PCI and device.is_display
        )

    @cached_property
    def _given(self) -> set[str | None]:
        """The addresses of the cards that this process was given; the bus may show others."""
        usable = [
            card.address for card in self._all_cards if not card.device.is_reserved
        ]
        if not self.facts.container.shares_the_bus:
            return {*usable}
        # With a node for every card a container was given them all, also one that the driver has lost.
        if len(self.nodes) >= len(usable):
            return {*usable}
        listed: set[str | None] = {gpu.bus_id for gpu in self.nvml.gpus}
        listed |= {device.bus_id for device in self.cuda.devices}
        if listed:
            return listed
        # No library lists them: a node has the number of its card on the bus.
        given: set[str | None] = set()
        for number, address in enumerate(usable):
            if f"nvidia{number}" in self.nodes:
                given.add(address)
        return given

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        if self.driver:
            branch = self.driver.branch
        else:
            branch = load_drivers().recommended
        return self.facts.place(jetson=self.jetson is not None).knowing(
            release=self.facts.host.release or "$(uname -r)",
            version=self.driver or "of the kernel module",
            running=branch,
        )
