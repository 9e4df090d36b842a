"""A watch over a program that works with servers: ended where it stands still, or takes memory without end.

What a program does is read from Linux' /proc: the processor's time of it and of all that it started, its memory, what
it has read and written, what it waits for. Elsewhere its own time limits are all there is.
"""

from __future__ import annotations

import os
import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.patience import SILENCE, UV_DOWNLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from subprocess import Popen

    from gpuinstall.patience import Patience
    from gpuinstall.reporter import Meter

MEMORY_BYTES = 500_000_000
"""Half as much again as uv takes for the largest request that was tried (apache-airflow[all]: 307 MB)."""
UNSAVED_BYTES, FOR_EACH_BYTE = 200_000_000, 2
"""What uv may hold beyond its cache, and for each byte that it reads from there or writes there.

Of sound requests 68 MB was the most that was seen (awscli, whose old wheels are read by range); a page without an end
is all beyond.
"""
BUSY = 0.01
"""The share of a processor that a program has which does something."""
_EVERY_S = 0.025
_PROC = Path("/proc")


@dataclass(frozen=True)
class _Work:
    """What a program and those that it started have done so far: seconds of processor, bytes written."""

    seconds: float
    written: int


@contextmanager
def watched(program: Popen[str], words: Sequence[str], patience: Patience) -> Iterator[None]:
    """Watch over a program for the block; raise InstallationError where it had to be ended."""
    done = threading.Event()
    reasons: list[str] = []
    watcher = threading.Thread(target=_watch, args=(program, patience, done, reasons), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if reasons:
        raise InstallationError(
            "standstill",
            f"{' '.join([Path(words[0]).name, *words[1:3]])} {reasons[0]} and was ended",
            why="a package index answers in drops, or without end",
            hint="run the same again, or name another index; "
            f"{SILENCE} (seconds) gives a server more time, {UV_DOWNLOADS}=4 takes less memory",
        )


@contextmanager
def metered(program: Popen[str], written: Meter) -> Iterator[None]:
    """Count the bytes that a program writes during the block; none where the system does not tell."""
    done = threading.Event()

    def count() -> None:
        before = 0
        while not done.wait(_EVERY_S):
            now = max(before, moved(program.pid, "wchar") or 0)
            written(now - before)
            before = now

    counter = threading.Thread(target=count, daemon=True)
    counter.start()
    try:
        yield
    finally:
        done.set()
        counter.join()


def _watch(program: Popen[str], patience: Patience, done: threading.Event, reasons: list[str]) -> None:
    before, mark = _work(program.pid), monotonic()
    while not done.wait(_EVERY_S):
        if memory(program.pid) > (most := _most_memory(program.pid)):
            reasons.append(f"took more than {most // 1_000_000} MB of memory")
        elif monotonic() - mark < patience.standstill:
            continue
        elif _gets_on(before, work := _work(program.pid), patience) or _waits_for_another(program.pid):
            before, mark = work, monotonic()
            continue
        else:
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
    written = moved(pid, "wchar")
    return None if written is None else _Work(sum(map(_seconds, _family(pid))), written)


def moved(pid: int, *ways: str) -> int | None:
    """The bytes that a program has read from files (``rchar``) or written (``wchar``); None where it is not told."""
    with suppress(OSError, KeyError):
        counted = dict(re.findall(r"(\w+): (\d+)", (_PROC / str(pid) / "io").read_text()))
        return sum(int(counted[way]) for way in ways)
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


def memory(pid: int) -> int:
    """The bytes of memory that are a program's own, 0 where the system does not tell."""
    with suppress(OSError):
        found = re.search(r"RssAnon:\s+(\d+) kB", (_PROC / str(pid) / "status").read_text())
        return int(found[1]) * 1024 if found else 0
    return 0


def _most_memory(pid: int) -> int:
    """The bytes that a program may take: what a server sends is not counted as read from a file."""
    in_files = moved(pid, "rchar", "wchar")
    return MEMORY_BYTES if in_files is None else min(MEMORY_BYTES, UNSAVED_BYTES + FOR_EACH_BYTE * in_files)


def _waits_for_another(pid: int) -> bool:
    """Say whether a program waits for a file that another has locked, such as uv for the uv of another run."""
    with suppress(OSError):
        return re.search(rf"-> +\w+ +\w+ +\w+ +{pid} ", (_PROC / "locks").read_text()) is not None
    return False
