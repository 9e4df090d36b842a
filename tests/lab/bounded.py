"""Programs run within limits of time and memory, and what a run of them came to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

MEMORY_BYTES = 300_000_000
SECONDS = 120.0
EVERY_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a program ended; ``status`` is None where it did not."""

    status: int | None
    out: str
    err: str
    seconds: float
    peak: int
    """The most bytes of memory that one process had: of ours and what it starts, but uv."""


@dataclass(frozen=True)
class Case:
    """One attack: what was not as it should be, nothing where it held; with the time and the memory that it took."""

    name: str
    fault: str = ""
    seconds: float = 0.0
    peak: int = 0


def run(
    words: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    seconds: float = SECONDS,
    terminal: int | None = None,
) -> Ended:
    """Run a program with all that it starts, at most so long; what it writes goes to a terminal where there is one."""
    with (
        tempfile.TemporaryFile("w+", errors="replace") as out,
        tempfile.TemporaryFile("w+", errors="replace") as err,
    ):
        start = time.monotonic()
        running = subprocess.Popen(
            words,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=terminal or out,
            stderr=terminal or err,
            start_new_session=True,
        )
        status, peak = _wait(running.pid, start + seconds)
        running.returncode = status or 0
        out.seek(0)
        err.seek(0)
        return Ended(status, out.read(200_000), err.read(200_000), time.monotonic() - start, peak)


def judged(name: str, ended: Ended, allowed: set[int], more: str = "") -> Case:
    """A case of a run that is to end in time, with one of the statuses, within the memory and without a traceback."""
    faults = [
        "it did not end" if ended.status is None else "",
        f"status {ended.status}" if ended.status not in {None, *allowed} else "",
        "a traceback" if "Traceback" in ended.err else "",
        too_much(ended.peak),
        more,
    ]
    said = ", ".join(filter(None, faults))
    last = ended.err.strip().splitlines()[-1:] if said else []
    return Case(name, f"{said}: {''.join(last)}" if said else "", ended.seconds, ended.peak)


def apart(name: str, attack: Callable[[], Case], seconds: float) -> Case:
    """Make an attack in a process of its own; it is broken where that dies, or does not end in time."""
    start, context = time.monotonic(), get_context("spawn")
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(told, attack), daemon=True)
    process.start()
    told.close()
    case: Case | None = None
    with heard, suppress(EOFError):
        if heard.poll(seconds):
            case = heard.recv()
        else:
            process.kill()
    process.join()
    took = time.monotonic() - start
    return case or Case(
        name,
        f"its process ended with {process.exitcode} after {took:.0f} s, and said nothing",
        took,
    )


def _tell(told: Connection, attack: Callable[[], Case]):
    told.send(attack())


def _wait(pid: int, deadline: float) -> tuple[int | None, int]:
    """Wait for a program; its memory is read while it runs, as the system counts that of who started it too."""
    peak = 0
    while True:
        for each in _tree(pid):
            peak = max(peak, highest(each))
        ended, status, _ = os.wait4(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), peak
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            os.wait4(pid, 0)
            return None, peak
        time.sleep(EVERY_S)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def highest(pid: int) -> int:
    """Read the most memory that a process has had, without what its parent had (which getrusage counts too)."""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        if found := re.search(r"VmHWM:\s+(\d+) kB", status):
            # What uv takes is not ours to limit.
            return 0 if status.startswith("Name:\tuv\n") else int(found[1]) * 1024
    return 0


def too_much(peak: int) -> str:
    return f"{peak // 1_000_000} MB" if peak > MEMORY_BYTES else ""
