"""What cards are published to reach, by name: authored data with source and date."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import Any

PRODUCTS = ("float32", "tf32", "float16", "bfloat16", "fp8")


def load_cards() -> list[dict[str, Any]]:
    """Read the rows."""
    import tomli

    cards: list[dict[str, Any]] = tomli.loads(
        files("gpuinstall.verify").joinpath("data", "ceilings.toml").read_text(encoding="utf-8")
    )["card"]
    return cards


def ceilings_of(name: str) -> dict[str, float]:
    """Give the ceilings of a card by the names of the measurements; empty for a card that no row names."""
    bare = name.removeprefix("NVIDIA ")
    row = next((card for card in load_cards() if re.fullmatch(card["name"], bare)), {})
    found = {f"product-{kind}": float(row[kind]) for kind in PRODUCTS if kind in row}
    return found | ({"memory": float(row["memory"])} if row else {})
