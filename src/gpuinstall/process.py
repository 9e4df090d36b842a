"""The one place that starts other programs: a list of words, a time limit, and never a shell."""

from __future__ import annotations

import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from gpuinstall.errors import InstallationError
from gpuinstall.interruption import ending_with_us
from gpuinstall.patience import SILENCE, UV_DOWNLOADS, Patience, read_patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from subprocess import Popen


MEMORY_BYTES = 500_000_000
"""Half as much again as uv takes for the largest request that was tried (apache-airflow[all]: 307 MB)."""
UNSAVED_BYTES, FOR_EACH_BYTE = 200_000_000, 2
"""What uv may hold beyond its cache, and for each byte that it reads from there or writes there.

Of sound requests 68 MB was the most that was seen (awscli, whose old wheels are read by range); a page without an end
is all beyond.
"""
BUSY = 0.01
"""The share of a processor that a program has which does something."""
_EVERY_S, _CLOSELY_S, _LITTLE_BYTES = 0.25, 0.025, 64_000_000
"""How often a program is looked at, and how often one that holds more than most do: loopback brings 1 GB a second."""
_AFTERWARDS_S = 1.0
"""How long the last 64 kB, which a pipe holds, may take to be read; what the program started may hold its streams."""
_PROC = Path("/proc")


class _Work(NamedTuple):
    """What a program and those that it started have done so far: seconds of processor, bytes written."""

    seconds: float
    written: int


@contextmanager
def watched(
    program: Popen[str], words: Sequence[str], patience: Patience, *, limited: bool
) -> Iterator[None]:
    """Watch over a program for the block; raise InstallationError if it had to be ended.

    ``limited`` bounds its memory too, and that of whatever it starts: not for what compiles.
    """
    done, reasons = threading.Event(), list[str]()
    watcher = threading.Thread(
        target=_watch, args=(program, patience, limited, done, reasons), daemon=True
    )
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if reasons:
        message = f"{' '.join([Path(words[0]).name, *words[1:3]])} {reasons[0]} and was ended"
        more = f"{SILENCE} (seconds) gives a server more time, {UV_DOWNLOADS}=4 takes less memory"
        why, hint = (
            "a package index answers too slowly, or endlessly",
            f"Run it again\nOr use another index; {more}",
        )
        raise InstallationError(
            "standstill",
            message,
            why=why,
            hint=hint,
        )


def _watch(
    program: Popen[str],
    patience: Patience,
    limited: bool,
    done: threading.Event,
    reasons: list[str],
) -> None:
    before, mark, every = _work(program.pid), monotonic(), _EVERY_S
    while not done.wait(every):
        held = memory(program.pid) if limited else 0
        every = _CLOSELY_S if held > _LITTLE_BYTES else _EVERY_S
        if held > (most := _most_memory(program.pid)):
            reasons.append(f"took more than {most // 1_000_000} MB of memory")
        elif monotonic() - mark < patience.standstill:
            continue
        elif _gets_on(before, work := _work(program.pid), patience) or _waits_for_another(
            program.pid
        ):
            before, mark = work, monotonic()
            continue
        else:
            reasons.append(f"did nothing for {patience.standstill:.0f} s")
        program.kill()
        return


def _gets_on(
    before: _Work | None,
    now: _Work | None,
    patience: Patience,
) -> bool:
    if before is None or now is None:
        return True
    busy = now.seconds - before.seconds >= BUSY * patience.standstill
    return busy or now.written - before.written >= patience.floor * patience.standstill


def _work(pid: int) -> _Work | None:
    """Read what a program has done; None if the system does not tell."""
    written = moved(pid, "wchar")
    return None if written is None else _Work(sum(map(_seconds, _family(pid))), written)


def moved(pid: int, *ways: str) -> int | None:
    """The bytes that a program has read from files (``rchar``) or written (``wchar``); None if the system does not tell."""
    with suppress(OSError, KeyError):
        counts = dict(re.findall(r"(\w+): (\d+)", (_PROC / str(pid) / "io").read_text()))
        return sum(int(counts[way]) for way in ways)
    return None


def memory(pid: int) -> int:
    """The bytes of memory that are a program's own, 0 if the system does not tell."""
    with suppress(OSError):
        own = re.search(r"RssAnon:\s+(\d+) kB", (_PROC / str(pid) / "status").read_text())
        return int(own[1]) * 1024 if own else 0
    return 0


def _most_memory(pid: int) -> int:
    """The bytes that a program may take: what a server sends is not counted as read from a file."""
    in_files = moved(pid, "rchar", "wchar")
    return (
        MEMORY_BYTES
        if in_files is None
        else min(MEMORY_BYTES, UNSAVED_BYTES + FOR_EACH_BYTE * in_files)
    )


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
    """Whether a program waits for a file that another has locked, such as uv for the uv of another run."""
    with suppress(OSError):
        return re.search(rf"-> +\w+ +\w+ +\w+ +{pid} ", (_PROC / "locks").read_text()) is not None
    return False


OUTPUT = 10_000_000
"""The characters that a program may write, as many as a document has at most: one that writes more is ended."""


class Finished(NamedTuple):
    """How a program ended. ``status`` is negative when a signal ended it, None when the time limit did."""

    argv: tuple[str, ...]
    status: int | None
    out: str
    err: str

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.status == 0


def is_trusted(program: Path) -> bool:
    """Whether a program may be run: none from a folder of everybody's, unless that is sticky and the file ours."""
    try:
        real = program.resolve(strict=True)
        return real.is_file() and os.access(real, os.X_OK) and _is_safe(program) and _is_safe(real)
    except OSError:
        return False


def find_program(name: str, path: str | None = None) -> str | None:
    """Find the first program of a name on PATH, unless it may not be run."""
    program = shutil.which(name, path=path)
    return program if program and is_trusted(Path(program)) else None


class Listener(Protocol):
    """Hears of every program that this process runs."""

    def started(self, argv: Sequence[str]) -> None:
        """A program is being started."""

    def ended(self, finished: Finished) -> None:
        """A program has ended."""


_listeners: list[Listener] = []


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Tell a listener of every program that is run in the block."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
    seconds: float | None = None,
    patience: Patience | None = None,
    each_line: Callable[[str], None] | None = None,
    group: bool = False,
) -> Finished:
    """Run ``argv`` with ``text`` (or nothing) on its stdin, and wait; raise FileNotFoundError for no such program.

    Each line of its stdout is handed to ``each_line`` at once, from another thread. As a ``group`` it takes whatever it
    started with it when it ends; it has no terminal then.
    With ``patience`` it is watched: raise InstallationError if it stands still or needs memory without end.
    """
    words = tuple(str(word) for word in argv)
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    with _started(
        words,
        env,
        patience,
        limited=True,
        group=group,
        cwd=cwd,
        stdin=stdin,
    ) as running:
        try:
            if text is None:
                out, err = _communicated(running, each_line, seconds)
            else:
                out, err = running.communicate(text, seconds)
        except subprocess.TimeoutExpired as ended:
            return _told(Finished(words, None, _text(ended.stdout), _text(ended.stderr)))
    return _told(Finished(words, running.returncode, out, err))


def ask(argv: Sequence[str | Path]) -> Finished:
    """Run an interpreter that says what it is; one that hangs is ended."""
    return run(argv, seconds=read_patience(os.environ).look)


def follow(
    argv: Sequence[str | Path],
    each_line: Callable[[str], None],
    *,
    env: Mapping[str, str],
    patience: Patience | None = None,
) -> Finished:
    """Run ``argv`` and hand each line that it writes to stderr to ``each_line`` at once; its stdout is not kept.

    ``patience`` is what it is for ``run``, but for the memory, which builds may need.
    """
    words, lines = tuple(str(word) for word in argv), []
    with _started(
        words, env, patience, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    ) as running:
        for line in running.stderr or ():
            lines.append(line)
            each_line(line.rstrip())
        running.wait()
    return _told(Finished(words, running.returncode, "", "".join(lines)))


def _told(finished: Finished) -> Finished:
    for listener in _listeners:
        listener.ended(finished)
    return finished


def _communicated(
    running: subprocess.Popen[str], each_line: Callable[[str], None] | None, seconds: float | None
) -> tuple[str, str]:
    """Read stdout line by line and stderr beside it, not without end; raise TimeoutExpired with what had come."""
    out: list[str] = []
    err: list[str] = []

    def hear(
        stream: IO[str],
        lines: list[str],
        heard: Callable[[str], None] | None = None,
    ) -> None:
        size = 0
        with stream:
            while line := stream.readline(OUTPUT):
                lines.append(line)
                if heard:
                    heard(line)
                size += len(line)
                if size > OUTPUT:
                    running.kill()
                    return

    streams = ((running.stdout, out, each_line), (running.stderr, err))
    readers = [
        Thread(
            target=hear,
            args=stream,
            daemon=True,
        )
        for stream in streams
    ]
    running.stdout = running.stderr = (
        None  # who reads closes: to close what another thread reads waits for its end
    )
    for reader in readers:
        reader.start()
    end = math.inf if seconds is None else monotonic() + seconds
    # To wait for a program with a limit is to look ever more seldom; its streams end as soon as it does.
    while (
        running.poll() is None
        and monotonic() < end
        and any(reader.is_alive() for reader in readers)
    ):
        for reader in readers:
            reader.join(min(_EVERY_S, max(0.0, end - monotonic())))
    try:
        running.wait(None if seconds is None else max(0.0, end - monotonic()))
    except subprocess.TimeoutExpired as ended:
        raise subprocess.TimeoutExpired(
            running.args, ended.timeout, "".join(out), "".join(err)
        ) from None
    for reader in readers:
        reader.join(_AFTERWARDS_S)
    return "".join(out), "".join(err)


class _Group(subprocess.Popen[str]):
    """A program that whatever it started ends with, but for what has left its session."""

    def kill(self) -> None:
        with suppress(OSError):  # nothing of it is left
            os.killpg(self.pid, signal.SIGKILL)


@contextmanager
def _started(
    words: tuple[str, ...],
    env: Mapping[str, str] | None,
    patience: Patience | None,
    *,
    stdin: int,
    stdout: int = subprocess.PIPE,
    limited: bool = False,
    cwd: Path | None = None,
    group: bool = False,
) -> Iterator[subprocess.Popen[str]]:
    """Start a program that does not outlive the block."""
    for listener in _listeners:
        listener.started(words)
    with (
        (_Group if group and sys.platform != "win32" else subprocess.Popen)(
            words,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=group,
        ) as running,
        watched(running, words, patience, limited=limited) if patience else nullcontext(),
        ending_with_us(running),
    ):
        yield running


def _is_safe(program: Path) -> bool:
    mode = program.parent.stat().st_mode
    if sys.platform == "win32" or not mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_ISVTX) and program.lstat().st_uid == os.getuid()


def _text(raw: bytes | str | None) -> str:
    return raw.decode("utf-8", "replace") if isinstance(raw, bytes) else raw or ""
