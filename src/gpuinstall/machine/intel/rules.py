"""Intel's chips, by the version of their architecture, and its rules: a build is for those that torch names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.base.values import Value
from gpuinstall.base.versions import numbers
from gpuinstall.machine.protocol import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.machine import Gpu

    _Table = Mapping[str, Any]


class XeChip(Value):
    """A chip of the catalogue."""

    architecture: str
    """The beginning of its version."""
    name: str
    code_names: tuple[str, ...]
    """The compiler's names for it."""
    integrated: bool
    """Whether it is part of a processor."""


def intel_chip(
    table: _Table,
    architecture: str | None,
) -> XeChip | None:
    """Return a chip by the beginning of its version; None for one that torch's documentation does not name."""
    version = numbers(architecture or "")
    for row in table["chips"]:
        first = numbers(row["architecture"])
        if version[: len(first)] == first:
            return _chip(row)
    return None


def chip_at(table: _Table, device: int) -> XeChip | None:
    """Return a chip by its number on the bus."""
    for row in table["chips"]:
        if f"{device:04x}" in row["pci"].split():
            return _chip(row)
    return None


def _chip(row: _Table) -> XeChip:
    return XeChip(
        architecture=row["architecture"],
        name=row["chip"],
        code_names=tuple(row["names"].split()),
        integrated=row.get("integrated", False),
    )


class IntelRules(Rules):
    """The rules for one machine, by the rows of ``gpus_intel.toml``."""

    vendor = "intel"
    name = "Intel"
    kind = "xpu"
    software = "XPU"
    architecture_source = "the bus"
    not_proven = "builds for Intel's GPUs are not proven on a GPU yet: verify decides (please send probe --json)"

    driver = "Level Zero"
    """What programs compute through."""

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the compiler's names for its chip."""
        chip = intel_chip(self.chips, gpu.architecture)
        return chip.code_names if chip else ()

    def chip_name(self, gpu: Gpu) -> str:
        """Return the family that users know it by, ``Battlemage``."""
        chip = intel_chip(self.chips, gpu.architecture)
        if chip:
            return chip.name
        return super().chip_name(gpu)

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Return a card before a processor's graphics, those before what torch is not for."""
        chip = intel_chip(self.chips, gpu.architecture)
        if chip is None:
            return (0,)
        return (1 if chip.integrated else 2,)
