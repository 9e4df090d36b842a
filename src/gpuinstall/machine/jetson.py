"""Detection of Jetson modules."""

from __future__ import annotations

import re

from gpuinstall.base.values import Value
from gpuinstall.catalog.drivers import JetsonChip, load_drivers
from gpuinstall.machine.source import Source

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
