"""NVIDIA's driver files on Linux: kernel module, device nodes, libraries."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from gpuinstall.base.values import Value
from gpuinstall.base.versions import DriverVersion
from gpuinstall.machine.nvidia.libraries import LIBCUDA, NVML
from gpuinstall.machine.prober import MachineFacts
from gpuinstall.machine.source import Source

PROC_VERSION = "/proc/driver/nvidia/version"
LOADER_CACHE = "/etc/ld.so.cache"
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
    is_open = "Open Kernel Module" in match[0]
    return KernelModule(DriverVersion.parse(match[1]), is_open)


def lists_nvidia(modules: str) -> bool:
    """Return whether a list of kernel modules contains NVIDIA's module."""
    return re.search(_NVIDIA_MODULE, modules) is not None


def read_secure_boot(source: Source) -> bool:
    """Return whether Secure Boot is enabled.

    The value of the EFI variable follows four bytes of attributes.
    """
    return (source.text(SECURE_BOOT) or "")[4:5] == "\x01"


def list_gpu_nodes(source: Source) -> tuple[str, ...]:
    """Return the names of GPU device nodes: ``nvidia0``, ``nvidia1``."""
    names = source.names("/dev", "nvidia")
    return tuple(name for name in names if re.fullmatch(r"nvidia[0-9]{1,4}", name))


def describe_refused_nodes(source: Source) -> str:
    """Describe the shared device nodes that this process cannot open."""
    refused = []
    for name in SHARED:
        access = source.access(f"/dev/{name}")
        if access != "open":
            state = "may not be opened" if access else "is missing"
            refused.append(f"/dev/{name} {state}")
    return "; ".join(refused)


def may_find_libraries(source: Source) -> bool:
    """Return whether the dynamic loader may find a driver library."""
    cache = source.text(LOADER_CACHE)
    # musl, NixOS, and some containers have no loader cache.
    if cache is None or source.variable("LD_LIBRARY_PATH"):
        return True
    return NVML in cache or LIBCUDA in cache


def has_windows_libraries(source: Source) -> bool:
    """Return whether WSL has a driver library from Windows."""
    cuda = source.names(WSL_LIBRARIES, "libcuda")
    return bool(cuda or source.names(WSL_LIBRARIES, "libnvidia-ml"))


def find_linux_libcuda(source: Source, facts: MachineFacts) -> str | None:
    """Return a Linux driver's libcuda, which cannot work in WSL."""
    for folder in LINUX_LIBRARIES if facts.wsl else ():
        for name in source.names(folder, "libcuda.so."):
            if re.search(r"\.so\.[0-9]{3}\.", name):
                return f"{folder}/{name}"
    return None


READERS: Mapping[str, Callable[[Source, MachineFacts], object]] = {
    "on-disk": lambda source, facts: has_module(source, facts.host.release),
    "secure-boot": lambda source, _: read_secure_boot(source),
    "refused": lambda source, _: describe_refused_nodes(source),
    "shadow": find_linux_libcuda,
    "devices": lambda source, _: source.variable("NVIDIA_VISIBLE_DEVICES"),
    "capabilities": lambda source, _: source.variable("NVIDIA_DRIVER_CAPABILITIES"),
}
"""Readers of facts that no library reports, by name in ``symptoms.toml``."""
