"""Our own children: what touches a driver runs in a process of its own, where a hang or a crash is an answer."""

from __future__ import annotations

import errno
import signal
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING

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
        except OSError as error:
            if error.errno in _SHORTAGES:
                shortages.append(error)
                return
            # 126 is what shells return for a program that cannot be run.
            ended[number] = Finished(
                tuple(argv),
                126,
                "",
                str(error),
            )
        except (MemoryError, RuntimeError) as error:
            # No child was too late: we are short of memory or of threads.
            shortages.append(error)

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


def death(finished: Finished) -> str:
    """Return how a child ended that gave no answer."""
    status = finished.status
    if status is None:
        return "did not answer in time"
    if status >= 0:
        return f"ended with status {status} and no answer"
    return f"was ended by {signal_name(-status)}"


def signal_name(number: int) -> str:
    """Return the name of a signal, such as ``SIGKILL``."""
    for member in signal.Signals:
        if member == number:
            return member.name
    return f"signal {number}"
