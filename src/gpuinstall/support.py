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
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.plan import Rejected

NOTHING = "–"
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
    rows = [
        support_of(
            catalog, Machine(os, arch, gpus=(Gpu(0, kind, compute_capability=capability),)), drivers
        ).rows[0]
        for kind, capability in kinds.items()
    ]
    return Support(os, arch, tuple(str(driver) for driver in drivers), tuple(rows))


def support_of(catalog: Catalog, machine: Machine, drivers: tuple[DriverVersion, ...]) -> Support:
    """Choose for one machine, with all its GPUs, under each driver; a build that runs as PTX alone is not counted."""

    def newest(driver: DriverVersion) -> str:
        plan = choose(replace(machine, driver=Driver(driver)), Request(), catalog)
        is_native = isinstance(plan, Plan) and all(run.how == "sass" for run in plan.gpus)
        return _build_name(plan) if is_native else NOTHING

    row = Row(", ".join(gpu.label for gpu in machine.gpus), tuple(map(newest, drivers)))
    return Support(machine.os, machine.arch, tuple(str(driver) for driver in drivers), (row,))


def support_of_others(catalog: Catalog, os: str, arch: str) -> Iterator[OfChip]:
    """Choose for every chip of the makers whose builds ask for no driver, some of which are in one system only."""
    for chip in other_chips():
        platform = (chip.os, "arm64") if chip.os else (os, arch)
        gpu = Gpu(0, chip.name, vendor=chip.maker, architecture=chip.architecture)
        yield OfChip(
            chip, platform[0], support_by_chip(catalog, *platform, [gpu]).rows[0].builds[0]
        )


def support_by_chip(catalog: Catalog, os: str, arch: str, gpus: Sequence[Gpu]) -> Support:
    """Choose for each of the GPUs whose builds ask for no driver."""
    plans = [(gpu, choose(Machine(os, arch, gpus=(gpu,)), Request(), catalog)) for gpu in gpus]
    rows = [Row(gpu.label, (_build_name(plan),)) for gpu, plan in plans]
    return Support(os, arch, (ANY_DRIVER,), tuple(rows))


def _build_name(plan: Plan | Rejected) -> str:
    return plan.choice.build.name if isinstance(plan, Plan) else NOTHING


def kinds_of(catalog: Catalog) -> dict[str, ComputeCapability]:
    """Name every compute capability that a product has, such as ``Pascal 6.1``; not those of Jetsons before Thor."""
    capabilities = sorted(
        {product.capability for product in products()} - set(catalog.drivers.tegra)
    )
    generations = {chip: catalog.drivers.generation(chip) for chip in capabilities}
    return {
        f"{generation.name if generation else 'unknown'} {chip}": chip
        for chip, generation in generations.items()
    }


def named(kind: str) -> str:
    """A kind of GPU by what people call its cards: ``GTX 10, P100 (6.0, 6.1)`` for ``Pascal 6.0, 6.1``."""
    generation, _, listed = kind.partition(" ")
    names = [name for capability in listed.split(", ") for name in series_of(capability)]
    return f"{', '.join(names) or generation} ({listed})"


def known_drivers(catalog: Catalog) -> tuple[DriverVersion, ...]:
    """List the driver branches that the catalogue knows."""
    return tuple(DriverVersion.parse(str(branch)) for branch, _ in catalog.drivers.branches)


def served(table: Support) -> Support:
    """Leave out the GPUs and the drivers that run nothing."""
    rows = [row for row in table.rows if set(row.builds) != {NOTHING}]
    return _of_columns(
        table, rows, [column for column in _columns(table, rows) if set(column[1:]) != {NOTHING}]
    )


def condensed(table: Support) -> Support:
    """Write equal neighbours as one."""
    merged = _of_columns(table, table.rows, _merged(_columns(table, table.rows)))
    return merged._replace(rows=tuple(_merged_rows(merged.rows)))


def _columns(table: Support, rows: Sequence[Row]) -> list[tuple[str, ...]]:
    return list(zip(table.drivers, *(row.builds for row in rows), strict=True))


def _of_columns(table: Support, rows: Sequence[Row], columns: list[tuple[str, ...]]) -> Support:
    cells = zip(*(column[1:] for column in columns), strict=True)
    built = tuple(Row(row.kind, builds) for row, builds in zip(rows, cells, strict=True))
    return table._replace(drivers=tuple(column[0] for column in columns), rows=built)


def _merged(columns: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    merged: list[tuple[str, ...]] = []
    for name, *cells in columns:
        if merged and merged[-1][1:] == tuple(cells):
            merged[-1] = (f"{merged[-1][0].split('–')[0]}–{name}", *cells)
        else:
            merged.append((name, *cells))
    return merged


def _merged_rows(rows: Iterable[Row]) -> list[Row]:
    merged: list[Row] = []
    for row in rows:
        generation, _, capability = row.kind.rpartition(" ")
        last = merged[-1] if merged else None
        if last and last.kind.startswith(f"{generation} ") and last.builds == row.builds:
            merged[-1] = Row(f"{last.kind}, {capability}", row.builds)
        else:
            merged.append(row)
    return merged
