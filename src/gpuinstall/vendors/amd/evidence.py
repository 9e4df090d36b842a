"""Everything that was read about a machine with AMD's GPUs, before anything is concluded from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import authored
from gpuinstall.facts.steps import MachineFacts
from gpuinstall.failures.problems import FixContext
from gpuinstall.vendors.amd.topology import PCI_VENDOR

if TYPE_CHECKING:
    from gpuinstall.facts.bus import PciDevice
    from gpuinstall.facts.source import Access
    from gpuinstall.vendors.amd.topology import KfdNode

MODULE = "amdgpu"


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
        return tuple(each for each in self.facts.devices if _is_card(each))

    @property
    def lent_by_windows(self) -> bool:
        """Say whether WSL has a GPU, and Windows a driver of AMD's alone."""
        wsl = self.facts.wsl
        names = [name.lower() for name in wsl.drivers] if wsl and wsl.gpu else []
        return any(name.startswith(("u0", "amd")) for name in names) and not any(
            name.startswith("nv") for name in names
        )

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext(self.facts.fix_keys())


def _is_card(device: PciDevice) -> bool:
    return device.vendor == PCI_VENDOR and device.may_compute and not device.is_reserved


@cache
def load_chips() -> dict[str, Any]:
    """Load the rows about chips."""
    return authored.read_data("gpus_amd.toml")


@cache
def has_builds(architecture: str) -> bool:
    """Say whether any build was ever made for a chip."""
    codes = (row["linux_x86_64"][0].split() for row in authored.read_data("builds_rocm.toml")["builds"])
    return any(architecture in code for code in codes)
