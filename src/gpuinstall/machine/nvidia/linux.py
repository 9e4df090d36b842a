"""NVIDIA's driver files on Linux: kernel module, device nodes, libraries."""

from __future__ import annotations

import re

from gpuinstall.base.values import Value
from gpuinstall.base.versions import DriverVersion
from gpuinstall.machine.source import Source

PROC_VERSION = "/proc/driver/nvidia/version"
SECURE_BOOT = (
    "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
)
MODULES = ("/lib/modules", "/run/booted-system/kernel-modules/lib/modules")
"""The folders of kernel modules. NixOS uses only the second."""

SHARED = ("nvidiactl", "nvidia-uvm")

WSL_LIBRARIES = "/usr/lib/wsl/lib"
LINUX_LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib/aarch64-linux-gnu",
)
# The pattern excludes nvidia-wmi-ec-backlight.ko for laptops, which every kernel has.
_NVIDIA_MODULE = r"/nvidia(-current(-open)?|-legacy-\d+xx|-tesla(-\d+)?)?\.ko"


class KernelModule(Value):
    """NVIDIA's kernel module, as loaded."""

    version: DriverVersion
    open: bool
    """Whether this is NVIDIA's open kernel module."""


def has_module(source: Source, release: str) -> bool:
    """Return whether NVIDIA's module for the running kernel is installed."""
    modules = [source.text(f"{folder}/{release}/modules.dep") for folder in MODULES]
    return any(map(lists_nvidia, filter(None, modules)))


def parse_proc_version(text: str) -> KernelModule | None:
    """Parse ``NVRM version: NVIDIA UNIX Open Kernel Module  535.183.01``."""
    line = (
        r"^NVRM version:.*?Kernel Module.*?\s([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})(?:\s|$)"
    )
    match = re.search(line, text, re.MULTILINE)
    if match is None:
        return None
    return KernelModule(
        DriverVersion.parse(match[1]),
        open="Open Kernel Module" in match[0],
    )


def lists_nvidia(modules: str) -> bool:
    """Return whether a list of kernel modules contains NVIDIA's module."""
    return re.search(_NVIDIA_MODULE, modules) is not None


def parse_secure_boot(text: str | None) -> bool:
    """Return whether Secure Boot is enabled.

    The value of the EFI variable follows four bytes of attributes.
    """
    return (text or "")[4:5] == "\x01"


def list_gpu_nodes(source: Source) -> tuple[str, ...]:
    """Return the names of GPU device nodes: ``nvidia0``, ``nvidia1``."""
    names = source.names("/dev", "nvidia")
    return tuple(name for name in names if re.fullmatch(r"nvidia[0-9]{1,4}", name))


def describe_refused_nodes(source: Source) -> tuple[str, ...]:
    """Describe the shared device nodes that this process cannot open."""
    refused = []
    for name in SHARED:
        access = source.access(f"/dev/{name}")
        if access is None:
            refused.append(f"/dev/{name} is missing")
        elif access != "open":
            refused.append(f"/dev/{name} may not be opened")
    return tuple(refused)


def has_windows_libraries(source: Source) -> bool:
    """Return whether WSL has a driver library from Windows."""
    cuda = source.names(WSL_LIBRARIES, "libcuda")
    return bool(cuda or source.names(WSL_LIBRARIES, "libnvidia-ml"))


def find_linux_libcuda(source: Source) -> str | None:
    """Return a Linux driver's libcuda, which cannot work in WSL."""
    for folder in LINUX_LIBRARIES:
        for name in source.names(folder, "libcuda.so."):
            if re.search(r"\.so\.[0-9]{3}\.", name):
                return f"{folder}/{name}"
    return None
