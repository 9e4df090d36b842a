"""Run programs with a time limit, and check the results."""

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
    """Run a program and its children with a time limit.

    The output goes to a terminal if one is given. A program that exceeds the limit has
    no status.
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


def find_run_fault(ended: Finished, allowed: set[int], more: str = "") -> str:
    """Return the fault of a run, or an empty text.

    A run must end in time with an allowed status and without a traceback.

    Args:
        ended: The finished run.
        allowed: The allowed exit statuses.
        more: Further faults.
    """
    faults = [
        f"status {ended.status}" if ended.status not in allowed else "",
        "a traceback" if "Traceback" in ended.err else "",
        more,
    ]
    said = ", ".join(filter(None, faults))
    return f"{said}: {ended.err[-300:]}" if said else ""
