"""The versions of the collective library by build: the rows of ``collectives.toml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import tomli

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.lock.lock import Lock


@cache
def load_collectives() -> Mapping[tuple[str, str], str]:
    """The versions by torch and backend's tag."""
    table = tomli.loads((files("gpuinstall.fleet") / "data" / "collectives.toml").read_text("utf-8"))
    return {(row["torch"], row["backend"]): row["version"] for row in table["nccl"]}


def locked_nccl(lock: Lock) -> str | None:
    """The version that a lock holds."""
    found = (version for name, version in lock.versions.items() if "-nccl-" in name)
    return next(found, None)
