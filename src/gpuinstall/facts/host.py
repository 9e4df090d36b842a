"""The host: operating system, distribution, architecture, C library, processor; and what is free on it."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuinstall.facts.source import Source, ThisMachine, home_folder, json_or_none
from gpuinstall.failures.problems import distribution_keys

GIB = 1 << 30
_GROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Folder:
    """Bytes free on a folder's file system, and whether it may be written to."""

    free: int
    writable: bool = True


def read_folders(source: Source) -> dict[str, Folder]:
    """Read where the environment, uv's cache, temporary files, shared memory and CUDA's kernel cache go."""
    return parse_folders(source.answer("folders.json", lambda: json.dumps(_folders())))


def parse_folders(text: str) -> dict[str, Folder]:
    """Read the answers; what is malformed is left out."""
    document = json_or_none(text)
    entries = document.items() if isinstance(document, dict) else ()
    sound = (
        (name, entry)
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("free"), int)
    )
    return {
        name: Folder(entry["free"], entry.get("writable") is not False) for name, entry in sound
    }


class Capacity(NamedTuple):
    """``cores`` of this process; ``free_gib`` is None where the system does not say."""

    cores: int
    free_gib: float | None


def read_capacity() -> Capacity:
    """Read them: of this process's own group where that has less than the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    here = ThisMachine()
    limit, used = (
        (here.text(f"{_GROUP}/memory.{name}") or "").strip() for name in ("max", "current")
    )
    in_group = max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None
    amounts = [
        free for free in (available(here.text("/proc/meminfo") or ""), in_group) if free is not None
    ]
    return Capacity(cores, min(amounts) / GIB if amounts else None)


def available(meminfo: str) -> int | None:
    """Read MemAvailable, in bytes, from ``/proc/meminfo``."""
    line = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(line[1]) * 1024 if line else None


def _folders() -> dict[str, dict[str, object]]:
    home = home_folder()
    cache = (
        os.environ.get("UV_CACHE_DIR")
        or Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "uv"
    )
    paths = {
        "environment": Path(),
        "cache": Path(cache),
        "temporary": Path(os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"),  # noqa: S108  looked at, not written to
        "shared-memory": Path("/dev/shm"),  # noqa: S108
        "kernel-cache": Path(os.environ.get("CUDA_CACHE_PATH") or home / ".nv"),
    }
    folders: dict[str, dict[str, object]] = {}
    for name, path in paths.items():
        folder = next(folder for folder in (path, *path.parents) if os.access(folder, os.F_OK))
        folders[name] = {
            "free": shutil.disk_usage(folder).free,
            "writable": os.access(folder, os.W_OK),
        }
    return folders


OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
PLATFORM = "platform.json"
CPUINFO = "/proc/cpuinfo"
PROCESSOR_BYTES = 4096

RUNTIME_LIBRARIES = ("vcruntime140.dll", "vcruntime140_1.dll", "msvcp140.dll")

_SYSTEMS = {"Linux": "linux", "Windows": "windows", "Darwin": "macos"}
_PROCESSORS = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "i386": "x86_64",
    "i686": "x86_64",
    "armv8l": "aarch64",
}


@dataclass(frozen=True)
class Host:
    """The host's own facts; ``avx`` None where the processor does not say.

    ``distribution_ids`` are its own ID and those of what it is like; ``translated``: this Python is for x86, and the
    machine is not.
    """

    os: str
    arch: str
    release: str = ""
    libc: str | None = None
    glibc: str | None = None
    distribution: str | None = None
    distribution_ids: tuple[str, ...] = ()
    avx: bool | None = None
    translated: bool = False

    @property
    def fix_keys(self) -> tuple[str, ...]:
        """Name the distribution and its package manager as fixes do."""
        return distribution_keys(*self.distribution_ids)


def read_host(source: Source) -> Host:
    """Read the host."""
    answers = parse_platform(source.answer(PLATFORM, _platform))
    system, processor = answers.get("system", "Linux"), source.text(CPUINFO, PROCESSOR_BYTES) or ""
    files = OS_RELEASE if system == "Linux" else ()
    names = parse_os_release(next((text for path in files if (text := source.text(path))), ""))
    libc = answers.get("libc", "")
    return Host(
        os=_SYSTEMS.get(system, "linux"),
        arch=true_architecture(
            answers.get("machine", ""), system, processor, answers.get("translated", "")
        ),
        release=answers.get("release", ""),
        libc=_libc(source, libc) if system == "Linux" else None,
        glibc=libc.removeprefix("glibc ") if libc.startswith("glibc ") else None,
        distribution=distribution(names),
        distribution_ids=(names.get("ID", ""), *names.get("ID_LIKE", "").split()),
        avx=parse_avx(processor),
        translated=answers.get("translated") == "1",
    )


def read_missing_libraries(source: Source, system: str) -> tuple[str, ...]:
    """Read which of Windows' Visual C++ run-time libraries are missing; none elsewhere."""
    if system != "windows":
        return ()
    folder = Path(os.environ.get("SYSTEMROOT", "C:\\Windows"), "System32")
    missing = (name for name in RUNTIME_LIBRARIES if not (folder / name).exists())
    return tuple(source.answer("missing-libraries.txt", lambda: "\n".join(missing)).split())


def parse_platform(text: str) -> dict[str, str]:
    """Read what Python's platform module said."""
    document = json_or_none(text)
    items = document.items() if isinstance(document, dict) else ()
    return {key: value for key, value in items if isinstance(value, str)}


def is_told(text: str) -> bool:
    """Say whether Python's platform module named a system that is known and its architecture."""
    answers = parse_platform(text)
    return answers.get("system") in _SYSTEMS and bool(answers.get("machine"))


def parse_os_release(text: str) -> dict[str, str]:
    """Read os-release: shell assignments, quoted or not (freedesktop.org's os-release(5))."""
    pairs = (re.match(r"\s*([A-Z][A-Z0-9_]*)=(.*?)\s*$", line) for line in text.splitlines())
    return {pair[1]: re.sub(r"\\(.)", r"\1", pair[2].strip("\"'")) for pair in pairs if pair}


def distribution(names: dict[str, str]) -> str | None:
    """Name the distribution as people do: ``Ubuntu 22.04``."""
    name = names.get("NAME") or names.get("ID")
    return (
        f"{name.removesuffix(' GNU/Linux')} {names.get('VERSION_ID', '')}".strip() if name else None
    )


def true_architecture(machine: str, system: str, processor: str, translated: str) -> str:
    """Name the machine's architecture, not that of an x86 Python which an Arm machine translates."""
    arm = "aarch64" if system == "Linux" else "arm64"
    name = _PROCESSORS.get(machine.lower(), machine.lower())
    emulated = translated == "1" or (
        system == "Linux" and name == "x86_64" and "CPU implementer" in processor
    )
    return arm if emulated or name in ("aarch64", "arm64") else name


def parse_avx(processor: str) -> bool | None:
    """Say whether an x86 processor has AVX; None where there are no flags."""
    flags = re.search(r"^flags\s*:(.*)\n", processor, re.MULTILINE)
    return "avx" in flags[1].split() if flags else None


def _libc(source: Source, version: str) -> str | None:
    if version.startswith("glibc"):
        return "glibc"
    loaders = [name for folder in ("/lib", "/lib64") for name in source.names(folder, "ld-")]
    kinds = {"ld-linux": "glibc", "ld-musl-": "musl"}
    return next((kinds[name[:8]] for name in sorted(loaders) if name[:8] in kinds), None)


def _platform() -> str:
    machine = {
        "system": platform.system(),
        "machine": platform.machine(),
        "release": platform.release(),
    }
    libc = ""
    with suppress(AttributeError, ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return json.dumps({**machine, "libc": libc, "translated": _translated()})


def _translated() -> str:
    """Say 1 under Rosetta or Windows' emulation: the first has a sysctl, the second a variable."""
    if platform.system() == "Windows":
        return "1" if "ARM64" in os.environ.get("PROCESSOR_ARCHITEW6432", "") else ""
    if platform.system() != "Darwin":
        return ""
    from gpuinstall.process import run

    return run(["/usr/sbin/sysctl", "-in", "sysctl.proc_translated"], seconds=2).out.strip()
