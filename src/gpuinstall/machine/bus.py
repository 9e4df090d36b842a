"""Display controllers on the PCI bus, which are listed even without a driver.

On Linux, sysfs lists the controllers. On Windows, the CIM class Win32_VideoController
lists them. The PNPDeviceID of a device begins with ``PCI\\VEN_10DE&DEV_2684&SUBSYS_…``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.values import Value
from gpuinstall.base.vendors import NVIDIA
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.machine.children import json_or_none, read_output
from gpuinstall.machine.source import Source
from gpuinstall.machine.vendors import VENDORS, find_pci_vendor

if TYPE_CHECKING:
    from gpuinstall.catalog.gpus import Product

DEVICES = "/sys/bus/pci/devices"
VGA = 0x0300
CONTROLLER_3D = 0x0302
DISPLAY = (VGA, CONTROLLER_3D)
ACCELERATORS = (0x0380, 0x1200)
"""The PCI classes of GPUs without a display: other display, accelerator."""
RESERVED_FOR_GUESTS = ("vfio-pci", "pciback", "xen-pciback", "pci-stub")

CIM_SECONDS = 15
CIM_QUERY = (
    "Get-CimInstance Win32_VideoController"
    " | Select-Object Name, PNPDeviceID, DriverVersion, ConfigManagerErrorCode | ConvertTo-Json"
)

_IDENTITY = r"(?i)PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})"


class PciDevice(Value):
    """Display controller or accelerator on the PCI bus."""

    address: str
    id: str
    """The PCI vendor and device IDs, such as ``10de:2684``."""
    kind: int
    """The PCI class and subclass, such as ``0300``."""
    driver: str | None = None
    """The name of the kernel driver; on Windows, its version or error."""
    product: str | None = None
    """The product name, on Windows only."""

    @property
    def vendor(self) -> str:
        """The name of the GPU's vendor, or ``other``."""
        return find_pci_vendor(self.id)

    @property
    def model(self) -> str:
        """The PCI device ID without the vendor ID: ``2684``."""
        return self.id.partition(":")[2]

    @cached_property
    def chip(self) -> Product | None:
        """The chip of an NVIDIA GPU, if the catalog contains it."""
        from gpuinstall.catalog.gpus import find_product_by_id

        return find_product_by_id(self.model) if self.vendor == NVIDIA.name else None

    @property
    def capability(self) -> ComputeCapability | None:
        """The compute capability of the GPU's chip, if known."""
        return self.chip.capability if self.chip else None

    @property
    def label(self) -> str:
        """The name of the GPU's chip, or its vendor and PCI ID."""
        if self.chip:
            return self.chip.name
        return f"{VENDORS[self.vendor].label} {self.id}"

    @property
    def name(self) -> str:
        """The GPU's label and PCI address."""
        return f"{self.label} at {self.address}"

    @property
    def driver_text(self) -> str | None:
        """The kernel driver; on Windows, its release or an error."""
        if self.driver and re.fullmatch(r"[0-9.]+", self.driver):
            return DriverVersion.from_windows(self.driver)
        return self.driver

    @property
    def is_display(self) -> bool:
        """Whether the device is a VGA (0300) or 3D (0302) controller."""
        return self.kind in DISPLAY

    @property
    def is_reserved(self) -> bool:
        """Whether the device is reserved for a virtual machine."""
        return self.driver in RESERVED_FOR_GUESTS


def format_devices(devices: Iterable[PciDevice]) -> str:
    """Return the labels and addresses of devices for a message."""
    return ", ".join(device.name for device in devices)


def read_pci(source: Source) -> tuple[PciDevice, ...]:
    """Read display controllers and accelerators, sorted by address."""
    devices = [_read_device(source, address) for address in source.names(DEVICES)]
    return tuple(filter(None, devices))


def _read_device(source: Source, address: str) -> PciDevice | None:
    folder = f"{DEVICES}/{address}"
    # Drop the lowest byte, which is the programming interface.
    kind = parse_number(source.text(f"{folder}/class")) >> 8
    if kind not in DISPLAY + ACCELERATORS:
        return None
    # A host of virtual GPUs has dozens of virtual functions, which no library lists. Skip them, because the physical
    # function is also listed. A guest has no physfn link, so its virtual function is not skipped.
    if source.link(f"{folder}/physfn"):
        return None
    driver = (source.link(f"{folder}/driver") or "").rpartition("/")[2]
    vendor = parse_number(source.text(f"{folder}/vendor"))
    model = parse_number(source.text(f"{folder}/device"))
    return PciDevice(address, f"{vendor:04x}:{model:04x}", kind, driver or None)


def parse_number(text: str | None) -> int:
    """Parse a number such as ``0x10de`` from sysfs, or return 0."""
    match = re.fullmatch(r"\s*0x([0-9a-fA-F]{1,8})\s*", text or "")
    return int(match[1], 16) if match else 0


def normalize_address(text: str) -> str:
    """Return a PCI address in the format of sysfs: ``0000:01:00.0``.

    NVML uses eight digits for the domain.
    """
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", text.strip().lower())


def read_adapters(source: Source) -> tuple[PciDevice, ...]:
    """Read the display adapters on Windows."""
    return tuple(parse_adapters(source.answer("adapters.json", _query_adapters)))


def _query_adapters() -> str:
    system = os.environ.get("SYSTEMROOT", "C:\\Windows")
    # Use the full path, because Windows would search the working folder first.
    program = Path(system, "System32", "WindowsPowerShell", "v1.0", "powershell.exe")
    options = ("-NoProfile", "-NonInteractive", "-Command", CIM_QUERY)
    return read_output(str(program), *options, seconds=CIM_SECONDS)


def parse_adapters(text: str) -> Iterator[PciDevice]:
    """Parse a JSON list of adapters, or a single JSON adapter."""
    document = json_or_none(text)
    adapters = document if isinstance(document, list) else [document]
    for number, adapter in enumerate(adapters):
        if not isinstance(adapter, dict):
            continue
        match = re.match(_IDENTITY, str(adapter.get("PNPDeviceID")))
        if match is None:
            continue
        error = adapter.get("ConfigManagerErrorCode")
        driver = f"error code {error}" if error else adapter.get("DriverVersion")
        name = adapter.get("Name")
        yield PciDevice(
            # CIM_QUERY returns no PCI address. The number distinguishes two GPUs of the same model.
            f"adapter {number}",
            id=f"{match[1]}:{match[2]}".lower(),
            kind=VGA,
            driver=driver and str(driver),
            product=name and str(name),
        )
