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
    from collections.abc import Iterator

    from gpuinstall.base.versions import ComputeCapability
    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.drivers import Drivers

PLATFORMS = (("linux", "x86_64"), ("linux", "aarch64"), ("windows", "x86_64"))
NONE = "–"
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
    rows = {}
    for capability in card_capabilities(drivers):
        gpu = Gpu(0, compute_capability=capability)
        builds = []
        for version in drivers.versions:
            machine = Machine(os, arch, driver=Driver(version), gpus=(gpu,))
            builds.append(native_build(machine, catalog) or NONE)
        if set(builds) != {NONE}:
            rows[capability] = builds
    head = ["GPU"]
    columns = []
    for builds_of_all, group in groupby(
        zip(*rows.values(), drivers.versions, strict=True),
        key=lambda column: column[:-1],
    ):
        if set(builds_of_all) != {NONE}:
            versions = [str(column[-1]) for column in group]
            head.append("–".join(dict.fromkeys([versions[0], versions[-1]])))
            columns.append(builds_of_all)
    lines = [head, ["---"] * len(head)]
    for (name, *shown), group in groupby(
        zip(rows, *columns, strict=True),
        key=lambda row: (_name(row[0], drivers), *row[1:]),
    ):
        capabilities = ", ".join(str(row[0]) for row in group)
        lines.append([f"{name} {capabilities}", *shown])
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"## {os.capitalize()}, {arch}\n\n{text}\n"


def _name(capability: ComputeCapability, drivers: Drivers) -> str:
    generation = drivers.generation(capability)
    return generation.name if generation else "unknown"


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
