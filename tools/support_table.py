"""The page docs/support-table.md: which build runs where, by the rules that choose."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.catalog.gpus import card_capabilities, other_chips
from gpuinstall.plan import Plan, choose
from gpuinstall.plan.drivers import native_build

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.catalog import Catalog

    Line = tuple[str, Sequence[str]]
    """What a row or a column is of, and its builds."""

PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))
PREFACE = """\
# Which build runs where

For whoever buys or rents a card.

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
    tables = [_table_by_driver(os, arch, catalog) for os, arch in PLATFORMS]
    return "\n".join(
        (PREFACE.format(date=catalog.date), *tables, OTHERS, *_other_makers(catalog))
    )


def _table_by_driver(
    os: str,
    arch: str,
    catalog: Catalog,
) -> str:
    """Write the builds by capability and driver: without what runs nothing, neighbours that are equal as one."""
    drivers = catalog.drivers
    rows: list[Line] = []
    for capability in card_capabilities(drivers):
        gpu = Gpu(0, compute_capability=capability)
        machines = [
            Machine(os, arch, driver=Driver(v), gpus=(gpu,)) for v in drivers.versions
        ]
        own_builds = [native_build(machine, catalog) or "–" for machine in machines]
        generation = drivers.generation(capability)
        name = generation.name if generation else "unknown"
        if set(own_builds) != {"–"}:
            rows.append((f"{name} {capability}", own_builds))
    columns: list[Line] = []
    for driver, builds in zip(
        drivers.versions, zip(*(row[1] for row in rows), strict=True), strict=True
    ):
        if set(builds) == {"–"}:
            continue
        name = str(driver)
        if columns and columns[-1][1] == builds:
            name = f"{columns.pop()[0].partition('–')[0]}–{driver}"
        columns.append((name, builds))
    merged: list[Line] = []
    for position, (name, _) in enumerate(rows):
        row_builds = [column[1][position] for column in columns]
        generation_name, _, capability_name = name.rpartition(" ")
        if (
            merged
            and merged[-1][1] == row_builds
            and merged[-1][0].startswith(f"{generation_name} ")
        ):
            earlier, _ = merged.pop()
            merged.append((f"{earlier}, {capability_name}", row_builds))
        else:
            merged.append((name, row_builds))
    lines = [
        ("GPU", *(name for name, _ in columns)),
        ("---",) * (len(columns) + 1),
        *((name, *builds) for name, builds in merged),
    ]
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {os.capitalize()}, {arch}\n\n{text}\n"


def _other_makers(catalog: Catalog) -> Iterator[str]:
    """Write a table for each maker whose builds ask for no driver, chip by chip."""
    for (brand, os), chips in groupby(
        other_chips(), key=lambda chip: (chip.brand, chip.os)
    ):
        lines = ""
        for chip in chips:
            gpu = Gpu(0, vendor=chip.maker, architecture=chip.architecture)
            machine = Machine(os or "linux", "arm64" if os else "x86_64", gpus=(gpu,))
            plan = choose(machine, Request(), catalog)
            build = plan.choice.build.name if isinstance(plan, Plan) else "–"
            products = f": {', '.join(chip.products)}" if chip.products else ""
            lines += f"| {chip.name} ({chip.architecture}){products} | {build} |\n"
        yield f"### {brand}, {os or 'linux'}\n\n| chip | build |\n| --- | --- |\n{lines}"
