"""Operating system, distribution, architecture, C library, and processor."""

from __future__ import annotations

import json
import os
import platform
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.machine import Machine
from gpuinstall.base.values import Value
from gpuinstall.base.versions import version_key

if TYPE_CHECKING:
    from gpuinstall.machine.source import Source

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
PLATFORM = "platform.json"
PROCESSOR_BYTES = 4096
"""The number of bytes of ``/proc/cpuinfo`` that describe one processor."""

_SYSTEMS = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}
_LOADERS = {"ld-linux": "glibc", "ld-musl-": "musl"}
"""C libraries by the file name prefix of their dynamic loader."""

_ASSUMED_GLIBC = "2.34"
"""A glibc that Ubuntu 22.04, Debian 12, RHEL 9, and newer systems support."""


class Host(Value):
    """Operating system, processor, and C library of a machine."""

    machine: Machine
    """The machine with only these facts."""
    release: str
    """The kernel release."""
    avx: bool | None
    """Whether the processor has AVX, if known."""
    translated: bool
    """Whether an Arm machine translates this x86 Python."""


def read_host(source: Source) -> Host:
    """Read operating system, processor, and C library of the host."""
    from gpuinstall.machine.children import json_or_none

    answers = json_or_none(source.answer(PLATFORM, _read_platform)) or {}
    system = answers.get("system", "Linux")
    processor = source.text("/proc/cpuinfo", PROCESSOR_BYTES) or ""
    translated = answers.get("translated", "")
    # The text is "glibc 2.36" on Linux with glibc, and otherwise empty.
    libc, _, version = answers.get("libc", "").partition(" ")
    if libc != "glibc":
        libc = _detect_libc(source) if system == "Linux" else None
    files = OS_RELEASE if system == "Linux" else ()
    names = parse_os_release(next(filter(None, map(source.text, files)), ""))
    machine = Machine(
        os=_SYSTEMS.get(system, "linux"),
        arch=detect_architecture(
            answers.get("machine", ""), system, processor, translated
        ),
        libc=libc,
        glibc=version or None,
        distribution=format_distribution(names),
    )
    return Host(
        machine,
        release=answers.get("release", ""),
        avx=parse_avx(processor),
        translated=translated == "1",
    )


def read_assumed_glibc() -> str:
    """Return the glibc of a described machine: this machine's, or 2.34."""
    libc, _, version = _read_libc().partition(" ")
    if libc != "glibc":
        return _ASSUMED_GLIBC
    return min(version, _ASSUMED_GLIBC, key=version_key)


def _read_libc() -> str:
    """Return a text such as "glibc 2.36", or "" without glibc."""
    with suppress(AttributeError, ValueError, OSError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return ""


def _read_platform() -> str:
    """Return Python's facts about this machine as JSON."""
    return json.dumps(
        {
            "system": platform.system(),
            "machine": platform.machine(),
            "release": platform.release(),
            "libc": _read_libc(),
            "translated": _read_translation_state(),
        }
    )


def _read_translation_state() -> str:
    """Return ``"1"`` if Rosetta translates this Python."""
    from gpuinstall.machine.children import read_output

    # On Windows, an emulated Python reports the machine's architecture.
    if platform.system() != "Darwin":
        return ""
    command = ("/usr/sbin/sysctl", "-in", "sysctl.proc_translated")
    return read_output(*command, seconds=2).strip()


def detect_architecture(
    machine: str,
    system: str,
    processor: str,
    translated: str,
) -> str:
    """Return the machine's architecture, even if this Python is emulated.

    Args:
        machine: The output of ``platform.machine``.
        system: The output of ``platform.system``.
        processor: The beginning of ``/proc/cpuinfo``.
        translated: ``"1"`` if macOS translates this Python.
    """
    name = machine.lower().replace("amd64", "x86_64")
    # Under QEMU, only /proc/cpuinfo shows that the processor is Arm.
    is_linux = system == "Linux"
    is_emulated = is_linux and name == "x86_64" and "CPU implementer" in processor
    if is_emulated or translated == "1" or name in ("aarch64", "arm64"):
        return "aarch64" if is_linux else "arm64"
    return name


def parse_avx(processor: str) -> bool | None:
    """Return whether an x86 processor has AVX, or None if unknown."""
    flags = re.search(r"(?m)^flags\s*:(.*)\n", processor)
    if flags is None:
        return None
    return "avx" in flags[1].split()


def parse_os_release(text: str) -> dict[str, str]:
    """Parse os-release(5), which has shell assignments."""
    return dict(re.findall(r"""(?m)^\s*([A-Z][A-Z0-9_]*)=["']?(.*?)["']?\s*$""", text))


def format_distribution(names: dict[str, str]) -> str | None:
    """Return the distribution's name and version: ``Ubuntu 22.04``."""
    name = names.get("NAME") or names.get("ID")
    if not name:
        return None
    version = names.get("VERSION_ID", "")
    return f"{name.removesuffix(' GNU/Linux')} {version}".strip()


def _detect_libc(source: Source) -> str | None:
    for beginning, libc in _LOADERS.items():
        if source.names("/lib", beginning) or source.names("/lib64", beginning):
            return libc
    return None
