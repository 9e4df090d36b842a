"""Versions of Python, ``X.Y`` or, free-threaded, ``X.Yt``: their order, and those at hand."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.machine import Machine

RUNNING_PYTHON = "{}.{}".format(*sys.version_info)
"""The Python that runs gpuinstall, the first to be tried for this machine."""


def at_hand(preferred: Sequence[str], machine: Machine) -> tuple[str, ...]:
    """The Pythons preferred, then the machine's own, the newest first."""
    here = sorted(map(minor_version, machine.pythons or ()), key=number, reverse=True)
    return (*preferred, *here)


def span(pythons: Sequence[str]) -> str:
    """Write the Pythons of a build for people: ``3.11 to 3.15``."""
    minors = sorted({python.removesuffix("t") for python in pythons}, key=number)
    return " to ".join(dict.fromkeys((minors[0], minors[-1]))) if minors else "none"


@cache
def number(python: str) -> tuple[int, ...]:
    """Read ``"3.12"`` or ``"3.13t"`` as a sortable number."""
    return tuple(int(part) for part in python.removesuffix("t").split("."))


def minor_version(python: str) -> str:
    """Shorten ``"3.12.1"`` to ``"3.12"``, ``"3.13.0t"`` to ``"3.13t"``."""
    return ".".join(python.removesuffix("t").split(".")[:2]) + "t" * python.endswith("t")
