"""Intel's chips, by the version of their architecture, and its rules: a build is for those that torch names. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.vendors.protocol import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.machine import Gpu


class XeChip(NamedTuple):
    """A chip: the beginning of its version, its name, the compiler's names for it; ``integrated``: in a processor."""

    architecture: str
    name: str
    names: tuple[str, ...]
    integrated: bool = False


def intel_chip(table: Mapping[str, Any], architecture: str | None) -> XeChip | None:
    """Find a chip by the beginning of its version; None for one that torch's documentation does not name."""
    numbers = _numbers(architecture or "")
    chips = map(_chip, table["chips"])
    return next(
        (chip for chip in chips if numbers[: len(own := _numbers(chip.architecture))] == own), None
    )


def chip_at(table: Mapping[str, Any], device: int) -> XeChip | None:
    """Find a chip by its number on the bus."""
    rows = (row for row in table["chips"] if f"{device:04x}" in row["pci"].split())
    return next(map(_chip, rows), None)


def architecture_of(ip_version: int) -> str | None:
    """Write Level Zero's number as ``xe 20.1.0``: ten bits of architecture, eight of release, six of revision.

    Source: the Level Zero extension ZE_extension_device_ip_version, and Intel's compute-runtime, hw_ip_version.h.
    """
    if not ip_version:
        return None
    return f"xe {ip_version >> 22}.{(ip_version >> 14) & 0xFF}.{ip_version & 0x3F}"


class IntelRules(Rules):
    """The rules for one machine, by the rows of ``gpus_intel.toml``."""

    vendor = "intel"
    name = "Intel"
    kind = "xpu"
    software = "XPU"
    architecture_source = "Level Zero"
    not_proven = "builds for Intel's GPUs are not proven on a GPU yet: verify decides (please send probe --record)"

    @property
    def driver(self) -> str:
        """What programs compute through."""
        return f"Level Zero {self.machine_fact('level_zero') or ''}".strip()

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """The names of its chip."""
        chip = intel_chip(self.chips, gpu.architecture)
        return chip.names if chip else ()

    def chip_name(self, gpu: Gpu) -> str:
        """The family that people know it by, ``Battlemage``."""
        chip = intel_chip(self.chips, gpu.architecture)
        return chip.name if chip else super().chip_name(gpu)

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """A card before a processor's graphics, those before what torch is not for."""
        chip = intel_chip(self.chips, gpu.architecture)
        return (0 if chip is None else 1 if chip.integrated else 2,)


def _chip(row: Mapping[str, Any]) -> XeChip:
    return XeChip(
        row["architecture"], row["chip"], tuple(row["names"].split()), row.get("integrated", False)
    )


def _numbers(architecture: str) -> list[str]:
    return re.findall(r"[0-9]+", architecture)
