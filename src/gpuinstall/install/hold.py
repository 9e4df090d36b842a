"""One run at a time works on an environment and the locks beside it: the others wait.

The next one first of all finishes or puts back what a killed one began.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import exists, isfile

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_document, write_atomically, writing
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import remove_file
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.rights import check_owner
from gpuinstall.install.transaction import clear_away, heal, roll_back

WAIT_S = 600.0
"""How long a run waits for another, which may be fetching some 3 GB: at 50 Mbit/s, eight minutes."""
_OWNER = "owner"
"""The file that names the run that works there."""


def needs_tidying(place: EnvironmentPaths) -> bool:
    """Whether a run that works there, or was killed, has left a change or, where this user can write, preparations."""
    has_owner = os.path.lexists(place.work / _OWNER)
    return place.is_unfinished or (has_owner and os.access(place.work, os.W_OK))


@contextmanager
def hold(
    place: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
    *,
    takes_over: bool = False,
) -> Iterator[tuple[bool, bool]]:
    """Hold an environment for one run; what a run that died has begun is finished or put back first.

    Args:
        place: The environment; nothing has to lie there.
        reporter: Is told for whom this run waits, and what became of a change that was killed.
        wait: The seconds to wait for another run.
        takes_over: Whether a change is put back that was begun on another host.

    Yields:
        Whether another run had it until now, and whether a change was healed: it may be another than was looked at.

    Raises:
        InstallationError: another run holds it for more than ``wait`` seconds, or its folder cannot be written.
        UsageError: a change was begun by another user, or on another host, unless this run takes over.
    """
    owner = place.work / _OWNER
    with only_run(place, reporter, wait) as has_waited:
        try:
            # On a full disk those who wait read of "another run".
            with suppress(InstallationError):
                write_atomically(owner, f"process {os.getpid()}", is_cached=True)
            was_unfinished = place.is_unfinished
            heal(place, reporter, takes_over=takes_over)
            clear_away(place)
            yield has_waited, was_unfinished
        finally:
            with defer_interrupts():
                clear_away(place)
                remove_file(owner)


def take_back(place: EnvironmentPaths, reporter: Reporter, *, takes_over: bool) -> None:
    """Take back the change of a run that was killed, or else the last one; once more goes forward again.

    Args:
        place: The environment.
        reporter: Is told for whom to wait, and what stays.
        takes_over: Whether a change is put back that was begun on another host.

    Raises:
        UsageError: there is none by this user.
        InstallationError: Another user owns the environment.
    """
    check_owner(place)
    with hold(place, reporter, takes_over=takes_over) as (_, was_unfinished):
        if not was_unfinished:
            roll_back(place, reporter)


@contextmanager
def only_run(
    place: EnvironmentPaths, reporter: Reporter, wait: float = WAIT_S
) -> Iterator[bool]:
    """Be the only run that works on an environment and the locks beside it; yield whether another one did until now.

    Args:
        place: The environment; nothing has to lie there.
        reporter: Is told for whom this run waits.
        wait: The seconds to wait for another run.

    Raises:
        InstallationError: another run works there for more than ``wait`` seconds, or its folder cannot be written.
    """
    ignored = place.work / ".gitignore"
    made = [folder for folder in place.work.parents if not exists(folder)]
    try:
        with _file_lock(place, reporter, wait) as has_waited:
            try:
                with suppress(InstallationError):
                    # The star covers this file, too: git shows nothing of the folder.
                    write_atomically(ignored, "*\n", is_cached=True)
                yield has_waited
            finally:
                with defer_interrupts():
                    is_kept = os.path.lexists(place.last_change)
                    if not (is_kept or place.is_unfinished):
                        remove_file(ignored)
    finally:
        # Only journals and environments stay.
        with suppress(OSError):
            for folder in (place.work, *made):
                folder.rmdir()


@contextmanager
def only_run_that_locks(place: EnvironmentPaths, reporter: Reporter) -> Iterator[None]:
    """Be the only run that makes the locks beside an environment; where nothing can be written, locks are read alone."""
    if not os.access(place.venv.parent, os.W_OK):
        yield
        return
    with only_run(place, reporter):
        yield


@contextmanager
def _file_lock(
    place: EnvironmentPaths, reporter: Reporter, wait: float
) -> Iterator[bool]:
    """Hold the lock file of an environment for one run, and yield whether another run had it; the file goes with the run.

    Args:
        place: The environment.
        reporter: Is told what is waited for.
        wait: The most seconds to wait.

    Raises:
        InstallationError: another run holds it for more than ``wait`` seconds, or it cannot be written.
    """
    from filelock import FileLock, Timeout

    venv = place.venv
    file = place.work / "lock"
    lock = FileLock(file)
    deadline = time.monotonic() + wait
    has_waited = False
    with writing(file.parent):
        while True:
            # A place that takes no folder is a fault, and no reason to wait.
            file.parent.mkdir(parents=True, exist_ok=True)
            # Another run may take the folder away just now.
            with suppress(Timeout, FileNotFoundError):
                # filelock before 4.2 empties what it locks: a file with another name is left to that.
                if isfile(file) and file.lstat().st_nlink > 1:
                    remove_file(file)
                lock.acquire(timeout=0)
                if os.path.lexists(file):
                    break
                # The run before has taken the file away between the two.
                lock.release()
            if time.monotonic() >= deadline:
                raise InstallationError(
                    "busy",
                    f"{venv} is still in use by {_owner(place)}",
                    hint="Wait for it to end; then run this command again",
                )
            if not has_waited:
                reporter.wait(
                    f"waiting up to {wait:.0f} s for {_owner(place)}, which works on {venv}"
                )
            has_waited = True
            time.sleep(0.05)
    try:
        yield has_waited
    finally:
        with defer_interrupts():
            if os.name == "nt":
                # Windows does not remove a file that is open.
                lock.release()
            try:
                remove_file(file)
            finally:
                lock.release()


def _owner(place: EnvironmentPaths) -> str:
    """Return which run holds an environment, as far as its own words can be believed."""
    with suppress(OSError, ValueError):
        text = read_document(place.work / _OWNER, place.work)
        if re.fullmatch(r"process \d+", text):
            return text
    return "another run"
