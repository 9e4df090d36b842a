"""Programs run within a limit of time, and what a run of them came to."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpuinstall.base.process import Finished


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    seconds: float = 120.0,
    terminal: int | None = None,
) -> Finished:
    """Run a program with all that it starts, at most so long; what it writes goes to a terminal where there is one.

    One that takes longer has no status.
    """
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        running = subprocess.Popen(
            words,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=terminal or out,
            stderr=terminal or err,
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = running.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        out.seek(0)
        err.seek(0)
        return Finished(tuple(words), status, out.read(200_000), err.read(200_000))


def fault_of(ended: Finished, allowed: set[int], more: str = "") -> str:
    """Return why a run is none that ends in time, with one of the statuses and without a traceback; nothing if it is.

    Args:
        ended: The run.
        allowed: The statuses.
        more: What else is not as it should be.
    """
    faults = [
        f"status {ended.status}" if ended.status not in allowed else "",
        "a traceback" if "Traceback" in ended.err else "",
        more,
    ]
    said = ", ".join(filter(None, faults))
    return f"{said}: {ended.err[-300:]}" if said else ""
