"""The GPUs by name: what a product is called, which chip it is, what that can execute.

Most are told by compute capability (``gpus.toml``). The chips of other makers are told by the
name of the code that they run, ``gfx1100``: each maker has a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.base.codec import WordSet, read_object
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.catalog import authored

if TYPE_CHECKING:
    from gpuinstall.catalog.drivers import Drivers

_Row = Mapping[str, Any]

FILES = ("gpus_amd.toml", "gpus_intel.toml", "gpus_apple.toml")


class Product(NamedTuple):
    """A product by its name, such as ``GeForce RTX 3090``."""

    name: str
    chip: str
    capability: ComputeCapability
    arm: bool = False
    """Whether it is sold beside 64-bit ARM processors alone."""


class NameTable(NamedTuple):
    """How a maker's GPUs are named."""

    maker: str
    """As documents name it."""
    brand: str
    """As people name it."""
    brands: WordSet
    """The words in a name that tell no two chips apart."""
    marks: WordSet
    """The words that only this maker's names have."""


class OtherChip(NamedTuple):
    """A chip that is told by the name of its code."""

    name: str
    maker: str
    """As documents name it."""
    brand: str
    """As people name it."""
    architecture: str
    """The name of its code."""
    products: tuple[str, ...]
    os: str | None = None
    """The only system that has it; None: any."""


@cache
def load_gpus() -> dict[str, Any]:
    """Return the authored rows."""
    return authored.read_data("gpus.toml")


@cache
def products() -> tuple[Product, ...]:
    """Return every product: from the PCI list, the product lines, and the chips themselves."""
    return tuple(parse_products(load_gpus()))


def card_capabilities(drivers: Drivers) -> list[ComputeCapability]:
    """Return every compute capability that a product has, ascending; not those of Jetsons before Thor."""
    capabilities = {product.capability for product in products()}
    return sorted(capabilities.difference(drivers.tegra))


@cache
def name_tables() -> tuple[NameTable, ...]:
    """Return how each maker's GPUs are named; the first maker's are told by capability."""
    return tuple(read_object(NameTable, row) for row in load_gpus()["makers"])


@cache
def series_of(capability: str) -> tuple[str, ...]:
    """Return what the cards of a compute capability are called, ``RTX 30``."""
    series = load_gpus()["series"]
    return tuple(series.get(capability, ()))


@cache
def product_of(device: int) -> Product | None:
    """Return NVIDIA's product with this PCI device id; None if it is not listed."""
    table = load_gpus()
    key = f"{device:04x}"
    text = table["pci"].get(key, "")
    chip, _, listed = text.partition(": ")
    if not chip:
        chip = _chip_in_ranges(key)
    if chip not in table["chips"]:
        return None
    return Product(
        name=next(_names(listed or chip)),
        chip=chip,
        capability=ComputeCapability.parse(table["chips"][chip]),
    )


def _chip_in_ranges(key: str) -> str:
    for row in load_gpus()["ranges"]:
        if row["first"] <= key <= row["last"]:
            return str(row["chip"])
    return ""


def parse_products(table: _Row) -> Iterator[Product]:
    """Yield the products in ``gpus.toml``; a name with a slash stands for several."""
    chips = {}
    for chip, text in table["chips"].items():
        chips[chip] = ComputeCapability.parse(text)
    arm_chips = {row.get("chip") for row in table["arm"]}
    arm_names = {row["name"] for row in table["arm"] if "name" in row}
    for name, chip in _names_and_chips(table):
        has_arm_name = not arm_names.isdisjoint(name.split())
        yield Product(
            name=name,
            chip=chip,
            capability=chips[chip],
            arm=has_arm_name or chip in arm_chips,
        )


def _names_and_chips(table: _Row) -> Iterator[tuple[str, str]]:
    own_names = {row["id"]: row["names"] for row in table["names"]}
    for key, text in table["pci"].items():
        chip, _, listed = text.partition(": ")
        for name in own_names.get(key, _names(listed)):
            yield name, chip
    for row in table["lines"]:
        yield row["name"], row["chip"]
    for chip in table["chips"]:
        yield chip, chip


def _names(listed: str) -> Iterator[str]:
    """Yield the names in ``GA107M [GeForce RTX 3050 Mobile / Max-Q]``."""
    _, bracket, inside = listed.partition("[")
    if bracket:
        listed = inside.rstrip("]")
    names = listed.split("/")
    first, *others = [name.strip() for name in names]
    yield first
    family = first.rsplit(" ", 1)[0]
    for other in others:
        yield other if " " in other else f"{family} {other}"


@cache
def other_chips() -> tuple[OtherChip, ...]:
    """Return the chips of all other makers, each maker's together."""
    chips: list[OtherChip] = []
    for file in FILES:
        table = authored.read_data(file)
        rows = [{**table, **row, "name": row["chip"]} for row in table["chips"]]
        chips.extend(read_object(OtherChip, row) for row in rows)
    return tuple(chips)
