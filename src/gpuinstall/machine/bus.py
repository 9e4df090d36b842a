"""The display controllers on the bus: they are there whatever a driver says. From sysfs, on Windows by CIM.

Format of the latter: Microsoft's Win32_VideoController; a PNPDeviceID begins ``PCI\\VEN_10DE&DEV_2684&SUBSYS_…``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gpuinstall.base.values import Value
from gpuinstall.machine.children import json_or_none, output_of
from gpuinstall.machine.source import Source

DEVICES = "/sys/bus/pci/devices"
VGA = 0x0300
CONTROLLER_3D = 0x0302
DISPLAY = (VGA, CONTROLLER_3D)
ACCELERATORS = (0x0380, 0x1200)
"""Other display controllers and processing accelerators: the classes of some cards that only compute."""
RESERVED_FOR_GUESTS = ("vfio-pci", "pciback", "xen-pciback", "pci-stub")

CIM_SECONDS = 15
CIM_QUERY = (
    "Get-CimInstance Win32_VideoController"
    " | Select-Object Name, PNPDeviceID, DriverVersion, ConfigManagerErrorCode | ConvertTo-Json"
)

_IDENTITY = r"(?i)PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})"


class PciDevice(Value):
    """One function on the bus: its address, its numbers, and what drives it."""

    address: str
    vendor: int
    device: int
    kind: int
    driver: str | None = None
    """The kernel driver's name; on Windows the driver's version, or the error code that stopped it."""

    name: str | None = None
    """What Windows calls the device."""

    @property
    def id(self) -> str:
        """Vendor and device as people write them: ``10de:2684``."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def is_display(self) -> bool:
        """Whether it is a display controller, VGA (0300) or 3D (0302)."""
        return self.kind in DISPLAY

    @property
    def is_reserved(self) -> bool:
        """Whether it is set aside for a virtual machine."""
        return self.driver in RESERVED_FOR_GUESTS


def read_pci(source: Source) -> tuple[PciDevice, ...]:
    """Read the display controllers and accelerators, in the order of their addresses."""
    devices = [_read(source, address) for address in source.names(DEVICES)]
    return tuple(filter(None, devices))


def _read(source: Source, address: str) -> PciDevice | None:
    folder = f"{DEVICES}/{address}"
    # Below the class and the subclass stands the interface.
    kind = parse_number(source.text(f"{folder}/class")) >> 8
    if kind not in DISPLAY + ACCELERATORS:
        return None
    # A virtual function is a share of a card that is listed itself: hosts of virtual GPUs have dozens, and no library
    # lists them. In the guest that one is given to, it is a device of its own.
    if source.link(f"{folder}/physfn"):
        return None
    driver = (source.link(f"{folder}/driver") or "").rpartition("/")[2]
    return PciDevice(
        address,
        vendor=parse_number(source.text(f"{folder}/vendor")),
        device=parse_number(source.text(f"{folder}/device")),
        kind=kind,
        driver=driver or None,
    )


def parse_number(text: str | None) -> int:
    """Return sysfs' ``0x10de``; 0 for anything else."""
    match = re.fullmatch(r"\s*0x([0-9a-fA-F]{1,8})\s*", text or "")
    return int(match[1], 16) if match else 0


def normal_address(text: str) -> str:
    """Return a bus address as sysfs writes it (``0000:01:00.0``); NVML writes eight digits of domain."""
    return re.sub(r"^0000(?=[0-9a-f]{4}:)", "", text.strip().lower())


def read_adapters(source: Source) -> tuple[PciDevice, ...]:
    """Read Windows' display adapters."""
    return tuple(parse_adapters(source.answer("adapters.json", _ask_windows)))


def _ask_windows() -> str:
    system = os.environ.get("SYSTEMROOT", "C:\\Windows")
    # By its whole path: a program of that name may lie in the working folder, where Windows looks first.
    program = Path(
        system,
        "System32",
        "WindowsPowerShell",
        "v1.0",
        "powershell.exe",
    )
    options = ("-NoProfile", "-NonInteractive", "-Command", CIM_QUERY)
    return output_of(str(program), *options, seconds=CIM_SECONDS)


def parse_adapters(text: str) -> Iterator[PciDevice]:
    """Yield the adapters of a list, or the one that stands without a list."""
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
            # Windows is not asked for a place on the bus: a number tells two cards of a kind apart.
            f"adapter {number}",
            vendor=int(match[1], 16),
            device=int(match[2], 16),
            kind=VGA,
            driver=driver and str(driver),
            name=name and str(name),
        )
