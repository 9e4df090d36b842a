"""One row for each GPU vendor. Other modules derive their tables from it."""

from __future__ import annotations

from gpuinstall.base.values import Value


class Vendor(Value):
    """Names and numbers of a GPU vendor."""

    name: str
    """The vendor's name in JSON documents: ``nvidia``."""
    label: str
    """The vendor's name in messages: ``NVIDIA``."""
    pci_id: str
    """The PCI vendor ID."""
    windows_drivers: tuple[str, ...] = ()
    """The name prefixes of the vendor's driver folders on Windows."""
    kind: str = "cpu"
    """The kind of torch backend: ``cuda``, or ``cpu`` without an own one."""
    prefix: str = ""
    """The prefix of the backend's tags: ``cu``; empty if it is the kind."""
    version: str = ""
    """A pattern for the version in the backend's tags."""
    toolkit: str = ""
    """The name of the backend's toolkit in ``torch/version.py``."""
    has_facts: bool = False
    """Whether a machine document has a key with facts of the vendor.

    NVIDIA uses ``driver``.
    """
    extras: tuple[str, ...] = ()
    """Further words in names of extras that select the backend: ``gpu``."""


NVIDIA = Vendor(
    "nvidia",
    "NVIDIA",
    "10de",
    windows_drivers=("nv",),
    kind="cuda",
    prefix="cu",
    version="[0-9]{2,3}",
    toolkit="cuda",
    extras=("gpu",),
)
AMD = Vendor(
    "amd",
    "AMD",
    "1002",
    windows_drivers=("u0", "c0", "amd", "ati"),
    kind="rocm",
    version=r"[0-9]+(?:\.[0-9]+)*",
    toolkit="hip",
    has_facts=True,
)
INTEL = Vendor(
    "intel",
    "Intel",
    "8086",
    windows_drivers=("iigd", "igdlh", "ki"),
    kind="xpu",
)
APPLE = Vendor("apple", "Apple", "106b", has_facts=True)
VENDOR_ROWS = (NVIDIA, AMD, INTEL, APPLE)
"""The vendors. The first vendor with a GPU in a machine is selected."""

BACKEND_ROWS = tuple(row for row in VENDOR_ROWS if row.kind != "cpu")
"""The vendors with a torch backend of their own."""
