"""Our own children: what touches a driver runs in a process of its own, where a hang or a crash is an answer."""

from __future__ import annotations

import errno
import re
import signal
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base.files import parse_json
from gpuinstall.base.process import Finished, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Command = tuple[Sequence[str], Mapping[str, str]]

DRIVER_SECONDS = 60.0
"""What a driver may take: eight cards that start anew without persistence were seen to take 25 s."""
NOTICE_AFTER = 3.0
"""Seconds without an answer after which a person is told what is waited for: a healthy driver answers in one."""
_CRASHES = frozenset(("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE"))
"""The signals by which a program ends for a fault of its own code; others come from outside."""
_WINDOWS_EXCEPTION = 0x80000000
"""Windows returns the exception that ended a process as its status."""
_SHORTAGES = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""What a system says that has no room for one more process."""
_TIMEOUT = re.compile(r"(?m)^Timeout \(\d+:\d\d:\d\d")
"""What faulthandler writes, at the start of a line: a library that was at work may log a "ReadTimeout (…)" of its own."""
_KILLED = {
    "SIGKILL": "the system does that when memory runs out, also at a job's limit",
    "SIGILL": "this processor lacks an instruction that the build uses",
}
"""Why a signal is sent, as far as that is known."""
_GRACE = 1.0  # for a child that is killed to be collected: one that sleeps in the kernel never is


def run_children(
    commands: Sequence[Command],
    seconds: float,
    waiting: Callable[[], None] | None = None,
) -> tuple[Finished, ...]:
    """Run commands at once and return how they ended; a status is None if the time ran out.

    A child that sleeps in the kernel cannot be killed: it is left to its driver, and nothing here waits for it.

    Args:
        commands: The words and the environment of each.
        seconds: What each of them may take.
        waiting: Is called once, if an answer takes longer than ``NOTICE_AFTER``.
    """
    ended = [Finished(tuple(argv), None, "", "") for argv, _ in commands]
    shortages: list[Exception] = []

    def follow(
        number: int,
        argv: Sequence[str],
        environment: Mapping[str, str],
    ) -> None:
        try:
            ended[number] = run(
                argv,
                env=environment,
                seconds=seconds,
                group=True,
            )
        except (OSError, MemoryError, RuntimeError) as error:
            # No child was too late where we are short of memory, of threads or of processes.
            if getattr(error, "errno", errno.EAGAIN) in _SHORTAGES:
                shortages.append(error)
                return
            # 126 is what shells return for a program that cannot be run.
            ended[number] = Finished(
                tuple(argv),
                126,
                "",
                str(error),
            )

    threads = [
        # A thread of a pool would be waited for when we exit, and one of these may never end.
        Thread(target=follow, args=(number, *command), daemon=True)
        for number, command in enumerate(commands)
    ]
    start = monotonic()
    for thread in threads:
        thread.start()
    _join(threads, start + min(NOTICE_AFTER, seconds + _GRACE))
    is_long = seconds > NOTICE_AFTER and any(thread.is_alive() for thread in threads)
    if waiting and is_long:
        waiting()
    _join(threads, start + seconds + _GRACE)
    if shortages:
        raise shortages[0]
    return tuple(ended)


def _join(threads: Sequence[Thread], deadline: float) -> None:
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))


def fault_of(finished: Finished) -> str:
    """Return what a child's end without an answer shows of the driver: timeout, crash, or unasked if nothing."""
    status = finished.status
    if status is None:
        return "timeout"
    if status >= _WINDOWS_EXCEPTION or signal_name(-status) in _CRASHES:
        return "crash"
    return "unasked"


def is_out_of_time(finished: Finished) -> bool:
    """Whether a child was ended because its time was over: by us, or with status 1 by its own faulthandler."""
    ended_itself = finished.status == 1 and _TIMEOUT.search(finished.err) is not None
    return finished.status is None or ended_itself


def how_it_ended(finished: Finished, seconds: float) -> str:
    """Return in one line how a child ended that could take so many seconds."""
    status = finished.status
    if finished.excess:
        return finished.excess
    if status is None or is_out_of_time(finished):
        return f"not finished after {seconds:.0f} s"
    if status < 0:
        name = signal_name(-status)
        reason = _KILLED.get(name)
        return f"killed by {name}: {reason}" if reason else f"killed by {name}"
    if status >= _WINDOWS_EXCEPTION:
        return f"ended by Windows exception 0x{status:08X}"
    lines = finished.err.strip().splitlines() or ["no output"]
    # What the interpreter itself says of a fatal error stands above its stack.
    fatal = [line for line in lines if line.startswith("Fatal Python error")]
    return f"ended with status {status}: {(fatal or lines[-1:])[0]}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``."""
    for member in signal.Signals:
        if member == number:
            return member.name
    return f"signal {number}"


def output_of(*argv: str, seconds: float) -> str:
    """Return what a program writes; empty if it cannot be run."""
    try:
        return run(argv, seconds=seconds).out
    except OSError:
        return ""


def json_lines(finished: Finished, mark: str = "") -> list[dict[str, Any]]:
    """Return the JSON objects that a child of ours wrote, each in a line that begins with a mark.

    Others may have written the rest (a start-up file of the user's), and a child may have been ended within a line.
    """
    lines = [line for line in finished.out.splitlines() if line.startswith(mark)]
    answers = [json_or_none(line.removeprefix(mark)) for line in lines]
    return [answer for answer in answers if isinstance(answer, dict)]


def json_or_none(text: str) -> Any:
    """Return what JSON holds; None if it is malformed."""
    with suppress(ValueError):
        return parse_json(text)
    return None
