"""The authored files of ``data``, as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_data(name: str) -> dict[str, Any]:
    """Return the contents of one authored file."""
    import tomli

    path = Path(__file__).with_name("data") / name
    return tomli.loads(path.read_text("utf-8"))
