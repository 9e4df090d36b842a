"""Supported GPU vendors, and the vendor of each GPU.

The folder of each vendor has rules that select builds, which are loaded when needed,
and a prober that detects GPUs. No other module depends on a vendor.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gpuinstall.base.vendors import BACKEND_ROWS, VENDOR_ROWS

if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.catalog import Catalog
    from gpuinstall.machine.protocol import Rules

_PCI_IDS = {row.pci_id: row.name for row in VENDOR_ROWS}
"""GPU vendors by PCI vendor ID."""


VENDORS = {row.name: row for row in VENDOR_ROWS}
"""Vendors by name. The first vendor with a GPU is selected."""

FIRST_VENDOR = next(iter(VENDORS))
"""The vendor of GPUs without a PCI ID, such as the GPU of a Jetson."""


def load_class(vendor: str, part: str) -> Any:
    """Return a class of a vendor: ``IntelRules`` from ``intel/rules.py``."""
    module = import_module(f"gpuinstall.machine.{vendor}.{part}")
    return getattr(module, vendor.title() + part.title())


def load_rules(vendor: str) -> type[Rules]:
    """Return the rules of a vendor."""
    rules: type[Rules] = load_class(vendor, "rules")
    return rules


def find_vendor(gpu: Gpu, machine: Machine) -> str | None:
    """Return a GPU's vendor, recorded or determined from its PCI ID, if known.

    A GPU without vendor and PCI ID is an NVIDIA GPU if it has a compute capability or
    the machine has an NVIDIA driver.
    """
    if gpu.vendor is not None:
        return gpu.vendor
    if gpu.pci_id is not None:
        return find_pci_vendor(gpu.pci_id)
    if gpu.compute_capability is not None or machine.driver is not None:
        return FIRST_VENDOR
    return None


def find_rules(gpu: Gpu, machine: Machine) -> type[Rules] | None:
    """Return the rules for a GPU, or None if its vendor is not supported."""
    vendor = find_vendor(gpu, machine)
    return load_rules(vendor) if vendor in VENDORS else None


def find_pci_vendor(pci_id: str) -> str:
    """Return the vendor of a PCI ID such as ``10de:2684``, or ``other``."""
    return _PCI_IDS.get(pci_id.lower().partition(":")[0], "other")


def create_rules(
    machine: Machine,
    catalog: Catalog,
    kinds: Collection[str],
) -> Rules:
    """Return the rules of the vendor that ``select_rules`` selects.

    Args:
        machine: The machine.
        catalog: The builds. The vendor's builds are loaded if they are missing.
        kinds: The requested kinds of backends, such as ``cuda``.
    """
    rules = select_rules(machine, kinds)
    return rules(machine, catalog.with_kind(rules.kind))


def select_rules(
    machine: Machine,
    kinds: Collection[str] = (),
) -> type[Rules]:
    """Return the GPU vendor that the request or the machine determines.

    The backend kind ``cpu`` selects no vendor. The default is the first vendor in the
    table.
    """
    requested = [row.name for row in BACKEND_ROWS if row.kind in kinds]
    gpus = [gpu for gpu in machine.gpus if can_select_builds(gpu, machine)]
    present = {find_vendor(gpu, machine) for gpu in gpus}
    vendors = [*requested, *(name for name in VENDORS if name in present)]
    return load_rules(vendors[0] if vendors else FIRST_VENDOR)


def can_select_builds(gpu: Gpu, machine: Machine) -> bool:
    """Return whether builds can be selected for a GPU.

    The GPU's vendor must be supported, and its architecture must be known if the vendor requires it.
    """
    rules = find_rules(gpu, machine)
    return bool(rules and (gpu.architecture or not rules.needs_architecture))
