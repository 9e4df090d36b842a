"""What the catalogue knows of NVIDIA's chips and drivers that a diagnosis asks for, and which Jetson this is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog.drivers import Drivers
    from gpuinstall.facts.source import Source

JETSON_RELEASE = "/etc/nv_tegra_release"
JETSON_COMPATIBLE = "/proc/device-tree/compatible"


class DriverSpan(NamedTuple):
    """The first driver that knows a chip, and the last branch that still drives it (None: no such bound is known)."""

    first: DriverVersion | None = None
    last: int | None = None


class OpenModule(NamedTuple):
    """The chips of the open kernel module: it drives those from ``first`` on, and alone those from ``alone`` on."""

    first: ComputeCapability
    alone: ComputeCapability


@dataclass(frozen=True)
class Jetson:
    """The Tegra chip and the L4T release, as far as they are told: the GPU is part of the chip, not on the bus."""

    chip: str | None = None
    l4t: str = "unknown"

    @property
    def name(self) -> str | None:
        """The module's family."""
        return jetson_chips()[self.chip]["name"] if self.chip else None

    @property
    def compute_capability(self) -> ComputeCapability | None:
        """What the chip can execute."""
        return ComputeCapability.parse(jetson_chips()[self.chip]["capability"]) if self.chip else None


def drivers_of(capability: ComputeCapability, system: str) -> DriverSpan:
    """Say which drivers drive a chip."""
    generation = _drivers().generation(capability)
    if generation is None:
        return DriverSpan()
    floor = generation.floor
    first = None if floor is None else floor.windows if system == "windows" else floor.linux
    return DriverSpan(first, generation.last_branch)


def branch_to_install() -> int:
    """The driver branch for a machine whose chips are not all old."""
    return int(_rows()["install"]["branch"])


def open_module() -> OpenModule:
    """Which chips the open kernel module drives."""
    row = _rows()["open_module"]
    return OpenModule(ComputeCapability.parse(row["from"]), ComputeCapability.parse(row["only_from"]))


def shares_memory(capability: ComputeCapability | None) -> bool:
    """Say whether a chip shares the processor's memory."""
    return str(capability) in _rows()["shared_memory"]["capabilities"].split()


def jetson_chips() -> Mapping[str, Any]:
    """The Tegra chips by their names in the device tree."""
    return {row["chip"]: row for row in _rows()["jetson_chips"]}


def read_jetson(source: Source, release: str) -> Jetson | None:
    """Read the module; None where this is none. In a container the release file may be missing: the kernel tells."""
    chip = parse_compatible(source.text(JETSON_COMPATIBLE) or "")
    l4t = parse_l4t(source.text(JETSON_RELEASE) or "")
    return None if chip is None and l4t is None else Jetson(chip, l4t or l4t_of_kernel(release))


def l4t_of_kernel(release: str) -> str:
    """The major release of Jetson Linux that has a kernel."""
    kernels = {row["kernel"]: row["l4t"] for row in _rows()["jetson_kernels"]}
    return str(kernels.get(".".join(release.split(".")[:2]), "unknown"))


def parse_compatible(text: str) -> str | None:
    """Find the chip in the device tree's list of names, which NUL bytes separate."""
    found = (re.fullmatch(r"nvidia,(tegra[0-9]{3})", name) for name in text.split("\0"))
    return next((match[1] for match in found if match and match[1] in jetson_chips()), None)


def parse_l4t(text: str) -> str | None:
    """Read ``# R36 (release), REVISION: 4.0, …`` as ``36.4.0``."""
    match = re.search(r"#\s*R([0-9]{1,3})\b[^\n]*?REVISION:\s*([0-9]{1,3}(?:\.[0-9]{1,3})*)", text)
    return f"{match[1]}.{match[2]}" if match else None


@cache
def _drivers() -> Drivers:
    from gpuinstall.catalog.drivers import parse_drivers

    return parse_drivers(_rows())


@cache
def _rows() -> Mapping[str, Any]:
    from gpuinstall.catalog.loader import read_data

    return read_data("drivers.toml")
