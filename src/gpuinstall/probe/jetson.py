"""Jetson modules: the GPU is part of the Tegra chip, not on the PCI bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from gpuinstall.probe.source import Source

RELEASE = "/etc/nv_tegra_release"
COMPATIBLE = "/proc/device-tree/compatible"

# Compute capabilities: developer.nvidia.com/cuda-gpus and /cuda-legacy-gpus, 2026-11-20.
CHIPS = {
    "tegra210": ("Jetson TX1 or Nano", ComputeCapability(5, 3)),
    "tegra186": ("Jetson TX2", ComputeCapability(6, 2)),
    "tegra194": ("Jetson Xavier", ComputeCapability(7, 2)),
    "tegra234": ("Jetson Orin", ComputeCapability(8, 7)),
    "tegra264": ("Jetson Thor", ComputeCapability(11, 0)),
}

# The kernel of each L4T release: NVIDIA's Jetson Linux release notes, 2026-11-20.
L4T_OF_KERNEL = {"4.9": "32", "5.10": "35", "5.15": "36", "6.8": "38"}


@dataclass(frozen=True)
class Jetson:
    """The Tegra chip and the L4T release, as far as they are told."""

    chip: str | None = None
    l4t: str = "unknown"

    @property
    def name(self) -> str | None:
        """The module's family."""
        return CHIPS[self.chip][0] if self.chip else None

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """What the chip can execute."""
        return CHIPS[self.chip][1] if self.chip else None


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Read the module; None where this is none. In a container the release file may be missing: the kernel tells."""
    chip = parse_compatible(source.text(COMPATIBLE) or "")
    l4t = parse_release(source.text(RELEASE) or "")
    if chip is None and l4t is None:
        return None
    return Jetson(chip, l4t or L4T_OF_KERNEL.get(".".join(release.split(".")[:2]), "unknown"))


def parse_compatible(text: str) -> str | None:
    """Find the chip in the device tree's list of names, which NUL bytes separate."""
    found = (re.fullmatch(r"nvidia,(tegra[0-9]{3})", name) for name in text.split("\0"))
    return next((match[1] for match in found if match and match[1] in CHIPS), None)


def parse_release(text: str) -> str | None:
    """Read ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text)
    return f"{match[1]}.{match[2]}" if match else None
