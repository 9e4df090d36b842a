"""``gpuinstall table``: which build runs where, by the rules that choose."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuinstall.catalog import load_catalog
from gpuinstall.cli import options
from gpuinstall.cli.outcome import Outcome, framed
from gpuinstall.cli.terminal import Terminal, columns
from gpuinstall.errors import UsageError
from gpuinstall.support import (
    ANY_DRIVER,
    NOTHING,
    condensed,
    kinds_of,
    known_drivers,
    named,
    served,
    support,
    support_by_chip,
    support_of_others,
)
from gpuinstall.words import driver_in_words, gpu_in_words, platform_in_words

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.support import OfChip, Support

    Column = tuple[str, ...]

_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}


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
    _terminal: Terminal, gpu: tuple[str, ...], driver: str | None, os: str | None, arch: str | None
) -> Outcome:
    """Show the table."""
    catalog = load_catalog()
    drivers = (driver_in_words(driver),) if driver else known_drivers(catalog)
    platform = platform_in_words(gpu, driver, os, arch)
    gpus = tuple(map(gpu_in_words, gpu))
    others = tuple(card for card in gpus if card.architecture)
    if others and len(others) < len(gpus):
        raise UsageError(
            "gpu-of-several-makers",
            "a table is for one maker's GPUs",
            hint="Ask for one maker at a time",
        )
    if others:  # their builds ask for no driver, so that they have other columns
        table = support_by_chip(catalog, *platform, others)
    else:
        capabilities = ((card.label, card.compute_capability) for card in gpus)
        kinds = {
            f"{label} {capability}": capability for label, capability in capabilities if capability
        }
        whole = support(catalog, *platform, kinds if gpu else kinds_of(catalog), drivers)
        table = condensed(whole if gpu or driver else served(whole))
    further = () if gpu or driver else support_of_others(catalog, *platform)
    every = [row for row in further if os in {None, row.os}]
    data = {
        "os": table.os,
        "arch": table.arch,
        "rows": [
            {"gpu": row.kind, **dict(zip(table.drivers, row.builds, strict=True))}
            for row in table.rows
        ],
        "others": [
            {"gpu": row.chip.name, "maker": row.chip.maker, "architecture": row.chip.architecture}
            | {"products": list(row.chip.products), "os": row.os, "build": row.build}
            for row in every
        ],
    }
    names = [row.kind for row in table.rows] if gpu else [named(row.kind) for row in table.rows]
    return Outcome(data, lambda screen: show_table(table, names, every, catalog.date, screen))


def show_table(
    table: Support, names: Sequence[str], others: Sequence[OfChip], date: str, terminal: Terminal
) -> None:
    """Print the table, one line a GPU; in a terminal that is too narrow, in parts below each other.

    Of the ``others``, those that something runs on come below it.
    """
    terminal.prose(
        f"Newest PyTorch by GPU and driver: {_SYSTEMS[table.os]} {table.arch}, as of {date}"
    )
    head = ("GPU \\ driver", *names)
    cells = [
        (driver, *(row.builds[number].replace("+", " ") for row in table.rows))
        for number, driver in enumerate(table.drivers)
    ]
    for number, part in enumerate(_parts(head, cells, columns(terminal.out))):
        if number:
            terminal.line()
        _show_lines((head, *part), terminal)
    shown = [row for row in others if row.build != NOTHING]
    if shown:
        terminal.line()
        terminal.prose(
            "Other makers' GPUs need no particular driver; none of these builds is proven on a GPU yet"
        )
        builds = tuple(row.build.replace("+", " ") for row in shown)
        _show_lines(
            (tuple(map(_called, shown)), builds, tuple(_SYSTEMS[row.os] for row in shown)), terminal
        )
    if remarks := "; ".join(_remarks(table, shown)):
        terminal.line()
        terminal.prose(remarks)


def _show_lines(columns: Sequence[Column], terminal: Terminal) -> None:
    widths = list(map(_width, columns))
    for line in zip(*columns, strict=True):
        terminal.line(
            "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        )


def _called(row: OfChip) -> str:
    products = (*row.chip.products[:2], *(["…"] if len(row.chip.products) > 2 else []))
    return f"{', '.join(products) or row.chip.name} ({row.chip.architecture})"


def _remarks(table: Support, others: Iterable[OfChip]) -> Iterator[str]:
    shown = {build for row in table.rows for build in row.builds}
    if any("+cu" in build for build in shown):
        yield "cu126 is PyTorch for CUDA 12.6, and so on"
    if any(row.os == "macos" for row in others):
        yield "macOS has one build, called cpu on the index, and it runs on the GPU (MPS)"
    if NOTHING in shown:
        yield f"{NOTHING} nothing runs"
    if ANY_DRIVER in table.drivers:
        yield "not proven on a GPU yet"


def _parts(head: Column, cells: Sequence[Column], width: int | None) -> Iterator[list[Column]]:
    """As many columns at a time as fit beside the names."""
    part: list[Column] = []
    for column in cells:
        if (
            part
            and width is not None
            and sum(_width(shown) + 2 for shown in (*part, column)) + _width(head) > width
        ):
            yield part
            part = []
        part.append(column)
    yield part


def _width(column: Column) -> int:
    return max(map(len, column))
