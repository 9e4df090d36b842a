"""A catalogue that stands still: what tests that name versions choose from, read by the loader that reads the real one.

``builds.toml`` and ``drivers.toml`` are a cut of the shipped files; ``facts.json`` has the same rows in another format,
a second opinion. ``python tests/frozen …`` is gpuinstall with this catalogue in place of the shipped one.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from gpuinstall.catalog import Catalog, authored
from gpuinstall.catalog.drivers import parse_drivers
from gpuinstall.catalog.loader import parse_catalog

FOLDER = Path(__file__).resolve().parent
GPUINSTALL = (sys.executable, str(FOLDER))
"""The command line of gpuinstall on this catalogue, in a process of its own."""
shipped = authored.read_data


def read_frozen(name: str) -> dict[str, Any]:
    """Read one authored file: the frozen one where there is one."""
    file = FOLDER / name
    return tomli.loads(file.read_text("utf-8")) if file.exists() else shipped(name)


@cache
def frozen_catalog() -> Catalog:
    """Load the catalogue that stands still."""
    return parse_catalog(
        read_frozen("builds.toml"), parse_drivers(read_frozen("drivers.toml"))
    )


@cache
def facts() -> dict[str, Any]:
    """Load the second opinion on the same rows."""
    told: dict[str, Any] = json.loads((FOLDER / "facts.json").read_text("utf-8"))
    return told


def freeze() -> None:
    """Have ``load_catalog`` of this process give the catalogue that stands still."""
    authored.read_data = read_frozen
