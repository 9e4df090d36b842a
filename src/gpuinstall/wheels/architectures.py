"""Architectures by the names that programs give them: ``sm_90a`` machine code, ``compute_90`` PTX, ``gfx942`` AMD's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def ordered(names: Iterable[str]) -> tuple[str, ...]:
    """Sort architectures, each named once: machine code before PTX, older before newer."""
    return tuple(sorted(set(names), key=_key))


def _key(name: str) -> tuple[bool, int, str]:
    number = re.search(r"_(\d+)", name)
    return name.startswith("compute_"), int(number[1]) if number else 0, name
