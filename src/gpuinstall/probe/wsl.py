"""Windows Subsystem for Linux: the driver is Windows', its libraries lie in a folder of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.probe.source import Source

LIBRARIES = "/usr/lib/wsl/lib"
DRIVERS = "/usr/lib/wsl/drivers"
LINUX_LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/aarch64-linux-gnu")

_OTHER_VENDORS = re.compile(r"^(iigd|igdlh|ki|u0|c0|amd|ati)", re.IGNORECASE)


@dataclass(frozen=True)
class Wsl:
    """What Windows lent: ``gpu`` is /dev/dxg, ``libraries`` are NVIDIA's, ``other``: only other makers' are there.

    ``shadow`` is a libcuda of a Linux driver, which does not work here and hides the right one.
    """

    gpu: bool = False
    libraries: bool = False
    other: bool = False
    shadow: str | None = None


def read_wsl(source: Source, release: str) -> Wsl | None:
    """Read WSL's side; None elsewhere. Containers inside WSL have the same kernel and, with a GPU, the same device."""
    gpu = source.access("/dev/dxg") is not None
    if "microsoft" not in release.lower() and not gpu:
        return None
    drivers = source.names(DRIVERS)
    nvidia = any(name.lower().startswith("nv") for name in drivers)
    found = (f"{folder}/{name}" for folder in LINUX_LIBRARIES for name in source.names(folder, "libcuda.so."))
    return Wsl(
        gpu=gpu,
        libraries=bool(source.names(LIBRARIES, "libcuda") or source.names(LIBRARIES, "libnvidia-ml")),
        other=not nvidia and any(_OTHER_VENDORS.match(name) for name in drivers),
        shadow=next((path for path in found if re.search(r"\.so\.[0-9]{3}\.", path)), None),
    )
