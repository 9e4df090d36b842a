"""A frozen catalog for tests that expect certain versions.

``builds.toml`` and ``drivers.toml`` are excerpts of the shipped files. ``facts.json``
has the same rows in another format for comparison. ``python tests/frozen …`` runs
gpuinstall with this catalog.
"""

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import tomli

from gpuinstall.catalog import Catalog, data_files
from gpuinstall.catalog.drivers import parse_drivers
from gpuinstall.catalog.loader import parse_catalog

FOLDER = Path(__file__).resolve().parent
GPUINSTALL = (sys.executable, str(FOLDER))
"""The gpuinstall command line with this catalog, in a separate process."""
shipped = data_files.read_data


def read_frozen(name: str) -> dict[str, Any]:
    """Read a catalog file, or its frozen version if one exists."""
    file = FOLDER / name
    return tomli.loads(file.read_text("utf-8")) if file.exists() else shipped(name)


@cache
def frozen_catalog() -> Catalog:
    """Load the frozen catalog."""
    return parse_catalog(
        read_frozen("builds.toml"), parse_drivers(read_frozen("drivers.toml"))
    )


@cache
def facts() -> dict[str, Any]:
    """Load the rows of the frozen catalog from ``facts.json``."""
    told: dict[str, Any] = json.loads((FOLDER / "facts.json").read_text("utf-8"))
    return told


def freeze() -> None:
    """Make ``load_catalog`` return the frozen catalog in this process."""
    data_files.read_data = read_frozen
