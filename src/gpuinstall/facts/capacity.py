"""What is free on this machine: space and permissions of the folders that are written to, cores, memory."""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpuinstall.facts.source import Source, json_or_none

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
    return {
        name: Folder(entry["free"], entry.get("writable") is not False)
        for name, entry in entries
        if isinstance(entry, dict) and isinstance(entry.get("free"), int)
    }


def home_folder() -> Path:
    """Name the user's folder; the root of the file system for a user whom the system does not know."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


class Capacity(NamedTuple):
    """``cores`` of this process; ``free_gib`` is None where the system does not say."""

    cores: int
    free_gib: float | None


def read_capacity() -> Capacity:
    """Read them: of this process's own group where that has less than the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    limit, used = _text(_GROUP / "memory.max").strip(), _text(_GROUP / "memory.current").strip()
    in_group = max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None
    amounts = [free for free in (available(_text(Path("/proc/meminfo"))), in_group) if free is not None]
    return Capacity(cores, min(amounts) / GIB if amounts else None)


def available(meminfo: str) -> int | None:
    """Read MemAvailable, in bytes, from ``/proc/meminfo``."""
    line = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(line[1]) * 1024 if line else None


def _folders() -> dict[str, dict[str, object]]:
    home = home_folder()
    cache = os.environ.get("UV_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "uv"
    paths = {
        "environment": Path(),
        "cache": Path(cache),
        "temporary": Path(os.environ.get("TMPDIR") or os.environ.get("TEMP") or "/tmp"),  # noqa: S108  looked at, not written to
        "shared-memory": Path("/dev/shm"),  # noqa: S108
        "kernel-cache": Path(os.environ.get("CUDA_CACHE_PATH") or home / ".nv"),
    }
    there = {
        name: next(folder for folder in (path, *path.parents) if os.access(folder, os.F_OK))
        for name, path in paths.items()
    }
    return {
        name: {"free": shutil.disk_usage(folder).free, "writable": os.access(folder, os.W_OK)}
        for name, folder in there.items()
    }


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""
