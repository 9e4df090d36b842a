"""The GPUs by name: what a product is called, which chip it is, what that can execute.

Most are told by compute capability (``gpus.toml``). The chips of other makers are told by the name of the code
that they run, ``gfx1100``: each maker has a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.versions import ComputeCapability

FILES = ("gpus_amd.toml", "gpus_intel.toml", "gpus_apple.toml")


class Product(NamedTuple):
    """A product by its name, such as ``GeForce RTX 3090``; ``arm``: it stands beside a 64-bit ARM processor only."""

    name: str
    chip: str
    capability: ComputeCapability
    arm: bool = False


class NameTable(NamedTuple):
    """How a maker's GPUs are named.

    ``brands`` are the words in a name that tell no two chips apart, ``marks`` those that only this maker's names have.
    """

    maker: str
    brand: str
    brands: frozenset[str]
    marks: frozenset[str]


class OtherChip(NamedTuple):
    """A chip, its maker in documents and for people, the name of its code; ``os``: it is in such machines only."""

    name: str
    maker: str
    brand: str
    architecture: str
    products: tuple[str, ...]
    os: str | None = None


@cache
def load_gpus() -> dict[str, Any]:
    """Load the authored rows."""
    return authored.read_data("gpus.toml")


@cache
def products() -> tuple[Product, ...]:
    """Load every product: those of the PCI list, the product lines, and the chips themselves."""
    return tuple(parse_products(load_gpus()))


@cache
def name_tables() -> tuple[NameTable, ...]:
    """Load how each maker's GPUs are named; the first maker's are told by capability."""
    return tuple(
        NameTable(row["maker"], row["brand"], frozenset(row["brands"].split()), frozenset(row["marks"].split()))
        for row in load_gpus()["makers"]
    )


@cache
def series_of(capability: str) -> tuple[str, ...]:
    """What people call the cards of a compute capability, ``RTX 30``; nothing where it has no name of that kind."""
    return tuple(load_gpus()["series"].get(capability, ()))


@cache
def product_of(device: int) -> Product | None:
    """Name the product with this PCI device id under NVIDIA's vendor id; None for one that nobody has listed."""
    table, key = load_gpus(), f"{device:04x}"
    chip, _, listed = table["pci"].get(key, "").partition(": ")
    chip = chip or next((row["chip"] for row in table["ranges"] if row["first"] <= key <= row["last"]), "")
    capability = table["chips"].get(chip)
    return Product(next(_names(listed or chip)), chip, ComputeCapability.parse(capability)) if capability else None


def parse_products(table: Mapping[str, Any]) -> Iterator[Product]:
    """Read the products of ``gpus.toml`` that a name means; names with a slash stand for several."""
    chips = {chip: ComputeCapability.parse(text) for chip, text in table["chips"].items()}
    arm_chips = {row.get("chip") for row in table["arm"]}
    arm_names = tuple(row["name"] for row in table["arm"] if "name" in row)
    for name, chip in _named(table):
        arm = chip in arm_chips or any(word in arm_names for word in name.split())
        yield Product(name, chip, chips[chip], arm)


@cache
def other_chips() -> tuple[OtherChip, ...]:
    """List the chips of all these makers, each maker's together."""
    return tuple(
        OtherChip(
            row["chip"], table["maker"], table["brand"], row["architecture"], tuple(row["products"]), table.get("os")
        )
        for table in map(authored.read_data, FILES)
        for row in table["chips"]
    )


def _named(table: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    spelled = {row["id"]: row["names"] for row in table["names"]}
    for key, text in table["pci"].items():
        chip, _, listed = text.partition(": ")
        for name in spelled.get(key, _names(listed)):
            yield name, chip
    for row in table["lines"]:
        yield row["name"], row["chip"]
    for chip in table["chips"]:
        yield chip, chip


def _names(listed: str) -> Iterator[str]:
    """Split ``GA107M [GeForce RTX 3050 Mobile / Max-Q]`` into its names."""
    _, bracket, inside = listed.partition("[")
    first, *others = (part.strip() for part in (inside.rstrip("]") if bracket else listed).split("/"))
    yield first
    family = first.rsplit(" ", 1)[0]
    yield from (other if " " in other else f"{family} {other}" for other in others)
