"""One run at a time changes an environment; the others wait, and first of all finish or put back what a killed one began."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.install.one_run import OWNER, WAIT_S, only_run
from gpuinstall.install.transaction import clear_away, heal, roll_back

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter


def needs_tidying(place: EnvironmentPaths) -> bool:
    """Whether a run that works there, or was killed, has left a change or, where this user can write, preparations."""
    has_owner = os.path.lexists(place.work / OWNER)
    return place.is_unfinished or (has_owner and os.access(place.work, os.W_OK))


@contextmanager
def hold(
    place: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
    *,
    takes_over: bool = False,
) -> Iterator[bool]:
    """Hold an environment for one run; what a run that died has begun is finished or put back first.

    Args:
        place: The environment; nothing has to lie there.
        reporter: Is told for whom this run waits, and what became of a change that was killed.
        wait: The seconds to wait for another run.
        takes_over: Whether a change is put back that was begun on another host.

    Yields:
        Whether the environment may have changed since it was looked at: another run had it, or something was healed.

    Raises:
        InstallationError: another run holds it for more than ``wait`` seconds, or its folder cannot be written.
        UsageError: a change was begun by another user, or on another host, unless this run takes over.
    """
    with only_run(place, reporter, wait) as has_waited:
        try:
            was_unfinished = place.is_unfinished
            heal(place, reporter, takes_over=takes_over)
            clear_away(place)
            yield has_waited or was_unfinished
        finally:
            with defer_interrupts():
                clear_away(place)


def take_back(place: EnvironmentPaths, reporter: Reporter, *, takes_over: bool) -> None:
    """Take back the change of a run that was killed, or else the last one; once more goes forward again.

    Args:
        place: The environment.
        reporter: Is told for whom to wait, and what stays.
        takes_over: Whether a change is put back that was begun on another host.

    Raises:
        UsageError: there is none by this user.
    """
    was_unfinished = place.is_unfinished
    with hold(place, reporter, takes_over=takes_over):
        if not was_unfinished:
            roll_back(place, reporter)
