"""Run processes that must succeed, and wait for other processes."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuinstall.base import process
from gpuinstall.base.process import Finished


def succeed(words: Sequence[str | Path], **options: Any) -> Finished:
    """Run a program with options of ``process.run``, and require success."""
    done = process.run(words, **options)
    assert done.ok, f"{words}: {done.out}{done.err}"
    return done


def has_ended(pid: int | str) -> bool:
    """Return whether a process ends within a time; a zombie has ended."""
    deadline = time.monotonic() + 20
    while (
        running := Path("/proc", str(pid), "exe").exists()
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running
