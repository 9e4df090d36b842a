"""The host: operating system, distribution, architecture, C library, processor."""

from __future__ import annotations

import json
import os
import platform
import re
from contextlib import suppress

from gpuinstall.base.values import Value
from gpuinstall.machine.children import json_or_none, output_of
from gpuinstall.machine.source import Source

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
PLATFORM = "platform.json"
PROCESSOR_BYTES = 4096
"""The first processor of ``/proc/cpuinfo`` fits into so many; a large host lists hundreds."""

_SYSTEMS = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}
_LOADERS = {"ld-linux": "glibc", "ld-musl-": "musl"}
"""The C library, by how the name of its loader begins."""


class Host(Value):
    """The host's own facts."""

    os: str
    """linux, windows or macos."""

    arch: str
    """The machine's, also if this Python is for another."""

    release: str
    """The kernel's."""

    libc: str | None
    """glibc or musl; None on other systems than Linux, or if it was not recognised."""

    glibc: str | None
    """Its version."""

    distribution: str | None
    """Its name and version for people."""

    avx: bool | None
    """None if the processor does not tell."""

    translated: bool
    """Whether an Arm machine translates this Python, which is for x86."""


def read_host(source: Source) -> Host:
    """Read the host."""
    answers = json_or_none(source.answer(PLATFORM, _platform)) or {}
    system = answers.get("system", "Linux")
    processor = source.text("/proc/cpuinfo", PROCESSOR_BYTES) or ""
    translated = answers.get("translated", "")
    # "glibc 2.36", or empty on musl and on other systems than Linux.
    libc, _, version = answers.get("libc", "").partition(" ")
    if libc != "glibc":
        libc = _libc_of_loaders(source) if system == "Linux" else None
    names = parse_os_release(next(filter(None, map(source.text, OS_RELEASE)), ""))
    return Host(
        os=_SYSTEMS.get(system, "linux"),
        arch=true_architecture(
            answers.get("machine", ""),
            system,
            processor,
            translated,
        ),
        release=answers.get("release", ""),
        libc=libc,
        glibc=version or None,
        distribution=distribution(names),
        avx=parse_avx(processor),
        translated=translated == "1",
    )


def _platform() -> str:
    """Return as JSON what Python knows of this machine."""
    libc = ""
    with suppress(AttributeError, ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return json.dumps(
        {
            "system": platform.system(),
            "machine": platform.machine(),
            "release": platform.release(),
            "libc": libc,
            "translated": _translated(),
        }
    )


def _translated() -> str:
    """Return 1 under Rosetta; under Windows' emulation Python itself tells the machine's own architecture."""
    if platform.system() != "Darwin":
        return ""
    command = ("/usr/sbin/sysctl", "-in", "sysctl.proc_translated")
    return output_of(*command, seconds=2).strip()


def true_architecture(
    machine: str,
    system: str,
    processor: str,
    translated: str,
) -> str:
    """Return the machine's architecture, not that of an x86 Python which an Arm machine translates.

    Args:
        machine: The architecture as Python has it.
        system: The operating system as Python has it.
        processor: The beginning of ``/proc/cpuinfo``.
        translated: "1" if the system said that it translates this Python.
    """
    name = machine.lower().replace("amd64", "x86_64")
    # qemu translates without a word; the kernel's account of the processor stays Arm's.
    is_linux = system == "Linux"
    is_emulated = is_linux and name == "x86_64" and "CPU implementer" in processor
    if is_emulated or translated == "1" or name in ("aarch64", "arm64"):
        return "aarch64" if is_linux else "arm64"
    return name


def parse_avx(processor: str) -> bool | None:
    """Whether an x86 processor has AVX; None if there are no flags."""
    flags = re.search(r"(?m)^flags\s*:(.*)\n", processor)
    if flags is None:
        return None
    return "avx" in flags[1].split()


def parse_os_release(text: str) -> dict[str, str]:
    """Return the values of os-release: shell assignments, quoted or not (freedesktop.org's os-release(5))."""
    return dict(re.findall(r"""(?m)^\s*([A-Z][A-Z0-9_]*)=["']?(.*?)["']?\s*$""", text))


def distribution(names: dict[str, str]) -> str | None:
    """Return the distribution as people call it: ``Ubuntu 22.04``."""
    name = names.get("NAME") or names.get("ID")
    if not name:
        return None
    version = names.get("VERSION_ID", "")
    return f"{name.removesuffix(' GNU/Linux')} {version}".strip()


def _libc_of_loaders(source: Source) -> str | None:
    for beginning, libc in _LOADERS.items():
        if source.names("/lib", beginning) or source.names("/lib64", beginning):
            return libc
    return None
