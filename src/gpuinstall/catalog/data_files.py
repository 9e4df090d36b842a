"""Read the catalog's TOML files in ``data``."""

from __future__ import annotations

import json
from functools import cache
from os.path import isfile
from pathlib import Path
from typing import Any
from zlib import crc32

TABLES = Path(__file__).with_name("data")


def read_data(name: str) -> dict[str, Any]:
    """Read a TOML file in ``data``.

    Parsing the largest TOML files would take 10% of the time of ``gpuinstall plan``.
    ``make docs`` writes JSON copies of them. A JSON copy is ignored unless its checksum
    matches the TOML file.

    Args:
        name: The name of a file in ``data``, or an absolute path.
    """
    path = TABLES / name
    text = path.read_bytes()
    parsed = path.with_suffix(".json")
    if isfile(parsed):
        document: dict[str, Any] = json.loads(parsed.read_bytes())
        if document.pop("crc32") == crc32(text):
            return document
    import tomli

    return tomli.loads(text.decode())


@cache
def read_vendor(name: str) -> dict[str, Any]:
    """Return the chips and builds of a vendor other than NVIDIA."""
    return read_data(f"{name}.toml")
