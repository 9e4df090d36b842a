"""AMD's chips by the name of their code, ``gfx1100``, in the rows of ``gpus_amd.toml``. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Chip(NamedTuple):
    """A chip by the name of its code; ``integrated``: it is part of a processor and shares its memory."""

    architecture: str
    name: str
    integrated: bool = False


def amd_chip(table: Mapping[str, Any], architecture: str | None) -> Chip | None:
    """Find a chip; None for one that nobody has listed."""
    row = next((row for row in table["chips"] if row["architecture"] == architecture), None)
    return Chip(row["architecture"], row["chip"], row.get("integrated", False)) if row else None


def product_named(table: Mapping[str, Any], name: str) -> str | None:
    """Find the code of a product by its whole name, as Windows gives it: ``AMD Radeon RX 9070 XT``."""
    words = name.removeprefix("AMD ").split()
    rows = (row for row in table["chips"] for product in row["products"] if product.split() == words)
    return next((str(row["architecture"]) for row in rows), None)


def is_integrated(table: Mapping[str, Any], architecture: str | None) -> bool:
    """Say whether a chip is known to be part of a processor."""
    chip = amd_chip(table, architecture)
    return chip is not None and chip.integrated
