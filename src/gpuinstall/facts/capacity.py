"""What this machine can do at once: the cores and the memory that are free for this process."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

GIB = 1 << 30
_GROUP = Path("/sys/fs/cgroup")


class Capacity(NamedTuple):
    """``cores`` of this process; ``free_gib`` is None where the system does not say."""

    cores: int
    free_gib: float | None


def read_capacity() -> Capacity:
    """Read them: of this process's own group where that has less than the machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    known = [free for free in (available(_text(Path("/proc/meminfo"))), _left_in_group()) if free is not None]
    return Capacity(cores, min(known) / GIB if known else None)


def available(meminfo: str) -> int | None:
    """Read MemAvailable, in bytes, from ``/proc/meminfo``."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def _left_in_group() -> int | None:
    limit, used = _text(_GROUP / "memory.max").strip(), _text(_GROUP / "memory.current").strip()
    return max(0, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else None


def _text(path: Path) -> str:
    with suppress(OSError):
        return path.read_text("utf-8", "replace")
    return ""
