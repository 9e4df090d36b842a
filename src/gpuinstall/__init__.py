"""gpuinstall: the PyTorch build that runs on this machine's GPUs, installed, locked and proven.

The steps are a small typed API: read the machine, load the catalogue, choose.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.catalog import Catalog, load_catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan, choose
    from gpuinstall.probe import read_machine
    from gpuinstall.request import Request

__version__ = "0.1.0"
__all__ = ["Catalog", "Machine", "Plan", "Request", "choose", "load_catalog", "read_machine"]

_HOMES = {
    "Catalog": "gpuinstall.catalog",
    "Machine": "gpuinstall.machine",
    "Plan": "gpuinstall.plan",
    "Request": "gpuinstall.request",
    "choose": "gpuinstall.plan",
    "load_catalog": "gpuinstall.catalog",
    "read_machine": "gpuinstall.probe",
}


def __getattr__(name: str) -> object:
    """Import a room when it is first asked for."""
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
