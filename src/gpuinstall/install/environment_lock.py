"""One run at a time on an environment: the next one waits, and says for whom."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.files import read_document, remove_file, unwritable, write_anew
from gpuinstall.install.swap import finish_swap
from gpuinstall.interruption import defer_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from filelock import FileLock

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter

WAIT_S = 600.0
"""The other run may be fetching some 3 GB, which at 50 Mbit/s takes eight minutes."""

_OWNER = "owner"
"""Which run it is that works there."""

_KEPT = ("lock", ".gitignore")
"""What lies beside a previous environment while nobody works; Git sees none of it while the first is there."""


@contextmanager
def environment_lock(paths: EnvironmentPaths, wait: float, reporter: Reporter) -> Iterator[bool]:
    """Hold the environment for one run, and yield whether it had to wait for another.

    Raise InstallationError after ``wait`` seconds of that.
    What a run that died has begun is finished or undone first, and what this one has begun if it ends early.
    """
    from filelock import FileLock

    guard = FileLock(paths.guard)
    made = [folder for folder in paths.work.parents if not folder.exists()]
    try:
        try:
            has_waited = _acquire(guard, paths, wait, reporter)
            with suppress(OSError):  # on a full disk: who waits reads of "another run" then
                owner = f"process {os.getpid()} since {time.strftime('%H:%M:%S')}"
                write_anew(paths.work / _OWNER, owner)
            finish_swap(paths, reporter)
        except OSError as error:
            _tidy(paths, made)
            raise unwritable(paths.work, error) from None
        yield has_waited
    finally:
        if guard.is_locked:
            with defer_interrupts():
                with suppress(
                    OSError, InstallationError
                ):  # what cannot be done now is left to the next run
                    finish_swap(paths, reporter)
                with suppress(OSError):
                    (paths.work / _OWNER).unlink(missing_ok=True)
                _tidy(paths, made)
                guard.release()
                if os.name == "nt":  # which does not remove a file that is open
                    _tidy(paths, made)


def is_idle(paths: EnvironmentPaths) -> bool:
    """Say whether nobody works on the environment, and nobody died while doing so."""
    return not paths.work.exists() or _entries(paths) - {paths.spare.name} == {
        *_KEPT,
        paths.previous.name,
    }


def _acquire(guard: FileLock, paths: EnvironmentPaths, wait: float, reporter: Reporter) -> bool:
    """Lock the guard; return whether another run had it."""
    if _try(guard, paths, 0):
        return False
    reporter.wait(f"waiting up to {wait:.0f} s for {_owner(paths)}, which works on {paths.venv}")
    deadline = time.monotonic() + wait
    while not _try(guard, paths, max(0, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            message = f"{paths.venv} is still in use by {_owner(paths)}"
            raise InstallationError(
                "busy", message, hint="the same with --wait 1800   # or wait for it to end"
            )
    return True


def _try(guard: FileLock, paths: EnvironmentPaths, seconds: float) -> bool:
    """Lock the guard; False after ``seconds``, or where the run before takes the folder away just now."""
    from filelock import Timeout

    paths.work.mkdir(parents=True, exist_ok=True)
    with suppress(Timeout, FileNotFoundError):
        _open(paths)
        guard.acquire(timeout=seconds)
        _open(paths)
        return True
    return False


def _open(paths: EnvironmentPaths) -> None:
    """Make the folder and what git reads in it; only a regular file is ever opened to be locked."""
    paths.work.mkdir(parents=True, exist_ok=True)
    ignored = paths.work / ".gitignore"
    if not _is_ours(ignored):
        with suppress(OSError):  # the disk is full, or another run has just written it
            write_anew(ignored, "*\n")
    if not _is_ours(paths.guard):
        remove_file(paths.guard)


def _is_ours(path: Path) -> bool:
    """Say whether a regular file lies there that has no other name."""
    with suppress(OSError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return False


def _tidy(paths: EnvironmentPaths, made: list[Path]) -> None:
    """Leave nothing behind but a previous environment, nor folders that were made; the guard goes while it is held."""
    with suppress(OSError):
        if _entries(paths) <= {*_KEPT}:
            for name in _KEPT:
                (paths.work / name).unlink(missing_ok=True)
            paths.work.rmdir()
        for folder in made:
            folder.rmdir()


def _entries(paths: EnvironmentPaths) -> set[str]:
    return {entry.name for entry in paths.work.iterdir()}


def _owner(paths: EnvironmentPaths) -> str:
    with suppress(OSError, ValueError):
        owner = re.fullmatch(
            r"process \d+ since [\d:]+", read_document(paths.work / _OWNER, paths.work)
        )
        return owner[0] if owner else "another run"
    return "another run"
