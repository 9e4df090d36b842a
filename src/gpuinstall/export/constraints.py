"""What holds the family of an environment to its locked builds when something else is installed later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.export.pins import family_versions

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gpuinstall.lock.lock import Lock

NAME = "constraints.txt"


def constraints(lock: Lock, family: Collection[str]) -> str:
    """Write the locked builds of ``family`` as a constraints file for pip and uv."""
    head = f"# The builds that {lock.name} holds. pip.conf beside this file names it; to lift it, delete that line.\n"
    return head + "".join(f"{name}=={version}\n" for name, version in family_versions(lock, family).items())


def pip_configuration(file: Path) -> str:
    """Write an environment's own pip configuration; an address, because pip splits a list of paths at spaces."""
    return f"[install]\nconstraint = {file.as_uri()}\n"
