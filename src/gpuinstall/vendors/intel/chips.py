"""Intel's chips by the version of their architecture, ``xe 20.1.0``, in the rows of ``gpus_intel.toml``. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class XeChip(NamedTuple):
    """A chip: the beginning of its version, its name, the compiler's names for it; ``integrated``: in a processor."""

    architecture: str
    name: str
    names: tuple[str, ...]
    integrated: bool = False


def intel_chip(table: Mapping[str, Any], architecture: str | None) -> XeChip | None:
    """Find a chip by the beginning of its version; None for one that torch's documentation does not name."""
    numbers = _numbers(architecture or "")
    rows = (
        row for row in table["chips"] if numbers[: len(_numbers(row["architecture"]))] == _numbers(row["architecture"])
    )
    return next(map(_chip, rows), None)


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


def _chip(row: Mapping[str, Any]) -> XeChip:
    return XeChip(row["architecture"], row["chip"], tuple(row["names"].split()), row.get("integrated", False))


def _numbers(architecture: str) -> list[str]:
    return re.findall(r"[0-9]+", architecture)
