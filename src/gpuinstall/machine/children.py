"""Child processes that query drivers, which may hang or crash."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Any

from gpuinstall.base.files import parse_json
from gpuinstall.base.process import Finished, run, run_python

Command = tuple[Sequence[str], Mapping[str, str]]
DRIVER_SECONDS = 60.0
"""The time limit of a driver query in seconds.

Without persistence mode, the driver took 25 s to initialize eight GPUs.
"""
NOTICE_AFTER = 3.0
"""Seconds before a slow driver query is reported."""
_WINDOWS_EXCEPTION = 0x80000000
"""The lowest exit status of a crashed process on Windows."""
_WINDOWS_ABORT = 3 if os.name == "nt" else None
"""The exit status after ``abort`` on Windows."""
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""The error numbers if the system cannot start more processes."""
_TIMEOUT = re.compile(r"(?m)^Timeout \(\d+:\d\d:\d\d")
"""The timeout message of Python's faulthandler."""
_SIGNAL_CAUSES = {
    "SIGKILL": "the system does this when the machine or the job runs out of memory",
    "SIGILL": "this processor lacks an instruction that the build uses",
}
_CRASH_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}
_MIN_PROCESSES = 1024
"""The limit of processes and threads below which a driver may fail."""
_GRACE = 1.0
"""Seconds to wait for a killed process, which may be stuck in the kernel."""


def run_children(
    commands: Sequence[Command],
    seconds: float,
    waiting: Callable[[], None] | None = None,
    *,
    cwd: Path | None = None,
    each_line: Callable[[str], None] | None = None,
) -> tuple[Finished, ...]:
    """Run interpreters in parallel.

    A child process in uninterruptible sleep cannot be killed and is abandoned.

    Args:
        commands: The arguments and environment of each command.
        seconds: The time limit of each command.
        waiting: Called once if a command takes longer than ``NOTICE_AFTER``.
        cwd: The working folder of the commands.
        each_line: Receives each line of their stdout, in other threads.

    Returns:
        The results in the order of the commands, with status None after a timeout.

    Raises:
        OSError, MemoryError, RuntimeError: The system cannot start more processes or
            threads.
    """
    ended = [Finished(tuple(argv), None, "", "") for argv, _ in commands]
    shortages: list[Exception] = []

    def run_command(number: int, argv: Sequence[str], env: Mapping[str, str]) -> None:
        try:
            ended[number] = run_python(
                argv, env=env, seconds=seconds, cwd=cwd, each_line=each_line
            )
        except (OSError, MemoryError, RuntimeError) as error:
            # A shortage of memory, threads, or processes is not a timeout of the driver.
            if getattr(error, "errno", errno.EAGAIN) in _SHORTAGES:
                shortages.append(error)
                return
            # Shells use this status for a program that cannot be run.
            ended[number] = Finished(tuple(argv), 126, "", str(error))

    threads = [
        # Use daemon threads, because Python waits at exit for the threads of a pool, and a thread with a stuck child may
        # never end.
        Thread(target=run_command, args=(number, *command), daemon=True)
        for number, command in enumerate(commands)
    ]
    start = monotonic()
    for thread in threads:
        thread.start()
    for limit in (NOTICE_AFTER, seconds + _GRACE):
        for thread in threads:
            thread.join(max(0.0, start + limit - monotonic()))
        if waiting and limit == NOTICE_AFTER and any(map(Thread.is_alive, threads)):
            waiting()
    if shortages:
        raise shortages[0]
    return tuple(ended)


def classify_fault(finished: Finished) -> str:
    """Return why a child failed: ``timeout``, ``crash``, or ``unasked``.

    A crash that a limit on memory or processes may explain is ``unasked``.
    """
    if finished.status is None:
        return "timeout"
    return "crash" if is_crash(finished) and not describe_limits() else "unasked"


def is_crash(finished: Finished) -> bool:
    """Return whether a fault in a child's code ended it."""
    status = finished.status or 0
    is_exception = status >= _WINDOWS_EXCEPTION or status == _WINDOWS_ABORT
    return is_exception or format_signal(-status) in _CRASH_SIGNALS


def describe_limits() -> str:
    """Return the low limits of this process on memory and processes."""
    try:
        import resource
    except ImportError:  # Windows
        return ""
    limits = {
        "ulimit -v": (resource.RLIMIT_AS, 1 << 10, resource.RLIM_INFINITY),
        "ulimit -d": (resource.RLIMIT_DATA, 1 << 10, resource.RLIM_INFINITY),
        "ulimit -u": (resource.RLIMIT_NPROC, 1, _MIN_PROCESSES),
    }
    found = []
    for name, (number, unit, enough) in limits.items():
        limit = resource.getrlimit(number)[0]
        if limit != resource.RLIM_INFINITY and (limit < enough or enough < 0):
            found.append(f"{name} is {limit // unit}")
    return ", ".join(found)


def is_timeout(finished: Finished) -> bool:
    """Return whether a child process timed out or faulthandler stopped it."""
    ended_itself = finished.status == 1 and _TIMEOUT.search(finished.err) is not None
    return finished.status is None or ended_itself


def describe_end(finished: Finished, seconds: float) -> str:
    """Describe in one line why a child process failed."""
    status = finished.status
    if finished.excess:
        return finished.excess
    if status is None or is_timeout(finished):
        return f"not finished after {seconds:.0f} s"
    if status < 0:
        name = format_signal(-status)
        reason = _SIGNAL_CAUSES.get(name)
        if is_crash(finished) and (limits := describe_limits()):
            reason = f"{limits}, which may be too low"
        return f"killed by {name}: {reason}" if reason else f"killed by {name}"
    if status >= _WINDOWS_EXCEPTION:
        return f"terminated by Windows exception 0x{status:08X}"
    lines = finished.err.strip().splitlines() or ["no output"]
    # The interpreter prints a fatal error above the call trace.
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return f"exited with status {status}: {(fatal or lines[-1:])[0]}"


def format_signal(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def read_output(*argv: str, seconds: float) -> str:
    """Return the output of a program, or empty text if it cannot be run."""
    try:
        return run(argv, seconds=seconds).out
    except OSError:
        return ""


def json_lines(finished: Finished, mark: str = "") -> list[dict[str, Any]]:
    """Parse the JSON lines of a child's output that begin with ``mark``.

    The user's startup files may print other lines. The last line may be incomplete.
    """
    answers = []
    for line in finished.out.splitlines():
        answer = (
            json_or_none(line.removeprefix(mark)) if line.startswith(mark) else None
        )
        if isinstance(answer, dict):
            answers.append(answer)
    return answers


def json_or_none(text: str) -> Any:
    """Parse JSON, or return None if it is malformed."""
    with suppress(ValueError):
        return parse_json(text)
    return None
