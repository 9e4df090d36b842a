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
"""How often a program is looked at."""
_AFTERWARDS_S = 1.0
"""How long the last 64 kB, which a pipe holds, may take to be read; what the program started may hold its streams."""


@contextmanager
def _limited(
    program: Popen[str], words: Sequence[str], patience: Patience, *, memory: bool
) -> Iterator[None]:
    """End a program that takes too long in the block, or too much memory; raise InstallationError then."""
    done = threading.Event()
    reasons: list[str] = []

    def watch() -> None:
        deadline = monotonic() + patience.total
        while not done.wait(_EVERY_S):
            if memory and _memory(program.pid) > MEMORY_BYTES:
                reasons.append(f"took more than {MEMORY_BYTES // 1_000_000} MB of memory")
            elif monotonic() > deadline:
                reasons.append(f"took more than {patience.total:.0f} s")
            else:
                continue
            program.kill()
            return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
    if reasons:
        name = " ".join([Path(words[0]).name, *words[1:3]])
        raise InstallationError(
            "too-slow",
            f"{name} {reasons[0]} and was ended",
            why="a package index answers too slowly, or endlessly",
            hint=f"{MORE_TIME}\nOr use another index",
        )


def _memory(pid: int) -> int:
    """Return the bytes of memory that are a program's own; 0 if the system does not tell."""
    with suppress(OSError):
        status = (_PROC / str(pid) / "status").read_text("utf-8")
        own = re.search(r"RssAnon:\s+(\d+) kB", status)
        return int(own[1]) * 1024 if own else 0
    return 0


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
    With ``patience`` its time and its memory are limited: raise InstallationError if it takes more.
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
        _limited(running, words, patience, memory=limited) if patience else nullcontext(),
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
