"""The NVIDIA kernel module: which one is loaded, of which flavour, and what keeps one out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.versions import DriverVersion

if TYPE_CHECKING:
    from gpuinstall.facts.source import Source

PROC_VERSION = "/proc/driver/nvidia/version"
SYS_VERSION = "/sys/module/nvidia/version"
RELEASE = "/proc/sys/kernel/osrelease"
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
MODPROBE_FOLDERS = ("/etc/modprobe.d", "/lib/modprobe.d", "/usr/lib/modprobe.d", "/run/modprobe.d")
CHASSIS = "/sys/class/dmi/id/chassis_type"
LAPTOPS = ("8", "9", "10", "14", "31", "32")


@dataclass(frozen=True)
class KernelModule:
    """The loaded module's release, and whether it is the open flavour (None: not said)."""

    version: DriverVersion
    open: bool | None = None
    found_via: str = "proc"


@dataclass(frozen=True)
class LinuxKernel:
    """What Linux says: the module loaded, the one on disk, and what may keep it out.

    ``on_disk`` None: nobody looked. ``blocked_by`` is the modprobe file that forbids the module.
    """

    release: str = ""
    module: KernelModule | None = None
    on_disk: bool | None = None
    secure_boot: bool = False
    blocked_by: str | None = None
    laptop: bool = False


def read_module(source: Source) -> KernelModule | None:
    """Read the loaded module from /proc, else from /sys."""
    return parse_proc_version(source.text(PROC_VERSION) or "") or parse_sys_version(source.text(SYS_VERSION) or "")


def read_linux_kernel(source: Source, *, obstacles: bool) -> LinuxKernel:
    """Read Linux's side; ``obstacles`` says whether to look for what keeps the module out."""
    module = read_module(source)
    release = (source.text(RELEASE) or "").strip()
    if not obstacles:
        return LinuxKernel(release, module)
    return LinuxKernel(
        release=release,
        module=module,
        on_disk="/nvidia.ko" in source.answer("modules.dep", lambda: _modules(release)),
        secure_boot=parse_secure_boot(source.text(SECURE_BOOT)),
        blocked_by=_blocking_file(source),
        laptop=(source.text(CHASSIS) or "").strip() in LAPTOPS,
    )


def parse_proc_version(text: str) -> KernelModule | None:
    """Read ``NVRM version: NVIDIA UNIX [Open] Kernel Module [for x86_64]  535.183.01  …``."""
    match = re.search(
        r"^NVRM version:.*?Kernel Module.*?\s([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})(?:\s|$)", text, re.MULTILINE
    )
    if match is None:
        return None
    return KernelModule(DriverVersion.parse(match[1]), "Open Kernel Module" in match[0], "proc")


def parse_sys_version(text: str) -> KernelModule | None:
    """Read the one line of the module's version file."""
    try:
        return KernelModule(DriverVersion.parse(text.strip()), None, "sysfs")
    except ValueError:
        return None


def parse_secure_boot(text: str | None) -> bool:
    """Read the EFI variable: four bytes of attributes, then 1 where Secure Boot is on."""
    return bool(text) and len(text or "") >= 5 and (text or "")[4] == "\x01"


def forbids_nvidia(text: str) -> bool:
    """Say whether a modprobe file keeps the module from being loaded."""
    return bool(
        re.search(r"^\s*(blacklist\s+nvidia\s*$|install\s+nvidia\s+(/usr)?/bin/(false|true))", text, re.MULTILINE)
    )


def _blocking_file(source: Source) -> str | None:
    files = (f"{folder}/{name}" for folder in MODPROBE_FOLDERS for name in source.names(folder))
    return next((file for file in files if file.endswith(".conf") and forbids_nvidia(source.text(file) or "")), None)


def _modules(release: str) -> str:
    try:
        listed = Path(f"/lib/modules/{release}/modules.dep").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return "".join(f"{line}\n" for line in listed.splitlines() if "/nvidia" in line.partition(":")[0])
