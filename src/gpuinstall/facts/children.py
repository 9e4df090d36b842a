"""Our own children: what touches a driver runs in a process of its own, where a hang or a crash is an answer."""

from __future__ import annotations

import re
import signal
from functools import partial
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.source import Source, json_or_none
from gpuinstall.process import Finished, run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Command = tuple[Sequence[str], Mapping[str, str]]

NOTICE_AFTER = 3.0
"""Seconds without an answer after which a person is told what is waited for: a healthy driver answers in one."""
_GRACE = 1.0  # for a child that is killed to be collected: one that sleeps in the kernel never is
NOT_STARTED = 126  # what shells return for a program that cannot be run


def time_limit(gpus: int) -> float:
    """Seconds that a driver may take: 10 for each GPU, which starts anew without persistence; 25 s were seen for 8."""
    return max(5.0, 10.0 * gpus)


def run_children(
    commands: Sequence[Command],
    seconds: float,
    waiting: Callable[[], None],
    each_line: Callable[[int, str], None] | None = None,
) -> tuple[Finished, ...]:
    """Run each (argv, environment) at once, calling ``waiting`` after 3 s; a status is None where the time ran out.

    ``each_line`` hears each line that one of them, by its position, writes to stdout.
    A child that sleeps in the kernel cannot be killed: it is left to its driver, and nothing here waits for it.
    """
    done = [Finished(tuple(argv), None, "", "") for argv, _ in commands]
    shortages: list[Exception] = []

    def follow(number: int, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        try:
            heard = partial(each_line, number) if each_line else None
            done[number] = run(argv, env=environment, seconds=seconds, each_line=heard, group=True)
        except OSError as error:
            done[number] = Finished(tuple(argv), NOT_STARTED, "", str(error))
        except (
            MemoryError,
            RuntimeError,
        ) as error:  # no child was too late: we are short of memory or of threads
            shortages.append(error)

    def join(deadline: float) -> None:
        for thread in threads:
            thread.join(max(0.0, deadline - monotonic()))

    threads = [
        Thread(target=follow, args=(number, *command), daemon=True)
        for number, command in enumerate(commands)
    ]
    start = monotonic()
    for thread in threads:
        thread.start()
    join(start + min(NOTICE_AFTER, seconds + _GRACE))
    if seconds > NOTICE_AFTER and any(thread.is_alive() for thread in threads):
        waiting()
    join(start + seconds + _GRACE)
    for shortage in shortages:
        raise shortage
    return tuple(done)


def ask_children(source: Source, who: str, gpus: int, *commands: Command) -> tuple[Finished, ...]:
    """Run children of somebody who has time for so many GPUs, and say so after the first three seconds."""
    limit = time_limit(gpus)
    return run_children(
        commands, limit, lambda: source.wait(f"waiting for {who}, up to {limit:.0f} s")
    )


def ask_child(source: Source, name: str, who: str, gpus: int, command: Command) -> Finished | None:
    """Run a child, or read what it answered on a recorded machine; None where nobody asked there."""
    return parse_child(
        source.answer(name, lambda: written_child(*ask_children(source, who, gpus, command)))
    )


def written_child(finished: Finished) -> str:
    """Write how a child ended, and what it had said by then."""
    return f"status {finished.status}\n{finished.out}"


def parse_child(text: str) -> Finished | None:
    """Read that back."""
    match = re.match(r"status (None|-?[0-9]{1,5})\n", text)
    status = None if match is None or match[1] == "None" else int(match[1])
    return Finished((), status, text[match.end() :], "") if match else None


def last_answer(finished: Finished) -> dict[str, Any] | None:
    """The last JSON object among the lines of a child; None where there is none."""
    answers = map(json_or_none, reversed(finished.out.splitlines()))
    return next((answer for answer in answers if isinstance(answer, dict)), None)


def death(finished: Finished) -> str:
    """Say how a child ended that gave no answer."""
    if finished.status is None:
        return "did not answer in time"
    if finished.status >= 0:
        return f"ended with status {finished.status} and no answer"
    names = {int(member): member.name for member in signal.Signals}
    return f"was ended by {names.get(-finished.status, f'signal {-finished.status}')}"
