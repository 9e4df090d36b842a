"""Everything that was read about a machine, before anything is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext
from gpuinstall.probe.container import Surroundings
from gpuinstall.probe.kernel import KernelState
from gpuinstall.probe.libcuda import LibcudaFacts
from gpuinstall.probe.nvml import NvmlFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog.gpus import Product
    from gpuinstall.probe.fabric import Fabric
    from gpuinstall.probe.folders import Folder
    from gpuinstall.probe.host import Host
    from gpuinstall.probe.jetson import Jetson
    from gpuinstall.probe.pci import PciDevice
    from gpuinstall.probe.wsl import Wsl

# The production branch that drives every GPU from Maxwell to Blackwell.
NEWEST_BRANCH = 580


@dataclass(frozen=True)
class Card:
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


@dataclass(frozen=True)
class Evidence:
    """The facts of all steps; ``nvml`` is nvidia-smi's answer where NVML itself could not be asked.

    ``cards`` are those on the bus that this process was given, ``others`` those that it was not, ``foreign`` other
    makers' GPUs; ``fabric`` is read where CUDA waits for it; ``nodes`` are the device nodes of cards, ``refused`` what
    keeps this process from the shared ones; ``visible`` is CUDA_VISIBLE_DEVICES.
    """

    host: Host
    nvml: NvmlFacts = field(default_factory=NvmlFacts)
    cuda: LibcudaFacts = field(default_factory=LibcudaFacts)
    kernel: KernelState = field(default_factory=KernelState)
    surroundings: Surroundings = field(default_factory=Surroundings)
    cards: tuple[Card, ...] = ()
    others: tuple[Card, ...] = ()
    nodes: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    fabric: Fabric | None = None
    wsl: Wsl | None = None
    jetson: Jetson | None = None
    folders: Mapping[str, Folder] = field(default_factory=dict)
    visible: str | None = None
    foreign: tuple[PciDevice, ...] = ()
    missing_libraries: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()

    @property
    def cuda_works(self) -> bool:
        """Say whether cuInit succeeded."""
        return self.cuda.init == 0

    @property
    def shows_gpu(self) -> bool:
        """Say whether any source shows a GPU that this process was given."""
        wsl = self.wsl is not None and self.wsl.gpu and (self.has_libraries or not self.wsl.other)
        listed = self.nvml.gpus or self.cuda.devices
        return bool(listed or self.cards or self.nodes or self.jetson or wsl)

    @property
    def has_libraries(self) -> bool:
        """Say whether any library of the driver could be loaded."""
        in_wsl = self.wsl is not None and self.wsl.libraries
        return self.nvml.library is not None or self.cuda.path is not None or in_wsl

    @property
    def place(self) -> FixContext:
        """Where a fix would be applied."""
        host, container = self.host, self.surroundings.container
        keys = (
            *((container, "container") if container else ()),
            *(("wsl",) if self.wsl else ()),
            *(("jetson",) if self.jetson else ()),
            *host.fix_keys,
            host.os,
        )
        version = self.kernel.module.version if self.kernel.module else self.nvml.driver
        words = {
            "release": self.kernel.release or self.host.release or "$(uname -r)",
            "version": str(version or "of the kernel module"),
            "running": str(version.branch if version else NEWEST_BRANCH),
        }
        return FixContext(keys, tuple(words.items()))
