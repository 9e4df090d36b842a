"""List installed Python versions, and format them for messages."""

from __future__ import annotations

from collections.abc import Sequence

from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from gpuinstall.base.versions import version_key


def list_installed_pythons(machine: Machine) -> list[str]:
    """Return the Python versions on a machine, except free-threaded ones."""
    pythons = machine.pythons or ()
    return [get_minor_version(python) for python in pythons if not python.endswith("t")]


def find_release(python: str, request: Request, machine: Machine) -> str:
    """Return the release ``X.Y.Z`` of the interpreter that a request selects.

    Args:
        python: The version ``X.Y``.
        request: The request, with the interpreters to try first.
        machine: The machine, whose interpreters are known unless it is a target.

    Returns:
        The release, or ``X.Y`` without an interpreter, which means its latest release.
    """
    releases: tuple[str, ...] = (request.python or "",)
    if machine.pythons is not None:
        releases = (*request.preferred_pythons, *reversed(machine.pythons))
    return next((one for one in releases if one.startswith(f"{python}.")), python)


def format_python_range(pythons: Sequence[str]) -> str:
    """Format a range of Python versions, such as ``3.11 to 3.15``."""
    if not pythons:
        return "none"
    first = min(pythons, key=version_key)
    last = max(pythons, key=version_key)
    return first if first == last else f"{first} to {last}"


def get_minor_version(python: str) -> str:
    """Shorten a Python version such as ``3.12.1`` to ``3.12``."""
    return ".".join(python.split(".")[:2])
