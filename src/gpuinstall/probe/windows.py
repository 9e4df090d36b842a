"""Windows: the display adapters by CIM, and the run-time library that PyTorch's own needs.

Formats: Microsoft's Win32_VideoController; a PNPDeviceID begins ``PCI\\VEN_10DE&DEV_2684&SUBSYS_…``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.probe.child import run_children
from gpuinstall.probe.pci import PciDevice
from gpuinstall.probe.source import read_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuinstall.probe.source import Source

ADAPTERS = (
    "Get-CimInstance Win32_VideoController"
    " | Select-Object Name, PNPDeviceID, DriverVersion, ConfigManagerErrorCode | ConvertTo-Json"
)
VGA = 0x0300
RUNTIME_LIBRARIES = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")

_IDENTITY = re.compile(r"PCI\\VEN_([0-9A-F]{4})&DEV_([0-9A-F]{4})", re.IGNORECASE)


def read_adapters(source: Source, waiting: Callable[[], None]) -> tuple[PciDevice, ...]:
    """Read the display adapters."""
    return tuple(parse_adapters(source.answer("adapters.json", lambda: _ask(waiting))))


def read_missing_libraries(source: Source) -> tuple[str, ...]:
    """Read which of the Visual C++ run-time libraries are missing."""
    return tuple(source.answer("missing-libraries.txt", lambda: "\n".join(_missing())).split())


def parse_adapters(text: str) -> Iterator[PciDevice]:
    """Read the list, or the one adapter that stands without a list."""
    said = read_json(text)
    for place, adapter in enumerate(said if isinstance(said, list) else [said]):
        match = _IDENTITY.match(str(adapter.get("PNPDeviceID"))) if isinstance(adapter, dict) else None
        if match:
            yield PciDevice(f"adapter {place}", int(match[1], 16), int(match[2], 16), VGA, _driver(adapter))


def marketed_driver(text: str) -> str | None:
    """Read NVIDIA's release out of Windows' number: ``32.0.15.8180`` is 581.80."""
    match = re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]*([0-9])\.([0-9]{2})([0-9]{2})", text)
    return f"{match[1]}{match[2]}.{match[3]}" if match else None


def _driver(adapter: dict[str, object]) -> str | None:
    """Name what drives the adapter, and Windows' error code where it has stopped it."""
    version, error = adapter.get("DriverVersion"), adapter.get("ConfigManagerErrorCode")
    name = marketed_driver(version) if isinstance(version, str) else None
    return f"error code {error}" if isinstance(error, int) and error else name


def _ask(waiting: Callable[[], None]) -> str:
    program = Path(
        os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32", "WindowsPowerShell", "v1.0", "powershell.exe"
    )
    command = [str(program), "-NoProfile", "-NonInteractive", "-Command", ADAPTERS]
    (finished,) = run_children([(command, dict(os.environ))], 15, waiting)
    return finished.out


def _missing() -> Iterator[str]:
    folder = Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32")
    return (name for name in RUNTIME_LIBRARIES if not (folder / name).exists())
