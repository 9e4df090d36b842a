"""Versions of Python, ``X.Y`` or, free-threaded, ``X.Yt``: their order, and those at hand."""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuinstall.base.machine import Machine

RUNNING_PYTHON = "{}.{}".format(*sys.version_info)
"""The Python that runs gpuinstall, the first to be tried for this machine."""


def at_hand(
    preferred: Sequence[str],
    machine: Machine,
) -> tuple[str, ...]:
    """Return the Pythons preferred, then the machine's own, the newest first."""
    installed = map(minor_version, machine.pythons or ())
    newest_first = sorted(
        installed,
        key=number,
        reverse=True,
    )
    return (*preferred, *newest_first)


def span(pythons: Sequence[str]) -> str:
    """Return the Pythons of a build in words: ``3.11 to 3.15``."""
    if not pythons:
        return "none"
    minors = {python.removesuffix("t") for python in pythons}
    first = min(minors, key=number)
    last = max(minors, key=number)
    return first if first == last else f"{first} to {last}"


@cache
def number(python: str) -> tuple[int, ...]:
    """Read ``"3.12"`` or ``"3.13t"`` as a sortable number."""
    return tuple(int(part) for part in python.removesuffix("t").split("."))


def minor_version(python: str) -> str:
    """Shorten ``"3.12.1"`` to ``"3.12"``, ``"3.13.0t"`` to ``"3.13t"``."""
    minor = ".".join(python.removesuffix("t").split(".")[:2])
    return f"{minor}t" if python.endswith("t") else minor
