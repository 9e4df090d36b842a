"""Which drivers drive a chip, and which Jetson this is: questions to the catalogue."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gpuinstall.catalog.drivers import Drivers
    from gpuinstall.facts.source import Source
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
    return DriverSpan(first, generation.last_branch if generation else None, floor.after if floor else None)


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Read the module; None where this is none. In a container the release file may be missing: the kernel tells."""
    chip = parse_compatible(source.text(JETSON_COMPATIBLE) or "")
    l4t = parse_l4t(source.text(JETSON_RELEASE) or "")
    if chip is None and l4t is None:
        return None
    return Jetson(chip, l4t or drivers().jetson_kernels.get(".".join(release.split(".")[:2]), "unknown"))


def parse_compatible(text: str) -> str | None:
    """Find the chip in the device tree's list of names, which NUL bytes separate."""
    matches = (re.fullmatch(r"nvidia,(tegra[0-9]{3})", name) for name in text.split("\0"))
    return next((match[1] for match in matches if match and match[1] in drivers().jetsons), None)


def parse_l4t(text: str) -> str | None:
    """Read ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text)
    return f"{match[1]}.{match[2]}" if match else None
