"""Offers and labels of nodes as public pages word them, and what becomes of each: ``tests/data/offers.toml``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import tomli

from gpuinstall.errors import UsageError
from gpuinstall.offers import machine_of_labels, machine_of_offer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuinstall.machine import Machine

FILE = Path(__file__).resolve().parents[1] / "data" / "offers.toml"


class Wording(NamedTuple):
    """One offer, or the labels of one node."""

    origin: str
    """The seller, or ``labels``."""

    text: str
    expected: str
    """What the GPUs execute, or the code of the error."""

    read: Callable[[], Machine | None]

    def outcome(self) -> tuple[str, str]:
        """Return what is ``expected``, and the sentence of the error."""
        try:
            machine = self.read()
        except UsageError as error:
            return error.code, error.message
        codes = {gpu.code_name for gpu in machine.gpus} if machine else set()
        return ", ".join(map(str, codes)), ""


def wordings() -> Iterator[Wording]:
    """Yield all that are recorded."""
    table = tomli.loads(FILE.read_text("utf-8"))
    for origin, row in table.items():
        for text, expected in row.get("offers", ()):
            yield Wording(origin, text, expected, partial(machine_of_offer, offer(origin, text)))
        for text, expected in row.get("nodes", ()):
            yield Wording(origin, text, expected, partial(machine_of_labels, labels(text)))


def offer(seller: str, text: str) -> str:
    """An offer with a driver, which a renter reads off the host."""
    has_driver = "cuda" in text
    return f"{seller}:{text}" if has_driver else f"{seller}:{text}, CUDA 12.8"


def labels(text: str) -> dict[str, str]:
    """The labels of ``gpu.compute 7.5, cuda.driver 450.80.02``: a version has a label for each of its numbers."""
    read = {"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux"}
    for pair in text.split(", "):
        name, value = pair.split(" ")
        key = name if ".com/" in name else f"nvidia.com/{name}"
        last = "rev" if name == "cuda.driver" else "revision"
        if name.startswith(("cuda.", "gpu.compute")):
            for part, number in zip(("major", "minor", last), value.split("."), strict=False):
                read[f"{key}.{part}"] = number
        else:
            read[key] = value
    return read
