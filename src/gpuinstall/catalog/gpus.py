"""The GPUs by name: what a product is called, which chip it is, what that can execute.

Most are told by compute capability (``gpus.toml``). The chips of other makers are told by the name of the code
that they run, ``gfx1100``: each maker has a file.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.errors import UsageError
from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILES = ("gpus_amd.toml", "gpus_intel.toml", "gpus_apple.toml")
_IDLE = frozenset({"arc", "radeon", "instinct", "rx", "graphics", "gpu", "tm", "r", "accelerator", "oam", "pcie"})
"""Words that tell no products apart, and neither does their maker's name."""


class Product(NamedTuple):
    """A product by its name, such as ``GeForce RTX 3090``; ``arm``: it stands beside a 64-bit ARM processor only."""

    name: str
    chip: str
    capability: ComputeCapability
    arm: bool = False


class OtherMaker(NamedTuple):
    """A maker that nothing is installed for yet: a pattern of its GPUs' names, and what to do ``instead``."""

    maker: str
    names: str
    instead: str


class OtherChip(NamedTuple):
    """A chip, its maker in documents and for people, the name of its code; ``os``: it is in such machines only."""

    name: str
    maker: str
    brand: str
    architecture: str
    products: tuple[str, ...]
    os: str | None = None


class NamedGpu(NamedTuple):
    """A product by its name, or a chip by the name of its code."""

    name: str
    chip: OtherChip


@cache
def load_gpus() -> dict[str, Any]:
    """Load the authored rows."""
    return authored.read_data("gpus.toml")


@cache
def products() -> tuple[Product, ...]:
    """Load every product: those of the PCI list, the product lines, and the chips themselves."""
    return tuple(parse_products(load_gpus()))


@cache
def other_makers() -> tuple[OtherMaker, ...]:
    """Load the makers that nothing is installed for yet."""
    return tuple(OtherMaker(row["maker"], row["names"], row["instead"]) for row in load_gpus()["other_makers"])


@cache
def brands() -> frozenset[str]:
    """The words in a name that tell no two chips apart."""
    return frozenset(load_gpus()["brands"].split())


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


def find_other(name: str) -> NamedGpu | None:
    """Find a GPU by the name of a product or of its code; None where nothing has it, UsageError where several do."""
    said = _words(name)
    exact = [gpu for gpu in _listed() if said in (_words(gpu.name), (gpu.chip.architecture,))]
    found = exact or [gpu for gpu in _listed() if said and "".join(said) == "".join(_words(gpu.name))]
    if len({gpu.chip.architecture for gpu in found}) > 1:
        names = " or ".join(f'--gpu "{gpu.name}" ({gpu.chip.architecture})' for gpu in found)
        raise UsageError("gpu-ambiguous", f"{name!r} stands for different chips", hint=f"say {names}")
    return found[0] if found else None


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
    """Pair every name with the chip that it means."""
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


@cache
def _listed() -> tuple[NamedGpu, ...]:
    return tuple(NamedGpu(name, chip) for chip in other_chips() for name in (*chip.products, chip.architecture))


@cache
def _idle() -> frozenset[str]:
    return _IDLE | {chip.brand.lower() for chip in other_chips()}


def _words(name: str) -> tuple[str, ...]:
    """The words that tell products apart; a letter before a number belongs to it (``rx7900xtx``, ``7900 XTX``)."""
    text = re.sub(
        r"(?<=[a-z])(?=[0-9])|(?<=[0-9])(?=xtx?\b|gre\b)", " ", " ".join(re.findall(r"[^\W_]+", name.lower()))
    )
    return tuple(word for word in text.split() if word not in _idle())
