"""Which drivers drive a chip: questions to the catalogue."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from gpuinstall.catalog.drivers import Drivers

TURING = ComputeCapability(7, 5)
BLACKWELL = ComputeCapability(10, 0)


class DriverSpan(NamedTuple):
    """The first driver that knows a chip, and the last branch that still drives it (None: no such bound is known)."""

    first: DriverVersion | None = None
    last: int | None = None


def drivers_of(capability: ComputeCapability, system: str) -> DriverSpan:
    """Say which drivers drive a chip."""
    generation = _drivers().generation(capability)
    if generation is None:
        return DriverSpan()
    floor = generation.floor
    first = None if floor is None else floor.windows if system == "windows" else floor.linux
    return DriverSpan(first, generation.last_branch)


@cache
def _drivers() -> Drivers:
    from gpuinstall.catalog.drivers import parse_drivers
    from gpuinstall.catalog.loader import read_data

    return parse_drivers(read_data("drivers.toml"))
