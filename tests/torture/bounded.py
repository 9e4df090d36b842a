"""Programs run within limits of time and memory, and what a run of them came to."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MEMORY_BYTES = 300_000_000
SECONDS = 120.0
EVERY_S = 0.02


@dataclass(frozen=True)
class Ended:
    """How a program ended; ``status`` is None where it did not, ``peak`` the bytes of it or of one of its children."""

    status: int | None
    out: str
    err: str
    seconds: float
    peak: int


@dataclass(frozen=True)
class Case:
    """One attack: what was not as it should be, nothing where it held; with the time and the memory that it took."""

    name: str
    fault: str = ""
    seconds: float = 0.0
    peak: int = 0


def run(words: Sequence[str], env: Mapping[str, str], cwd: Path, seconds: float = SECONDS) -> Ended:
    """Run a program with all that it starts, at most so long."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        start = time.monotonic()
        running = subprocess.Popen(
            words, env=dict(env), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
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
        f"{ended.peak // 1_000_000} MB" if ended.peak > MEMORY_BYTES else "",
        more,
    ]
    said = ", ".join(filter(None, faults))
    last = ended.err.strip().splitlines()[-1:] if said else []
    return Case(name, f"{said}: {''.join(last)}" if said else "", ended.seconds, ended.peak)


def _wait(pid: int, deadline: float) -> tuple[int | None, int]:
    """Wait for a program; its memory is read while it runs, as the system counts that of who started it too."""
    peak = 0
    while True:
        peak = max((peak, *map(_highest, _tree(pid))))
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


def _highest(pid: int) -> int:
    """The most memory that a program has had, in bytes."""
    with suppress(OSError):
        found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0
