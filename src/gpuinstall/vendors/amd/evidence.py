"""Everything that was read about a machine with AMD's GPUs, before anything is concluded from it.

The GPUs are those that the kernel's compute driver (KFD) lists: from sysfs, immune to every variable of ROCm. Format:
drivers/gpu/drm/amd/amdkfd/kfd_topology.c; ``gfx_target_version`` 90010 is gfx90a, 110501 is gfx1151.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import authored
from gpuinstall.facts.steps import MachineFacts
from gpuinstall.failures.problems import FixContext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.facts.bus import PciDevice
    from gpuinstall.facts.source import Access, Source

KFD_NODES = "/sys/class/kfd/kfd/topology/nodes"
KFD = "/dev/kfd"
AMD_ON_PCI = 0x1002
_VISIBLE_MEMORY = (1, 2)
"""The heaps that are a card's own memory: all of it public, or some of it private."""

MODULE = "amdgpu"


@dataclass(frozen=True)
class KfdNode:
    """One GPU of the topology; ``render`` says whether its node below /dev/dri may be opened, memory is in bytes."""

    architecture: str
    device: int
    render_minor: int | None = None
    render: Access | None = None
    product: str | None = None
    memory_bytes: int = 0

    @property
    def pci_id(self) -> str:
        """Vendor and device as people write them."""
        return f"{AMD_ON_PCI:04x}:{self.device:04x}"


def read_nodes(source: Source) -> tuple[KfdNode, ...]:
    """Read AMD's GPUs in the order in which HIP counts them; those that this process may not see are not readable."""
    numbers = sorted(int(name) for name in source.names(KFD_NODES) if name.isdecimal())
    return tuple(node for number in numbers if (node := _read(source, f"{KFD_NODES}/{number}")))


def parse_properties(text: str) -> dict[str, int]:
    """Read lines of a name and a number; others are left out."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}


def parse_architecture(version: int) -> str | None:
    """Name the code by KFD's number: two decimal digits each, minor and step written as hexadecimal ones."""
    major, rest = divmod(version, 10000)
    return f"gfx{major}{rest // 100:x}{rest % 100:x}" if major else None


@dataclass(frozen=True)
class AmdEvidence:
    """The facts of all steps.

    ``module`` is the release of AMD's own kernel module, empty for the kernel's; ``rocm`` that of a ROCm installation,
    which no wheel needs; ``override`` is HSA_OVERRIDE_GFX_VERSION.
    """

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: tuple[KfdNode, ...] = ()
    kfd: Access | None = None
    module: str = ""
    rocm: str | None = None
    override: str | None = None

    @property
    def cards(self) -> tuple[PciDevice, ...]:
        """AMD's display controllers and accelerators on the bus."""
        ours = (device for device in self.facts.devices if device.vendor == AMD_ON_PCI)
        return tuple(device for device in ours if device.may_compute and not device.is_reserved)

    @property
    def lent_by_windows(self) -> bool:
        """Say whether WSL has a GPU, and Windows a driver of AMD's alone."""
        wsl = self.facts.wsl
        names = [name.lower() for name in wsl.drivers] if wsl and wsl.gpu else []
        amds, nvidias = (any(name.startswith(start) for name in names) for start in (("u0", "amd"), "nv"))
        return amds and not nvidias

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext(self.facts.fix_keys())


@cache
def amd_chips() -> dict[str, Any]:
    """Load the rows about chips."""
    return authored.read_data("gpus_amd.toml")


@cache
def has_builds(architecture: str) -> bool:
    """Say whether any build was ever made for a chip."""
    codes = (row["linux_x86_64"][0].split() for row in authored.read_data("builds_rocm.toml")["builds"])
    return any(architecture in code for code in codes)


def _read(source: Source, folder: str) -> KfdNode | None:
    properties = parse_properties(source.text(f"{folder}/properties") or "")
    architecture = parse_architecture(properties.get("gfx_target_version", 0))
    if properties.get("vendor_id") != AMD_ON_PCI or architecture is None:
        return None
    minor = properties.get("drm_render_minor") or None
    return KfdNode(
        architecture,
        properties.get("device_id", 0),
        minor,
        source.access(f"/dev/dri/renderD{minor}") if minor else None,
        (source.text(f"/sys/class/drm/renderD{minor}/device/product_name") or "").strip() or None,
        sum(_sizes(source, f"{folder}/mem_banks")),
    )


def _sizes(source: Source, folder: str) -> Iterator[int]:
    for name in source.names(folder):
        bank: Mapping[str, int] = parse_properties(source.text(f"{folder}/{name}/properties") or "")
        if bank.get("heap_type") in _VISIBLE_MEMORY:
            yield bank.get("size_in_bytes", 0)
