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
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, NamedTuple, Protocol

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.interruption import ending_with_us
from gpuinstall.base.patience import MORE_TIME, Patience, read_patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from subprocess import Popen


MEMORY_BYTES = 500_000_000
"""Half as much again as uv takes for the largest request that was tried (apache-airflow[all]: 307 MB)."""
_PROC = Path("/proc")
_EVERY_S = 0.25
"""How often a program with a limit is looked at."""
_AFTERWARDS_S = 1.0
"""How long the last 64 kB, which a pipe holds, may take to be read; what the program started may hold its streams."""
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
    each_error_line: Callable[[str], None] | None = None,
    group: bool = False,
) -> Finished:
    """Run ``argv`` with ``text`` (or nothing) on its stdin, and wait; raise FileNotFoundError for no such program.

    Each line of its stdout is handed to ``each_line`` at once, of its stderr to ``each_error_line``, from other threads.
    As a ``group`` it takes whatever it started with it when it ends; it has no terminal then.
    After ``seconds`` it is ended. With ``patience``, which is for uv, too, and if it takes too much memory: raise
    InstallationError then.
    """
    words = tuple(str(word) for word in argv)
    stdin = subprocess.DEVNULL if text is None else subprocess.PIPE
    limit = patience.total if patience else seconds
    with _started(
        words, env, limit, stdin=stdin, cwd=cwd, group=group, is_uv=patience is not None
    ) as program:
        out, err = _communicated(program.process, text, each_line, each_error_line)
    return _ended(program, out, err, patience)


def ask(argv: Sequence[str | Path]) -> Finished:
    """Run an interpreter that says what it is; one that hangs is ended."""
    return run(argv, seconds=read_patience(os.environ).look)


class _Program(NamedTuple):
    """A program that runs, and whether its time limit has ended it."""

    words: tuple[str, ...]
    process: Popen[str]
    is_over: threading.Event


def _ended(program: _Program, out: str, err: str, patience: Patience | None) -> Finished:
    """Return how a program ended; raise InstallationError if it did so by the limit of a server's patience."""
    status = None if program.is_over.is_set() else program.process.returncode
    finished = Finished(program.words, status, out, err)
    for listener in _listeners:
        listener.ended(finished)
    if status is None and patience:
        megabytes = MEMORY_BYTES // 1_000_000
        name = " ".join([Path(program.words[0]).name, *program.words[1:3]])
        raise InstallationError(
            "too-slow",
            f"{name} took more than {patience.total:.0f} s or {megabytes} MB, and was ended",
            why="an index answers too slowly or endlessly, or the request takes too long to resolve",
            hint=f"{MORE_TIME}\nOr use another index",
        )
    return finished


def _communicated(
    running: Popen[str],
    text: str | None,
    each_line: Callable[[str], None] | None,
    each_error_line: Callable[[str], None] | None,
) -> tuple[str, str]:
    """Hand a text to a program, and read its stdout line by line and its stderr beside it, not without end."""
    out: list[str] = []
    err: list[str] = []

    def hear(stream: IO[str], lines: list[str], heard: Callable[[str], None] | None = None) -> None:
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

    streams = ((running.stdout, out, each_line), (running.stderr, err, each_error_line))
    readers = [Thread(target=hear, args=stream, daemon=True) for stream in streams]
    # Who reads closes: to close what another thread reads waits for its end.
    running.stdout = running.stderr = None
    for reader in readers:
        reader.start()
    if running.stdin:
        with suppress(BrokenPipeError), running.stdin as stdin:
            stdin.write(text or "")
    running.wait()
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
    seconds: float | None,
    *,
    stdin: int,
    cwd: Path | None,
    group: bool,
    is_uv: bool,
) -> Iterator[_Program]:
    """Start a program that does not outlive the block, nor a time limit; uv holds so much memory at most."""
    for listener in _listeners:
        listener.started(words)
    is_over = threading.Event()
    with (
        (_Group if group and sys.platform != "win32" else subprocess.Popen)(
            words,
            env=None if env is None else dict(env),
            cwd=cwd,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=group,
        ) as running,
        ending_with_us(running),
    ):

        def watch() -> None:
            deadline = monotonic() + (seconds or math.inf)
            while running.poll() is None:
                if monotonic() >= deadline or (is_uv and _memory(running.pid) > MEMORY_BYTES):
                    is_over.set()
                    running.kill()
                    return
                sleep(min(_EVERY_S, max(0.0, deadline - monotonic())))

        if seconds is not None:
            Thread(target=watch, daemon=True).start()
        yield _Program(words, running, is_over)


def _memory(pid: int) -> int:
    """Return the bytes of memory that are a program's own, not its children's; 0 if the system does not tell."""
    with suppress(OSError):
        status = (_PROC / str(pid) / "status").read_text("utf-8")
        own = re.search(r"RssAnon:\s+(\d+) kB", status)
        return int(own[1]) * 1024 if own else 0
    return 0


def _is_safe(program: Path) -> bool:
    mode = program.parent.stat().st_mode
    if sys.platform == "win32" or not mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_ISVTX) and program.lstat().st_uid == os.getuid()
