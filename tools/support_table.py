"""The page docs/support-table.md: which build runs where, by the rules that choose."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gpuinstall.support import (
    capabilities_by_kind,
    known_drivers,
    leave_out_empty,
    merge_equal_neighbours,
    support,
    support_of_others,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.gpus import OtherChip
    from gpuinstall.support import Support

PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))
PREFACE = """\
# Which build runs where

The newest torch for each kind of GPU (generation and compute capability) and driver branch, from the catalogue of
{date}. A dash means that no build runs there. Made by `make docs`.
"""

OTHERS = """\
## Other makers

These builds do not depend on the driver; a dash means that no build supports the chip. The one build for macOS is
called `cpu` on the index and runs on the GPU (MPS). None was [run on a card](makers.md) by this project yet.
"""


def support_page(catalog: Catalog) -> str:
    """Write the tables of all platforms."""
    drivers, kinds = known_drivers(catalog), capabilities_by_kind(catalog)
    tables = [
        merge_equal_neighbours(leave_out_empty(support(catalog, *platform, kinds, drivers)))
        for platform in PLATFORMS
    ]
    pages = (
        PREFACE.format(date=catalog.date),
        *map(_markdown, tables),
        OTHERS,
        *_of_other_makers(catalog),
    )
    return "\n".join(pages)


def _of_other_makers(catalog: Catalog) -> Iterator[str]:
    """Write a table for each maker whose builds ask for no driver, chip by chip."""
    found = support_of_others(catalog, "linux", "x86_64")
    for (brand, os), rows in groupby(found, key=lambda row: (row.chip.brand, row.os)):
        lines = "".join(f"| {_named(row.chip)} | {row.build} |\n" for row in rows)
        yield f"### {brand}, {os}\n\n| chip | build |\n| --- | --- |\n{lines}"


def _named(chip: OtherChip) -> str:
    products = f": {', '.join(chip.products)}" if chip.products else ""
    return f"{chip.name} ({chip.architecture}){products}"


def _markdown(table: Support) -> str:
    rows = [
        ("GPU", *table.drivers),
        ("---",) * (len(table.drivers) + 1),
        *((row.kind, *row.builds) for row in table.rows),
    ]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"## {table.os.capitalize()}, {table.arch}\n\n{lines}\n"
