"""Run programs with limits, and without a shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from os.path import isfile
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.interruption import kill_on_exit
from gpuinstall.base.owners import can_start
from gpuinstall.base.trust import is_in_project, trusts_folders

if TYPE_CHECKING:
    from gpuinstall.base.timeouts import Timeouts

_PIPE_DRAIN_S = 1.0
"""Seconds to read the rest of a pipe that grandchild processes keep open."""
_MEMORY_CHECK_S = 0.1
"""Seconds between two memory checks. uv can allocate 600 MB per second."""
OUTPUT = 10_000_000
"""The maximum number of characters of a program's output."""


_MODULE_PATH = "PYTHONPATH"
_PROGRAM_PATH = "PATH"
_PATHS = {"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", _MODULE_PATH, _PROGRAM_PATH}
"""Variables with search paths, which may contain untrusted folders."""


class Finished(NamedTuple):
    """Exit status and output of a finished program."""

    argv: tuple[str, ...]
    status: int | None
    """The exit status, negative for a signal. None: a limit was exceeded."""
    out: str
    err: str
    excess: str = ""
    """The limit that the program exceeded, so that it was killed."""

    @property
    def ok(self) -> bool:
        """Whether the program exited with status 0."""
        return self.status == 0


def is_startable(program: Path) -> bool:
    """Return whether a program exists, is executable, and is trusted."""
    # Check both the link and its target, because replacing either replaces the program.
    try:
        real = program.resolve(strict=True)
        is_program = isfile(real) and os.access(real, os.X_OK)
        return is_program and can_start(program) and can_start(real)
    except OSError:
        return False


def list_program_folders() -> list[str]:
    """Return the folders of PATH, without untrusted ones."""
    return _select_folders(_PROGRAM_PATH, os.environ.get("PATH", os.defpath))


def find_program(name: str, path: str | None = None) -> str | None:
    """Return the path of a program, or None if it is missing or untrusted.

    Args:
        name: The name.
        path: The folders to search. None: PATH.
    """
    import shutil  # slow to import

    path = os.pathsep.join(list_program_folders()) if path is None else path
    program = shutil.which(name, path=path)
    if program and is_startable(Path(program)):
        return program
    return None


_observers: list[Callable[[Sequence[str]], None]] = []


@contextmanager
def observe_commands(observer: Callable[[Sequence[str]], None]) -> Iterator[None]:
    """Call ``observer`` with the command line of every started program."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str | None = None,
    seconds: float | None = None,
    timeouts: Timeouts | None = None,
    memory: int | None = None,
    each_line: Callable[[str], None] | None = None,
    each_error_line: Callable[[str], None] | None = None,
    group: bool = False,
) -> Finished:
    """Run a program, and kill it if the call is interrupted.

    Args:
        argv: The command line.
        env: The variables. None: ``os.environ``.
        cwd: The working folder.
        text: The input. None: no input.
        seconds: The time limit.
        timeouts: The limits for a program that waits for servers. Exceeding a limit
            is then an error. ``seconds`` overrides the time limit.
        memory: The memory limit in bytes, on Linux only.
        each_line: Receives each line of stdout, in another thread.
        each_error_line: Receives each line of stderr, in another thread.
        group: Whether to kill the program's child processes too. Such a program has no terminal.

    Raises:
        FileNotFoundError: The program does not exist.
        InstallationError: A program with ``timeouts`` exceeded a limit.
    """
    words = tuple(str(word) for word in argv)
    for follow in _observers:
        follow(words)
    limit = timeouts.total if timeouts and seconds is None else seconds
    exceeded: list[str] = []
    with (
        (_Group if group and sys.platform != "win32" else subprocess.Popen)(
            words,
            env=_safe_environment(os.environ if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=group,
        ) as process,
        kill_on_exit(process),
    ):

        def end(excess: str) -> None:
            if process.poll() is None:
                exceeded.append(excess)
                process.kill()

        if limit or memory:
            watched = (process, limit, memory, end)
            Thread(target=_watch, args=watched, daemon=True).start()
        out, err = _communicate(process, text, (each_line, each_error_line), end)
    if exceeded and timeouts:
        from gpuinstall.base.timeouts import MORE_TIME

        name = " ".join([Path(words[0]).name, *words[1:3]])
        raise InstallationError(
            "too-slow",
            f"{name} was stopped: {exceeded[0]}",
            why="an index responds too slowly, the request takes too long to resolve, or RUST_LOG makes uv log too much",
            hint=(*MORE_TIME, "Or use another index"),
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
    """Watch a program, and call ``end`` if it exceeds a limit."""
    start = monotonic()
    status = Path(f"/proc/{running.pid}/statm")
    while running.poll() is None:
        if seconds and monotonic() - start > seconds:
            end(f"not finished after {seconds:.0f} s")
        with suppress(OSError, ValueError, IndexError):
            pages = int(status.read_text("utf-8").split()[1])
            if memory and pages * os.sysconf("SC_PAGE_SIZE") > memory:
                end(f"used more than {memory / 1e9:.0f} GB of memory")
        sleep(_MEMORY_CHECK_S)


def run_python(
    argv: Sequence[str | Path],
    *,
    seconds: float,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    each_line: Callable[[str], None] | None = None,
) -> Finished:
    """Run an interpreter, and kill it with its child processes at the limit.

    The interpreter imports no module of the working folder: its first argument is
    ``-I``, or a script that removes its own folder from ``sys.path``.

    Args:
        argv: The interpreter and its arguments.
        seconds: The time limit.
        env: The variables. None: ``os.environ``.
        cwd: The working folder.
        each_line: Receives each line of stdout, in another thread.
    """
    return run(argv, env=env, cwd=cwd, seconds=seconds, each_line=each_line, group=True)


def _safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Remove untrusted folders from the paths of libraries and modules."""
    variables = dict(environ)
    for name in _PATHS & variables.keys():
        trusted = _select_folders(name, variables.pop(name))
        if trusted:
            variables[name] = os.pathsep.join(trusted)
    return variables


def _select_folders(name: str, value: str) -> list[str]:
    """Return the trusted folders of a variable, which are absolute."""
    # ld.so also accepts semicolons as separators.
    separators = os.pathsep if name == _PROGRAM_PATH else f"{os.pathsep};"
    folders = re.split(f"[{separators}]", value)
    trusted = [folder for folder in folders if Path(folder).is_absolute()]
    is_distrusted = name == _PROGRAM_PATH and not trusts_folders()
    if name == _MODULE_PATH or is_distrusted:
        return [folder for folder in trusted if not is_in_project(folder)]
    return trusted


def _communicate(
    running: subprocess.Popen[str],
    text: str | None,
    receivers: tuple[Callable[[str], None] | None, ...],
    end: Callable[[str], None],
) -> tuple[str, str]:
    """Write a program's input, and return its truncated stdout and stderr.

    Args:
        running: The program.
        text: The input. None: no input.
        receivers: They receive each line of stdout and stderr.
        end: Called with the reason if the output is too long.
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

    streams = zip((running.stdout, running.stderr), (out, err), receivers, strict=True)
    readers = [Thread(target=read, args=stream, daemon=True) for stream in streams]
    # The readers close the streams. Closing one blocks while another thread reads it.
    running.stdout = running.stderr = None
    for reader in readers:
        reader.start()
    if running.stdin:
        with suppress(BrokenPipeError), running.stdin as stdin:
            stdin.write(text or "")
    running.wait()
    for reader in readers:
        reader.join(_PIPE_DRAIN_S)
    return "".join(out), "".join(err)


class _Group(subprocess.Popen[str]):
    """Program that is killed together with its child processes."""

    def kill(self) -> None:
        # start_new_session makes the program the leader of its process group.
        with suppress(OSError):  # all processes have exited
            os.killpg(self.pid, signal.SIGKILL)
