"""Our own children: what touches a driver runs in a process of its own, where a hang or a crash is an answer."""

from __future__ import annotations

import re
import signal
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.base.process import Finished, run
from gpuinstall.machine.source import Source, json_or_none

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Command = tuple[Sequence[str], Mapping[str, str]]

DRIVER_SECONDS = 60.0
"""What a driver may take: eight cards that start anew without persistence were seen to take 25 s."""
NOTICE_AFTER = 3.0
"""Seconds without an answer after which a person is told what is waited for: a healthy driver answers in one."""
_GRACE = 1.0  # for a child that is killed to be collected: one that sleeps in the kernel never is


def run_children(
    commands: Sequence[Command],
    seconds: float,
    waiting: Callable[[], None] | None = None,
) -> tuple[Finished, ...]:
    """Run commands at once and return how they ended; a status is None if the time ran out.

    A child that sleeps in the kernel cannot be killed: it is left to its driver, and nothing here waits for it.

    Args:
        commands: the words and the environment of each.
        waiting: is called once, after 3 s.
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
    for shortage in shortages:
        raise shortage
    return tuple(ended)


def _join(threads: Sequence[Thread], deadline: float) -> None:
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))


def ask_child(
    source: Source,
    name: str,
    who: str,
    command: Command,
) -> Finished | None:
    """Run a child, or read what it answered on a recorded machine; None if it was not run there."""

    def ask() -> str:
        message = f"waiting for {who}, up to {DRIVER_SECONDS:.0f} s"
        (finished,) = run_children(
            [command],
            DRIVER_SECONDS,
            waiting=lambda: source.reporter.wait(message),
        )
        return f"status {finished.status}\n{finished.out}"

    return parse_child(source.answer(name, ask))


def parse_child(text: str) -> Finished | None:
    """Return how a recorded child ended, and what it had written by then."""
    match = re.match(r"status (None|-?[0-9]{1,5})\n", text)
    if match is None:
        return None
    status = None if match[1] == "None" else int(match[1])
    return Finished(
        (),
        status,
        text[match.end() :],
        "",
    )


def last_answer(finished: Finished) -> dict[str, Any] | None:
    """Return the last JSON object among the lines of a child; None if there is none."""
    for line in reversed(finished.out.splitlines()):
        answer = json_or_none(line)
        if isinstance(answer, dict):
            return answer
    return None


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
