"""Which chip a PCI id is, what it can execute, and which drivers drive it: questions to the catalogue."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.catalog.drivers import Drivers

TURING = ComputeCapability(7, 5)
BLACKWELL = ComputeCapability(10, 0)


class Chip(NamedTuple):
    """A chip by its PCI id: the card's name, and its compute capability."""

    name: str
    capability: ComputeCapability


class DriverSpan(NamedTuple):
    """The first driver that knows a chip, and the last branch that still drives it (None: no such bound is known)."""

    first: DriverVersion | None = None
    last: int | None = None


@cache
def chip_of(device: int) -> Chip | None:
    """Name the chip with this PCI device id; None where nobody has listed it."""
    table, key = _cards(), f"{device:04x}"
    codename, _, name = table["pci"].get(key, "").partition(": ")
    if not codename:
        codename = next((row["chip"] for row in table["ranges"] if row["first"] <= key <= row["last"]), "")
    capability = table["chips"].get(codename)
    return Chip(_marketed(name or codename), ComputeCapability.parse(capability)) if capability else None


def drivers_of(capability: ComputeCapability, system: str) -> DriverSpan:
    """Say which drivers drive a chip."""
    generation = _drivers().generation(capability)
    if generation is None:
        return DriverSpan()
    floor = generation.floor
    first = None if floor is None else floor.windows if system == "windows" else floor.linux
    return DriverSpan(first, generation.last_branch)


def _marketed(name: str) -> str:
    """Keep what stands in brackets: ``GA102 [GeForce RTX 3090]``."""
    return name.partition("[")[2].rstrip("]") or name


@cache
def _cards() -> Mapping[str, Any]:
    from gpuinstall.catalog.loader import read_data

    return read_data("gpus.toml")


@cache
def _drivers() -> Drivers:
    from gpuinstall.catalog.drivers import parse_drivers
    from gpuinstall.catalog.loader import read_data

    return parse_drivers(read_data("drivers.toml"))
