"""Processes that have to succeed, and those that others started, which this one cannot wait for."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuinstall.base import process
from gpuinstall.base.process import Finished


def succeed(words: Sequence[str | Path], **options: Any) -> Finished:
    """Run a program, with the options of ``process.run``; fail unless it ends well."""
    done = process.run(words, **options)
    assert done.ok, f"{words}: {done.out}{done.err}"
    return done


def has_ended(pid: int | str) -> bool:
    """Whether a process ends within some time; one that nobody has collected yet has ended."""
    deadline = time.monotonic() + 20
    while (
        running := Path("/proc", str(pid), "exe").exists()
    ) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not running
