"""Versions of Python, ``X.Y``: their order, and those at hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

from gpuinstall.base.machine import Machine

RUNNING_PYTHON = "{}.{}".format(*sys.version_info)
"""The Python that runs gpuinstall, the first to be tried for this machine."""


def installed(machine: Machine) -> list[str]:
    """Return the Pythons of a machine, but for those that are free-threaded."""
    pythons = machine.pythons or ()
    return [minor_version(python) for python in pythons if not python.endswith("t")]


def span(pythons: Sequence[str]) -> str:
    """Return the Pythons of a build in words: ``3.11 to 3.15``."""
    if not pythons:
        return "none"
    first = min(pythons, key=number)
    last = max(pythons, key=number)
    return first if first == last else f"{first} to {last}"


@cache
def number(python: str) -> tuple[int, ...]:
    """Read ``"3.12"`` as a sortable number."""
    return tuple(map(int, python.split(".")))


def minor_version(python: str) -> str:
    """Shorten ``"3.12.1"`` to ``"3.12"``."""
    return ".".join(python.split(".")[:2])
