"""gpuinstall: the PyTorch build that runs on this machine's GPUs, installed, locked and proven.

The steps are a small typed API for authors of other programs: docs/api.md has an example, and what is stable.
"""

from __future__ import annotations

import sys
from types import ModuleType

from gpuinstall.base.version import __version__

# typing takes longer to import than a command that was checked before takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuinstall.api import Refusal, choose, install, install_into, lock, verify
    from gpuinstall.base.errors import GpuInstallError
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request, Sourcing
    from gpuinstall.catalog import Catalog, load_catalog
    from gpuinstall.machine.probe import read_machine
    from gpuinstall.machine.words import machine_in_words
    from gpuinstall.plan import Plan

__all__ = [
    "Catalog",
    "GpuInstallError",
    "Machine",
    "Plan",
    "Refusal",
    "Reporter",
    "Request",
    "Sourcing",
    "__version__",
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
    "base.errors": ("GpuInstallError",),
    "base.machine": ("Machine",),
    "plan": ("Plan",),
    "machine.probe": ("read_machine",),
    "base.reporter": ("Reporter",),
    "base.request": ("Request", "Sourcing"),
    "machine.words": ("machine_in_words",),
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
