"""The GPUs by name of makers whose chips are told by the code that they run, ``gfx1100``: each maker has a file."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.errors import UsageError

FILES = ("gpus_amd.toml", "gpus_intel.toml", "gpus_apple.toml")
_IDLE = frozenset({"arc", "radeon", "instinct", "rx", "graphics", "gpu", "tm", "r", "accelerator", "oam", "pcie"})
"""Words that tell no products apart, and neither does their maker's name."""


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
