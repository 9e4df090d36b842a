"""Stop a run and its child processes on SIGINT, SIGTERM, and SIGHUP."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, suppress
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from subprocess import Popen
    from types import FrameType


Result = TypeVar("Result")


class TransferInterrupted(KeyboardInterrupt):
    """Interrupted download, with a report of the files kept in the cache."""

    def __init__(self, kept: str) -> None:
        super().__init__()
        self.kept = kept


class _RunState:
    """Signal state of the run in this process."""

    programs: set[Popen[str]] = set()  # noqa: RUF012  a process is one run
    interrupted = False
    unfinished = 0
    """The number of active ``defer_interrupts`` blocks."""


def install_handlers(handler: Callable[..., object] | None = None) -> None:
    """Install handlers of termination signals.

    Args:
        handler: The handler. None: interrupt the run with a KeyboardInterrupt.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        # nohup ignores SIGHUP.
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler or _interrupt)


def is_interrupted() -> bool:
    """Return whether a signal stopped this run, for waiting threads."""
    return _RunState.interrupted


def call_with_timeout(seconds: float, call: Callable[[], Result]) -> Result:
    """Call a function in a thread, with a time limit.

    Args:
        seconds: The limit.
        call: The function, which can block for hours on a slow server. After the
            limit, it continues, and its result is ignored.

    Raises:
        TimeoutError: The limit was exceeded, or this run was interrupted.
        Exception: The exception of ``call``.
    """
    from concurrent.futures import Future, InvalidStateError
    from threading import Thread

    future = Future[Result]()

    def capture() -> None:
        with suppress(InvalidStateError):  # the limit was exceeded
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001  raised again below
                future.set_exception(error)

    thread = Thread(target=capture, daemon=True)
    thread.start()
    deadline = monotonic() + seconds
    while thread.is_alive() and monotonic() < deadline and not is_interrupted():
        thread.join(0.1)
    if future.cancel():
        raise TimeoutError
    return future.result()


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Delay signals until the end of a short block."""
    _RunState.unfinished += 1
    try:
        yield
    finally:
        _RunState.unfinished -= 1
        _raise_if_interrupted()


@contextmanager
def kill_on_exit(program: Popen[str]) -> Iterator[None]:
    """Kill a program when a block ends, even by an exception or a signal."""
    _RunState.programs.add(program)
    try:
        if _RunState.interrupted:
            program.kill()
        yield
    finally:
        _RunState.programs.discard(program)
        program.kill()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Handle a termination signal by interrupting the run."""
    _RunState.interrupted = True
    # Threads that wait for a program return when the program exits.
    for program in tuple(_RunState.programs):
        program.kill()
    _raise_if_interrupted()


def _raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt, unless one is already propagating."""
    if (
        _RunState.interrupted
        and not _RunState.unfinished
        and not isinstance(sys.exc_info()[1], KeyboardInterrupt)
    ):
        raise KeyboardInterrupt
