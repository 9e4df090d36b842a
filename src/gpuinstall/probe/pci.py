"""The NVIDIA cards on the PCI bus, from sysfs: they are there whatever the driver says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.probe.source import Source

DEVICES = "/sys/bus/pci/devices"
NVIDIA = 0x10DE
OTHER_VENDORS = {0x1002: "AMD", 0x8086: "Intel"}
DISPLAY = (0x0300, 0x0302)
BRIDGE_OTHER = 0x0680
RESERVED_FOR_GUESTS = ("vfio-pci", "pciback", "xen-pciback", "pci-stub")


@dataclass(frozen=True)
class PciDevice:
    """One function on the bus: its address, its numbers, and the kernel driver that holds it."""

    address: str
    vendor: int
    device: int
    kind: int
    driver: str | None = None

    @property
    def id(self) -> str:
        """Vendor and device as people write them: ``10de:2684``."""
        return f"{self.vendor:04x}:{self.device:04x}"

    @property
    def is_gpu(self) -> bool:
        """Say whether it is an NVIDIA display controller, VGA (0300) or 3D (0302)."""
        return self.vendor == NVIDIA and self.kind in DISPLAY

    @property
    def is_foreign(self) -> bool:
        """Say whether it is a display controller of another maker of GPUs for computing."""
        return self.vendor in OTHER_VENDORS and self.kind in DISPLAY

    @property
    def is_switch(self) -> bool:
        """Say whether it is an NVSwitch: a bridge (0680) of NVIDIA's."""
        return self.vendor == NVIDIA and self.kind == BRIDGE_OTHER

    @property
    def is_reserved(self) -> bool:
        """Say whether it is set aside for a virtual machine."""
        return self.driver in RESERVED_FOR_GUESTS


def read_pci(source: Source) -> tuple[PciDevice, ...]:
    """Read the display controllers and NVSwitches of the bus, in the order of their addresses."""
    found = (_read(source, address) for address in source.names(DEVICES))
    return tuple(device for device in found if device is not None)


def _read(source: Source, address: str) -> PciDevice | None:
    folder = f"{DEVICES}/{address}"
    kind = parse_number(source.text(f"{folder}/class"))
    if kind is None or kind >> 8 not in (*DISPLAY, BRIDGE_OTHER):
        return None
    vendor, device = (parse_number(source.text(f"{folder}/{name}")) for name in ("vendor", "device"))
    if vendor is None or device is None or (kind >> 8 == BRIDGE_OTHER and vendor != NVIDIA):
        return None
    link = source.link(f"{folder}/driver")
    driver = link.rpartition("/")[2] if link else parse_uevent(source.text(f"{folder}/uevent") or "").get("DRIVER")
    return PciDevice(normal_address(address), vendor, device, kind >> 8, driver or None)


def parse_number(text: str | None) -> int | None:
    """Read sysfs' ``0x10de``; None for anything else."""
    match = re.fullmatch(r"\s*0x([0-9a-fA-F]{1,8})\s*", text or "")
    return int(match[1], 16) if match else None


def parse_uevent(text: str) -> dict[str, str]:
    """Read the ``KEY=value`` lines of a device's uevent file."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key.strip(): value.strip() for key, equals, value in pairs if equals and key.strip()}


def normal_address(text: str) -> str:
    """Write a bus address as sysfs does (``0000:01:00.0``), whoever gave it: NVML has eight digits of domain."""
    match = re.fullmatch(r"(?:([0-9a-fA-F]{1,8}):)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})(?:\.([0-7]))?", text.strip())
    if match is None:
        return text.strip().lower()
    domain, bus, slot, function = (int(part or "0", 16) for part in match.groups())
    return f"{domain:04x}:{bus:02x}:{slot:02x}.{function}"
