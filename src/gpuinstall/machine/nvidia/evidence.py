"""Facts about a machine with NVIDIA GPUs, as input of the diagnosis."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import NVIDIA
from gpuinstall.base.versions import DriverVersion
from gpuinstall.catalog.drivers import load_drivers
from gpuinstall.machine.bus import PciDevice, read_adapters
from gpuinstall.machine.nvidia import linux
from gpuinstall.machine.nvidia.libraries import (
    NO_PERMISSION,
    LibcudaFacts,
    NvmlFacts,
    is_compat,
    parse_libcuda_release,
    query_driver,
)
from gpuinstall.machine.prober import MachineFacts
from gpuinstall.machine.source import Source
from gpuinstall.machine.symptoms import KnownFacts

if TYPE_CHECKING:
    from gpuinstall.catalog.failures.problems import FixContext


class NvidiaEvidence(Value):
    """Facts about the machine, its NVIDIA driver, and its NVIDIA GPUs."""

    facts: MachineFacts
    nvml: NvmlFacts
    """NVML's facts without the GPUs of other jobs and containers."""
    cuda: LibcudaFacts
    nodes: tuple[str, ...]
    """The names of the GPUs' device nodes in /dev."""
    module: linux.KernelModule | None
    """The loaded kernel module on Linux."""
    windows_libraries: bool
    """Whether WSL has a driver library from Windows."""
    visible: str | None
    """The value of CUDA_VISIBLE_DEVICES."""
    read: KnownFacts
    """The results of ``linux.READERS``."""

    @property
    def shows_gpu(self) -> bool:
        """Whether the driver or the PCI bus lists a GPU for this process."""
        listed = self.nvml.gpus or self.cuda.devices or self.cards or self.nodes
        wsl = self.facts.wsl
        if listed or self.facts.jetson or wsl is None or not wsl.gpu:
            return bool(listed or self.facts.jetson)
        return self.has_libraries or not wsl.vendors or NVIDIA.name in wsl.vendors

    @property
    def has_libraries(self) -> bool:
        """Whether any driver library could be loaded."""
        return bool(self.nvml.library or self.cuda.path or self.windows_libraries)

    @property
    def driver(self) -> DriverVersion | None:
        """The driver release that the kernel module or NVML reports."""
        return self.module.version if self.module else self.nvml.driver

    @property
    def has_other_libcuda(self) -> bool:
        """Whether another libcuda, such as cuda-compat's, takes precedence."""
        release = parse_libcuda_release(self.cuda.path)
        if release and self.driver:
            return release != self.driver
        return is_compat(self.cuda.path)

    @cached_property
    def cards(self) -> tuple[PciDevice, ...]:
        """The GPUs on the bus that belong to this process."""
        visible = self._visible_addresses
        return tuple(card for card in self._all_cards if card.address in visible)

    @cached_property
    def others(self) -> tuple[PciDevice, ...]:
        """The GPUs on the bus that do not belong to this process."""
        return tuple(card for card in self._all_cards if card not in self.cards)

    @cached_property
    def _all_cards(self) -> tuple[PciDevice, ...]:
        return tuple(
            device
            for device in self.facts.devices
            if device.vendor == NVIDIA.name and device.is_display
        )

    @property
    def _visible_addresses(self) -> set[str | None]:
        """The addresses of this process's GPUs."""
        usable: list[str | None] = [
            card.address for card in self._all_cards if not card.is_reserved
        ]
        # With a device node for every GPU, a container has all GPUs, even one that the driver has lost.
        if not self.facts.container.has_shared_bus or len(self.nodes) >= len(usable):
            return {*usable}
        listed = {gpu.bus_id for gpu in self.nvml.gpus}
        listed |= {device.bus_id for device in self.cuda.devices}
        # If no library lists the GPUs, use the device nodes, whose numbers are positions on the bus.
        return listed or {
            address
            for number, address in enumerate(usable)
            if f"nvidia{number}" in self.nodes
        }

    def create_fix_context(self, cards: Iterable[PciDevice] = ()) -> FixContext:
        """Create the context that selects fixes, with the GPUs' driver branch.

        If all GPUs predate the open kernel modules, the context has the last driver
        branch that supports the oldest GPU.
        """
        tables = load_drivers()
        chips = [card.capability for card in cards if card.capability]
        generations = filter(None, map(tables.generation, chips))
        branches = [row.last_branch for row in generations if row.last_branch]
        is_legacy = bool(branches) and all(
            chip < tables.kernel_modules.open_from for chip in chips
        )
        context = self.facts.create_fix_context().knowing(
            release=self.facts.host.release or "$(uname -r)",
            version=self.driver or "of the kernel module",
            running=self.driver.branch if self.driver else tables.recommended,
            branch=min(branches) if is_legacy else tables.recommended,
        )
        return replace(context, is_legacy=is_legacy)


def read_evidence(source: Source, facts: MachineFacts) -> NvidiaEvidence:
    """Query NVML and libcuda, and read the NVIDIA driver's files."""
    nvml, cuda = NvmlFacts(fault="missing"), LibcudaFacts(fault="missing")
    if _may_have_driver(source, facts):
        nvml, cuda = query_driver(source)
    if facts.container.has_shared_bus:
        # NVML also lists the GPUs of other jobs and containers, with the error "no permission".
        gpus = [gpu for gpu in nvml.gpus if gpu.error != NO_PERMISSION]
        nvml = replace(nvml, gpus=tuple(gpus))
    # Query Windows only if NVML does not work, because this takes seconds.
    if facts.machine.os == "windows" and not nvml.is_complete:
        facts = replace(facts, devices=read_adapters(source))
    # A job sees the device nodes of the whole host, but NVML lists only the job's GPUs.
    is_bare_job = facts.container.engine is None and facts.container.job is not None
    return NvidiaEvidence(
        facts,
        nvml,
        cuda,
        nodes=() if is_bare_job and nvml.is_complete else linux.list_gpu_nodes(source),
        module=linux.parse_proc_version(source.text(linux.PROC_VERSION) or ""),
        windows_libraries=linux.has_windows_libraries(source),
        visible=source.variable("CUDA_VISIBLE_DEVICES"),
        read={name: read(source, facts) for name, read in linux.READERS.items()},
    )


def _may_have_driver(source: Source, facts: MachineFacts) -> bool:
    """Return whether the machine may have an NVIDIA driver or GPU.

    Starting the two child processes on a machine without a driver would take longer than the rest of the probe.
    """
    return (
        facts.machine.os != "linux"
        or facts.jetson is not None
        or facts.wsl is not None
        or any(device.vendor == NVIDIA.name for device in facts.devices)
        or bool(source.names("/dev", "nvidia"))
        or source.text(linux.PROC_VERSION) is not None
        or linux.may_find_libraries(source)
    )
