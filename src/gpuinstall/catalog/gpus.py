"""The GPUs by name: what a product is called, which chip it is, what that can execute."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Product(NamedTuple):
    """A product by the name in the PCI list, such as ``GeForce RTX 3090``."""

    name: str
    chip: str
    capability: ComputeCapability


@cache
def products() -> tuple[Product, ...]:
    """Load every product of the PCI list."""
    return tuple(parse_products(authored.read_data("gpus.toml")))


@cache
def product_of(device: int) -> Product | None:
    """Name the product with this PCI device id under NVIDIA's vendor id; None for one that nobody has listed."""
    table, key = authored.read_data("gpus.toml"), f"{device:04x}"
    chip, _, listed = table["pci"].get(key, "").partition(": ")
    chip = chip or next((row["chip"] for row in table["ranges"] if row["first"] <= key <= row["last"]), "")
    capability = table["chips"].get(chip)
    return Product(next(_names(listed or chip)), chip, ComputeCapability.parse(capability)) if capability else None


def parse_products(table: Mapping[str, Any]) -> Iterator[Product]:
    """Read the products of ``gpus.toml`` that a name means; names with a slash stand for several."""
    chips = {chip: ComputeCapability.parse(text) for chip, text in table["chips"].items()}
    rare = {row["id"] for row in table["rare"]}
    for text in (text for key, text in table["pci"].items() if key not in rare):
        chip, _, listed = text.partition(": ")
        for name in _names(listed):
            yield Product(name, chip, chips[chip])
    for chip, capability in chips.items():
        yield Product(chip, chip, capability)


def _names(listed: str) -> Iterator[str]:
    """Split ``GA107M [GeForce RTX 3050 Mobile / Max-Q]`` into its names."""
    _, bracket, inside = listed.partition("[")
    first, *others = (part.strip() for part in (inside.rstrip("]") if bracket else listed).split("/"))
    yield first
    family = first.rsplit(" ", 1)[0]
    yield from (other if " " in other else f"{family} {other}" for other in others)
