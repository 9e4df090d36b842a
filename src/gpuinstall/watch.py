"""A watch over a program that works with servers: ended where it stands still, or takes memory without end.

What a program does is read from Linux' /proc: the processor's time of it and of all that it started, what it has
written, what it waits for. Elsewhere its own time limits are all there is.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.patience import SILENCE, UV_DOWNLOADS, Patience

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from subprocess import Popen


MEMORY_BYTES = 4_000_000_000
"""What a program may set aside: three times what uv does for the largest request that was tried.

That was 1.2 GB, of which it used 0.2 (apache-airflow[all], 24 threads); more threads set aside more.
"""
BUSY = 0.01
"""The share of a processor that a program has which does something."""
_EVERY_S = 0.25
_PROC = Path("/proc")


@dataclass(frozen=True)
class _Work:
    """What a program and those that it started have done so far: seconds of processor, bytes written."""

    seconds: float
    written: int


@contextmanager
def watched(program: Popen[str], words: Sequence[str], patience: Patience, *, limited: bool) -> Iterator[None]:
    """Watch over a program for the block; raise InstallationError where it had to be ended.

    ``limited`` bounds its memory too, and that of whatever it starts: not for what compiles.
    """
    done, limited = threading.Event(), limited and sys.platform == "linux"
    if limited:
        _limit(program.pid)
    reasons: list[str] = []
    watcher = threading.Thread(target=_watch, args=(program, patience, done, reasons), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if limited and program.returncode == -signal.SIGABRT:
        reasons.append(f"needed more than {MEMORY_BYTES // 1_000_000_000} GB of memory")
    if reasons:
        raise InstallationError(
            "standstill",
            f"{' '.join([Path(words[0]).name, *words[1:3]])} {reasons[0]} and was ended",
            why="a package index answers in drops, or without end",
            hint="run the same again, or name another index; "
            f"{SILENCE} (seconds) gives a server more time, {UV_DOWNLOADS}=4 takes less memory",
        )


def _limit(pid: int) -> None:
    """Let allocations beyond the limit fail: uv then ends itself."""
    import resource

    with suppress(OSError, ValueError):
        resource.prlimit(pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))


def _watch(program: Popen[str], patience: Patience, done: threading.Event, reasons: list[str]) -> None:
    before, mark = _work(program.pid), monotonic()
    while not done.wait(_EVERY_S):
        if monotonic() - mark < patience.standstill:
            continue
        if _gets_on(before, work := _work(program.pid), patience) or _waits_for_another(program.pid):
            before, mark = work, monotonic()
            continue
        reasons.append(f"did nothing for {patience.standstill:.0f} s")
        program.kill()
        return


def _gets_on(before: _Work | None, now: _Work | None, patience: Patience) -> bool:
    if before is None or now is None:
        return True
    busy = now.seconds - before.seconds >= BUSY * patience.standstill
    return busy or now.written - before.written >= patience.floor * patience.standstill


def _work(pid: int) -> _Work | None:
    """Read what a program has done; None where the system does not tell."""
    with suppress(OSError):
        if written := re.search(r"wchar: (\d+)", (_PROC / str(pid) / "io").read_text()):
            return _Work(sum(map(_seconds, _family(pid))), int(written[1]))
    return None


def _family(pid: int) -> Iterator[int]:
    """The program and all that it started, as far as they are still its own."""
    yield pid
    with suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))


def _seconds(pid: int) -> float:
    """The time of a program on the processor, with that of its children that have ended (proc(5), 14 to 17)."""
    with suppress(OSError, ValueError):
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _waits_for_another(pid: int) -> bool:
    """Say whether a program waits for a file that another has locked, such as uv for the uv of another run."""
    with suppress(OSError):
        return re.search(rf"-> +\w+ +\w+ +\w+ +{pid} ", (_PROC / "locks").read_text()) is not None
    return False
