"""``gpuinstall table``: which build runs where, by the rules that choose."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from gpuinstall.catalog import load_catalog
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal, columns
from gpuinstall.errors import UsageError
from gpuinstall.support import (
    ANY_DRIVER,
    NO_BUILD,
    capabilities_by_kind,
    known_drivers,
    label_of_kind,
    leave_out_empty,
    merge_equal_neighbours,
    support,
    support_by_chip,
    support_of_others,
)
from gpuinstall.words import driver_in_words, gpu_in_words, platform_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.support import OfChip, Row, Support

    Column = Sequence[str]

_SYSTEMS = {
    "linux": "Linux",
    "windows": "Windows",
    "macos": "macOS",
}


@click.command(
    "table", help="Show which build runs where: NVIDIA GPUs by driver branch, others by chip."
)
@click.option(
    "--gpu",
    multiple=True,
    metavar="NAME",
    shell_complete=options.gpu_names,
    help="Only for this GPU.",
)
@click.option("--driver", metavar="VERSION", help="Only for this driver.")
@click.option("--os", type=click.Choice(["linux", "windows"]), help="The operating system (linux).")
@click.option(
    "--arch",
    type=click.Choice(["x86_64", "aarch64"]),
    help="The architecture (x86_64, or the GPU's own).",
)
@framed("table")
def command(
    _terminal: Terminal,
    gpu: tuple[str, ...],
    driver: str | None,
    os: str | None,
    arch: str | None,
) -> Outcome:
    """Show the table."""
    catalog = load_catalog()
    drivers = (driver_in_words(driver),) if driver else known_drivers(catalog)
    platform = platform_in_words(gpu, driver, os, arch)
    gpus = [gpu_in_words(name) for name in gpu]
    other_gpus = [card for card in gpus if card.architecture]
    if other_gpus:
        if len(other_gpus) < len(gpus):
            raise UsageError(
                "gpu-of-several-makers",
                "a table is for one maker's GPUs",
                hint="Ask for one maker at a time",
            )
        # Their builds ask for no driver, so that they have other columns.
        table = support_by_chip(catalog, *platform, other_gpus)
    else:
        kinds = {}
        for card in gpus:
            if card.compute_capability:
                kinds[f"{card.label} {card.compute_capability}"] = card.compute_capability
        table = support(
            catalog, *platform, kinds if gpu else capabilities_by_kind(catalog), drivers
        )
        table = merge_equal_neighbours(table if gpu or driver else leave_out_empty(table))
    others: list[OfChip] = []
    if not (gpu or driver):
        rows = support_of_others(catalog, *platform)
        others = [row for row in rows if os in {None, row.os}]
    data = {
        "os": table.os,
        "arch": table.arch,
        "rows": [_row(table.drivers, row) for row in table.rows],
        "others": [_chip_row(row) for row in others],
    }
    names = [row.kind for row in table.rows]
    if not gpu:
        names = [label_of_kind(name) for name in names]
    return Outcome(data, lambda screen: show_table(table, names, others, catalog.date, screen))


def _row(drivers: Sequence[str], row: Row) -> dict[str, str]:
    builds = dict(zip(drivers, row.builds, strict=True))
    return {"gpu": row.kind, **builds}


def _chip_row(row: OfChip) -> dict[str, Any]:
    return {
        "gpu": row.chip.name,
        "maker": row.chip.maker,
        "architecture": row.chip.architecture,
        "products": list(row.chip.products),
        "os": row.os,
        "build": row.build,
    }


def show_table(
    table: Support,
    names: Sequence[str],
    others: Sequence[OfChip],
    date: str,
    terminal: Terminal,
) -> None:
    """Write the table, one line a GPU; in a terminal that is too narrow, in parts below each other.

    Of the ``others``, those that something runs on come below it.
    """
    platform = f"{_SYSTEMS[table.os]} {table.arch}"
    terminal.prose(f"Newest PyTorch by GPU and driver: {platform}, as of {date}")
    head = ("GPU \\ driver", *names)
    cells = []
    for number, driver in enumerate(table.drivers):
        builds = [row.builds[number].replace("+", " ") for row in table.rows]
        cells.append((driver, *builds))
    for number, part in enumerate(_parts(head, cells, columns(terminal.out))):
        if number:
            terminal.line()
        _show_lines([head, *part], terminal)
    others = [row for row in others if row.build != NO_BUILD]
    if others:
        terminal.line()
        terminal.prose(
            "Other makers' GPUs need no particular driver; none of these builds is proven on a GPU yet"
        )
        names = [_chip_name(row) for row in others]
        builds = [row.build.replace("+", " ") for row in others]
        systems = [_SYSTEMS[row.os] for row in others]
        _show_lines([names, builds, systems], terminal)
    remarks = "; ".join(_remarks(table, others))
    if remarks:
        terminal.line()
        terminal.prose(remarks)


def _chip_name(row: OfChip) -> str:
    names = list(row.chip.products[:2]) or [row.chip.name]
    if len(row.chip.products) > 2:
        names.append("…")
    return f"{', '.join(names)} ({row.chip.architecture})"


def _parts(head: Column, cells: Sequence[Column], width: int | None) -> Iterator[list[Column]]:
    """Yield as many columns at a time as fit beside the names."""
    part: list[Column] = []
    taken = _width(head)
    for column in cells:
        added = _width(column) + 2
        if part and width is not None and taken + added > width:
            yield part
            part = []
            taken = _width(head)
        part.append(column)
        taken += added
    yield part


def _show_lines(columns: Sequence[Column], terminal: Terminal) -> None:
    widths = [_width(column) for column in columns]
    for line in zip(*columns, strict=True):
        cells = [f"{text:<{width}}" for text, width in zip(line, widths, strict=True)]
        terminal.line("  ".join(cells).rstrip())


def _width(column: Column) -> int:
    return max(map(len, column))


def _remarks(table: Support, others: Iterable[OfChip]) -> Iterator[str]:
    builds: set[str] = set()
    for row in table.rows:
        builds.update(row.builds)
    if any("+cu" in build for build in builds):
        yield "cu126 is PyTorch for CUDA 12.6, and so on"
    if any(row.os == "macos" for row in others):
        yield "macOS has one build, called cpu on the index, and it runs on the GPU (MPS)"
    if NO_BUILD in builds:
        yield f"{NO_BUILD} nothing runs"
    if ANY_DRIVER in table.drivers:
        yield "not proven on a GPU yet"
