"""SIGINT, SIGTERM and SIGHUP end a run alike: first the programs that it has started, then, in order, itself."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import Popen
    from types import FrameType


Result = TypeVar("Result")


class TransferInterrupted(KeyboardInterrupt):
    """An interrupt while files came; ``kept`` says which of them need not come again."""

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.kept = kept


class _Run:
    """What there is to end, whether it is to, and how many blocks want to be finished first."""

    programs: set[Popen[str]] = set()  # noqa: RUF012  a process is one run
    interrupted = False
    unfinished = 0


def install_handlers() -> None:
    """Raise KeyboardInterrupt on the signals by which people, shells and schedulers end a program."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if (
            number and signal.getsignal(number) is not signal.SIG_IGN
        ):  # nohup ignores SIGHUP for us
            signal.signal(number, _interrupt)


def interrupted() -> bool:
    """Whether this run is to end, for threads that wait for something else than a program."""
    return _Run.interrupted


def within(seconds: float, call: Callable[[], Result]) -> Result:
    """Make a call in a thread of its own: what may hold its thread for hours, such as a server that dribbles.

    Args:
        seconds: How long it is waited for.
        call: Goes on by itself after that time, until this process ends.

    Raises:
        TimeoutError: The time is over, or this run is to end.
        Exception: What the call raises.
    """
    from threading import Thread

    outcome: list[Result | Exception] = []

    def made() -> None:
        try:
            outcome.append(call())
        except Exception as error:  # noqa: BLE001  raised again by the thread that waits
            outcome.append(error)

    thread = Thread(target=made, daemon=True)
    thread.start()
    deadline = monotonic() + seconds
    while thread.is_alive() and monotonic() < deadline and not interrupted():
        # Not until the end: an interrupt is to be seen.
        thread.join(0.1)
    if not outcome:
        raise TimeoutError
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0]


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Finish a short block first; an interrupt that came meanwhile counts at its end."""
    _Run.unfinished += 1
    try:
        yield
    finally:
        _Run.unfinished -= 1
        _end_if_interrupted()


@contextmanager
def ending_with_us(program: Popen[str]) -> Iterator[None]:
    """Kill a program if its caller leaves early, by whatever exception."""
    _Run.programs.add(program)
    try:
        if _Run.interrupted:
            program.kill()
        yield
    finally:
        _Run.programs.discard(program)
        program.kill()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Kill at once what other threads wait for; they could not be told otherwise."""
    _Run.interrupted = True
    for program in tuple(_Run.programs):
        program.kill()
    _end_if_interrupted()


def _end_if_interrupted() -> None:
    """Raise KeyboardInterrupt, unless one is on its way: it may say what was kept."""
    if (
        _Run.interrupted
        and not _Run.unfinished
        and not isinstance(sys.exc_info()[1], KeyboardInterrupt)
    ):
        raise KeyboardInterrupt
