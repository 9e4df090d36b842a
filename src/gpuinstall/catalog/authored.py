"""The authored files of ``data``, as they stand."""

from __future__ import annotations

import json
from functools import cache
from os.path import isfile
from pathlib import Path
from typing import Any
from zlib import crc32

TABLES = Path(__file__).with_name("data")


def read_data(name: str) -> dict[str, Any]:
    """Return the contents of one authored file: of this folder, or by its whole path.

    Parsing the largest takes a tenth of a plan's time. Beside those lies the same as JSON, made by ``make docs``, with
    the checksum of the text that it was made of: after an edit it no longer counts.
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


def read_lines(name: str) -> list[str]:
    """Return the lines of a data file without its comments."""
    text = (TABLES / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


@cache
def read_chips(maker: str) -> dict[str, Any]:
    """Return the rows about the chips of a maker other than NVIDIA."""
    return read_data(f"gpus_{maker}.toml")
