"""gpuinstall: the PyTorch build that runs on this machine's GPUs, installed, locked and proven.

The steps are a small typed API for authors of other programs: docs/api.md has an example, and what is stable.
"""

from __future__ import annotations

import sys
from types import ModuleType

TYPE_CHECKING = False  # typing takes longer to import than a command that was checked before takes
if TYPE_CHECKING:
    from gpuinstall.api import Refusal, choose, install, install_into, lock, verify
    from gpuinstall.catalog import Catalog, load_catalog
    from gpuinstall.errors import GpuInstallError
    from gpuinstall.machine import Machine
    from gpuinstall.plan import Plan
    from gpuinstall.probe import read_machine
    from gpuinstall.reporter import Reporter, SilentReporter
    from gpuinstall.request import Request
    from gpuinstall.sourcing import Sourcing
    from gpuinstall.words import machine_in_words

__version__ = "0.1.0"
__all__ = [
    "Catalog",
    "GpuInstallError",
    "Machine",
    "Plan",
    "Refusal",
    "Reporter",
    "Request",
    "SilentReporter",
    "Sourcing",
    "choose",
    "install",
    "install_into",
    "load_catalog",
    "lock",
    "machine_in_words",
    "read_machine",
    "verify",
]

_HOMES = {
    "api": ("Refusal", "choose", "install", "install_into", "lock", "verify"),
    "catalog": ("Catalog", "load_catalog"),
    "errors": ("GpuInstallError",),
    "machine": ("Machine",),
    "plan": ("Plan",),
    "probe": ("read_machine",),
    "reporter": ("Reporter", "SilentReporter"),
    "request": ("Request",),
    "sourcing": ("Sourcing",),
    "words": ("machine_in_words",),
}


def __getattr__(name: str) -> object:
    """Import a room when something in it is first asked for."""
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Door(ModuleType):
    """Keeps ``gpuinstall.install`` the function, also when the package of that name is imported."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _HOMES["api"]:
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Door
