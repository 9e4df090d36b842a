"""Processes that others started, which this one cannot wait for."""

import time
from pathlib import Path


def has_ended(pid: int | str, seconds: float = 20.0) -> bool:
    """Whether a process ends within some time; one that nobody has collected yet has ended."""
    deadline = time.monotonic() + seconds
    while (
        running := Path("/proc", str(pid), "exe").exists()
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running
