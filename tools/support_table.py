"""The page docs/support-table.md: which build runs where, by the rules that choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.support import condensed, kinds_of, known_drivers, served, support

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog
    from gpuinstall.support import Support

PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))
PREFACE = """\
# Which build runs where

The newest torch for each kind of GPU (generation and compute capability) and driver branch, as `gpuinstall plan`
chooses it by the catalogue of {date}. Made by `make docs`. A dash: nothing runs there, by that driver or at all.
"""


def support_page(catalog: Catalog) -> str:
    """Write the tables of all platforms."""
    drivers, kinds = known_drivers(catalog), kinds_of(catalog)
    tables = [condensed(served(support(catalog, *platform, kinds, drivers))) for platform in PLATFORMS]
    return "\n".join((PREFACE.format(date=catalog.date), *map(_markdown, tables)))


def _markdown(table: Support) -> str:
    rows = [
        ("GPU", *table.drivers),
        ("---",) * (len(table.drivers) + 1),
        *((row.kind, *row.builds) for row in table.rows),
    ]
    lines = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"## {table.os.capitalize()}, {table.arch}\n\n{lines}\n"
