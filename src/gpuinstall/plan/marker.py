"""The markers of requirements (``; sys_platform == "linux"``), judged for the machine that is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from packaging.markers import Marker

    from gpuinstall.machine import Machine

_SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt"},
}
_PROCESSORS = {
    ("linux", "arm64"): "aarch64",
    ("macos", "aarch64"): "arm64",
    ("windows", "x86_64"): "AMD64",
    ("windows", "aarch64"): "ARM64",
    ("windows", "arm64"): "ARM64",
}
_MINORS = range(7, 30)


def holds(marker: Marker, machine: Machine) -> bool:
    """Say whether a marker holds on a machine, with whatever Python (which is still to be chosen)."""
    processor = _PROCESSORS.get((machine.os, machine.arch), machine.arch)
    place = {**_SYSTEMS[machine.os], "platform_machine": processor}
    pythons = ({"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} for minor in _MINORS)
    return any(marker.evaluate({**place, **python}) for python in pythons)
