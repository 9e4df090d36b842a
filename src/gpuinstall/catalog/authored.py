"""The authored files of ``data``, as they stand."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def read_data(name: str) -> dict[str, Any]:
    """Read one authored file."""
    import tomli

    return tomli.loads(Path(__file__).with_name("data").joinpath(name).read_text("utf-8"))
