"""What holds the family of an environment to its locked builds when pip or uv installs something else later."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gpuinstall.files import write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONSTRAINTS = "constraints.txt"


def write_pip_settings(built: Path, final: Path, lock: str, versions: Mapping[str, str]) -> None:
    """Hold the environment at ``built`` to ``versions``, those of a lock, right for ``final``, where it will lie."""
    write_atomically(built / CONSTRAINTS, constraints(lock, versions))
    write_atomically(built / ("pip.ini" if os.name == "nt" else "pip.conf"), pip_configuration(final / CONSTRAINTS))


def constraints(lock: str, versions: Mapping[str, str]) -> str:
    """Write the locked builds as a constraints file for pip and uv."""
    head = f"# The builds that {lock} holds. pip.conf beside this file names it; to lift it, delete that line.\n"
    return head + "".join(f"{name}=={version}\n" for name, version in versions.items())


def pip_configuration(file: Path) -> str:
    """Write an environment's own pip configuration; an address, because pip splits a list of paths at spaces."""
    return f"[install]\nconstraint = {file.as_uri()}\n"
