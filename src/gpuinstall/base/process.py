"""The one place that starts other programs: a list of words, a time limit, and never a shell."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os.path import isfile
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.interruption import ending_with_us
from gpuinstall.base.owners import can_start
from gpuinstall.base.patience import MORE_TIME, Patience, read_patience

_AFTERWARDS_S = 1.0
"""How long the last 64 kB, which a pipe holds, may take to be read; what the program started may hold its streams."""
_LOOK_S = 0.1
"""How often a program is looked at: a page without end takes 600 MB of memory a second from this machine."""
OUTPUT = 10_000_000
"""The characters that a program may write, as many as a document has at most: one that writes more is ended."""


_LIBRARY_PATHS = {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
"""An empty or relative entry is the working folder; ld.so separates at a semicolon too."""


class Finished(NamedTuple):
    """How a program ended. ``status`` is negative if a signal ended it, None if it was ended for an excess."""

    argv: tuple[str, ...]
    status: int | None
    out: str
    err: str
    excess: str = ""
    """What it took or wrote too much of, so that it was ended."""

    @property
    def ok(self) -> bool:
        """Whether it ended well."""
        return self.status == 0


def is_startable(program: Path) -> bool:
    """Return whether a program exists, can be executed, and may be started."""
    # A link counts where it is and where it leads: who can exchange either selects the program.
    try:
        real = program.resolve(strict=True)
        is_program = isfile(real) and os.access(real, os.X_OK)
        return is_program and can_start(program) and can_start(real)
    except OSError:
        return False


def find_program(name: str, path: str | None = None) -> str | None:
    """Find the first program of a name on PATH.

    Args:
        name: The name.
        path: Another list of folders than the variable's.

    Returns:
        Its path; None if there is none, or it may not be run.
    """
    program = shutil.which(name, path=path)
    if program and is_startable(Path(program)):
        return program
    return None


_followers: list[Callable[[Sequence[str]], None]] = []


@contextmanager
def followed_by(follower: Callable[[Sequence[str]], None]) -> Iterator[None]:
    """Hand the command line of every program that is started in the block to a function."""
    _followers.append(follower)
    try:
        yield
    finally:
        _followers.remove(follower)


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
    seconds: float | None = None,
    patience: Patience | None = None,
    memory: int | None = None,
    each_error_line: Callable[[str], None] | None = None,
    group: bool = False,
) -> Finished:
    """Run a program that does not outlive the call.

    Args:
        argv: Its words.
        env: Its variables, by default ours.
        cwd: Its folder, by default ours.
        text: What it reads from stdin, by default nothing.
        seconds: After which it is ended.
        patience: The same for a program that waits for servers; with ``seconds`` these count.
        memory: The bytes that it may take; on Linux alone they are told.
        each_error_line: Is given each line of stderr at once, from another thread.
        group: Whether what it has started ends with it; it has no terminal then.

    Raises:
        FileNotFoundError: There is no such program.
        InstallationError: The time of ``patience`` is over.
    """
    words = tuple(str(word) for word in argv)
    for follow in _followers:
        follow(words)
    limit = patience.total if patience and seconds is None else seconds
    exceeded: list[str] = []
    with (
        (_Group if group and sys.platform != "win32" else subprocess.Popen)(
            words,
            env=_safe(os.environ if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=group,
        ) as process,
        ending_with_us(process),
    ):

        def end(excess: str) -> None:
            if process.poll() is None:
                exceeded.append(excess)
                process.kill()

        if limit or memory:
            watched = (process, limit, memory, end)
            Thread(target=_watch, args=watched, daemon=True).start()
        out, err = _communicated(process, text, each_error_line, end)
    if exceeded and patience:
        name = " ".join([Path(words[0]).name, *words[1:3]])
        raise InstallationError(
            "too-slow",
            f"{name} was ended: {exceeded[0]}",
            why="an index answers too slowly or endlessly, the request takes too long to resolve, or RUST_LOG has uv tell all",
            hint=f"{MORE_TIME}\nOr use another index",
        )
    if exceeded:
        return Finished(words, None, out, err, exceeded[0])
    return Finished(words, process.returncode, out, err)


def _watch(
    running: subprocess.Popen[str],
    seconds: float | None,
    memory: int | None,
    end: Callable[[str], None],
) -> None:
    """End a program that takes more time or memory than it may.

    Args:
        running: The program.
        seconds: The time that it may take; None: any.
        memory: The bytes that it may take; None: any.
        end: Ends it, and is told why.
    """
    start = monotonic()
    status = Path(f"/proc/{running.pid}/statm")
    while running.poll() is None:
        if seconds and monotonic() - start > seconds:
            end(f"not finished after {seconds:.0f} s")
        with suppress(OSError, ValueError, IndexError):
            pages = int(status.read_text(encoding="ascii").split()[1])
            if memory and pages * os.sysconf("SC_PAGE_SIZE") > memory:
                end(f"took more than {memory / 1e9:.0f} GB of memory")
        sleep(_LOOK_S)


def _safe(environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables with which no library is loaded from the working folder, which may be a stranger's."""
    variables = dict(environ)
    for name in _LIBRARY_PATHS & variables.keys():
        folders = re.split("[:;]", variables.pop(name))
        absolute = [folder for folder in folders if Path(folder).is_absolute()]
        if absolute:
            variables[name] = ":".join(absolute)
    return variables


def ask(argv: Sequence[str | Path]) -> Finished:
    """Run an interpreter that says what it is; one that hangs is ended."""
    return run(argv, seconds=read_patience(os.environ).look)


def _communicated(
    running: subprocess.Popen[str],
    text: str | None,
    each_error_line: Callable[[str], None] | None,
    end: Callable[[str], None],
) -> tuple[str, str]:
    """Hand a text to a program, and read its stdout line by line and its stderr beside it, not without end.

    Args:
        running: The program.
        text: What it reads from stdin; None: nothing.
        each_error_line: Is given each line of stderr as it comes.
        end: Ends it, and is told why.

    Returns:
        All that it has written to stdout and to stderr.
    """
    out: list[str] = []
    err: list[str] = []

    def read(
        stream: IO[str],
        lines: list[str],
        each: Callable[[str], None] | None,
    ) -> None:
        size = 0
        with stream:
            while line := stream.readline(OUTPUT):
                lines.append(line)
                if each:
                    each(line)
                size += len(line)
                if size > OUTPUT:
                    end(f"wrote more than {OUTPUT / 1e6:.0f} MB")
                    return

    streams = ((running.stdout, out, None), (running.stderr, err, each_error_line))
    readers = [Thread(target=read, args=stream, daemon=True) for stream in streams]
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
        # It leads its own session, and with it a group of its number.
        with suppress(OSError):  # nothing of it is left
            os.killpg(self.pid, signal.SIGKILL)
