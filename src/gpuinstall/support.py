"""Which build runs where, by asking the choice itself for every kind of GPU and every driver branch."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.gpus import OtherChip, other_chips, products, series_of
from gpuinstall.machine import Driver, Gpu, Machine
from gpuinstall.plan import Plan, choose
from gpuinstall.request import Request
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.plan import Rejected

NO_BUILD = "–"
ANY_DRIVER = "any"


class Row(NamedTuple):
    """A kind of GPU, and the newest build for each driver."""

    kind: str
    builds: tuple[str, ...]


class OfChip(NamedTuple):
    """A chip whose builds ask for no driver, and the newest of them on one system."""

    chip: OtherChip
    os: str
    build: str


class Support(NamedTuple):
    """The newest build for each kind of GPU (rows) and each driver (columns) on one platform."""

    os: str
    arch: str
    drivers: tuple[str, ...]
    rows: tuple[Row, ...]


def support(
    catalog: Catalog,
    os: str,
    arch: str,
    kinds: dict[str, ComputeCapability],
    drivers: tuple[DriverVersion, ...],
) -> Support:
    """Choose for each kind of GPU and each driver; a build that runs as PTX alone is not counted."""
    rows: list[Row] = []
    for kind, capability in kinds.items():
        gpu = Gpu(0, kind, compute_capability=capability)
        machine = Machine(os, arch, gpus=(gpu,))
        rows += support_of(catalog, machine, drivers).rows
    return Support(
        os,
        arch,
        drivers=tuple(map(str, drivers)),
        rows=tuple(rows),
    )


def support_of(
    catalog: Catalog,
    machine: Machine,
    drivers: tuple[DriverVersion, ...],
) -> Support:
    """Choose for one machine, with all its GPUs, under each driver; a build that runs as PTX alone is not counted."""
    builds = []
    for driver in drivers:
        with_driver = replace(machine, driver=Driver(driver))
        plan = choose(with_driver, Request(), catalog)
        is_native = all(run.how == "sass" for run in plan.gpus)
        builds.append(_build_name(plan) if is_native else NO_BUILD)
    labels = [gpu.label for gpu in machine.gpus]
    row = Row(", ".join(labels), tuple(builds))
    return Support(
        machine.os,
        machine.arch,
        drivers=tuple(map(str, drivers)),
        rows=(row,),
    )


def support_of_others(
    catalog: Catalog,
    os: str,
    arch: str,
) -> Iterator[OfChip]:
    """Choose for every chip of the makers whose builds ask for no driver, some of which are in one system only."""
    for chip in other_chips():
        gpu = Gpu(
            0,
            chip.name,
            vendor=chip.maker,
            architecture=chip.architecture,
        )
        if chip.os:
            machine = Machine(chip.os, "arm64", gpus=(gpu,))
        else:
            machine = Machine(os, arch, gpus=(gpu,))
        plan = choose(machine, Request(), catalog)
        yield OfChip(chip, machine.os, _build_name(plan))


def support_by_chip(
    catalog: Catalog,
    os: str,
    arch: str,
    gpus: Sequence[Gpu],
) -> Support:
    """Choose for each of the GPUs whose builds ask for no driver."""
    rows = []
    for gpu in gpus:
        machine = Machine(os, arch, gpus=(gpu,))
        plan = choose(machine, Request(), catalog)
        rows.append(Row(gpu.label, (_build_name(plan),)))
    return Support(
        os,
        arch,
        drivers=(ANY_DRIVER,),
        rows=tuple(rows),
    )


def _build_name(plan: Plan | Rejected) -> str:
    if isinstance(plan, Plan):
        return plan.choice.build.name
    return NO_BUILD


def capabilities_by_kind(catalog: Catalog) -> dict[str, ComputeCapability]:
    """Return every compute capability that a product has, as ``Pascal 6.1``; not those of Jetsons before Thor."""
    drivers = catalog.drivers
    capabilities = {product.capability for product in products()}
    kinds = {}
    for chip in sorted(capabilities.difference(drivers.tegra)):
        generation = drivers.generation(chip)
        name = generation.name if generation else "unknown"
        kinds[f"{name} {chip}"] = chip
    return kinds


def label_of_kind(kind: str) -> str:
    """Return a kind of GPU by what people call its cards: ``GTX 10, P100 (6.0, 6.1)`` for ``Pascal 6.0, 6.1``."""
    generation, _, capabilities = kind.partition(" ")
    names: list[str] = []
    for capability in capabilities.split(", "):
        names += series_of(capability)
    return f"{', '.join(names) or generation} ({capabilities})"


def known_drivers(catalog: Catalog) -> tuple[DriverVersion, ...]:
    """Return the driver branches that the catalogue knows."""
    versions = []
    for branch, _ in catalog.drivers.branches:
        versions.append(DriverVersion.parse(str(branch)))
    return tuple(versions)


def leave_out_empty(table: Support) -> Support:
    """Leave out the GPUs and the drivers that run nothing."""
    rows = filter(_runs_something, table.rows)
    table = table._replace(rows=tuple(rows))
    columns = filter(_runs_something, _columns(table))
    return _of_columns(table, list(columns))


def _runs_something(row: Row) -> bool:
    return set(row.builds) != {NO_BUILD}


def merge_equal_neighbours(table: Support) -> Support:
    """Write equal neighbours as one."""
    columns: list[Row] = []
    for column in _columns(table):
        if columns and columns[-1].builds == column.builds:
            first, _, _ = columns[-1].kind.partition("–")
            columns[-1] = Row(f"{first}–{column.kind}", column.builds)
        else:
            columns.append(column)
    merged = _of_columns(table, columns)
    rows: list[Row] = []
    for row in merged.rows:
        generation, _, capability = row.kind.rpartition(" ")
        if rows and rows[-1].builds == row.builds:
            earlier = rows[-1].kind
            if earlier.startswith(f"{generation} "):
                rows[-1] = Row(f"{earlier}, {capability}", row.builds)
                continue
        rows.append(row)
    return merged._replace(rows=tuple(rows))


def _columns(table: Support) -> list[Row]:
    """Return the drivers of a table, each with the builds of all kinds."""
    columns = []
    for position, driver in enumerate(table.drivers):
        builds = tuple(row.builds[position] for row in table.rows)
        columns.append(Row(driver, builds))
    return columns


def _of_columns(table: Support, columns: Sequence[Row]) -> Support:
    """Return a table with other drivers, and the builds of its kinds for them."""
    rows = []
    for position, row in enumerate(table.rows):
        builds = tuple(column.builds[position] for column in columns)
        rows.append(Row(row.kind, builds))
    drivers = tuple(column.kind for column in columns)
    return table._replace(drivers=drivers, rows=tuple(rows))
