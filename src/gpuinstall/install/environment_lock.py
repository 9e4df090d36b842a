"""One run at a time on an environment: the next one waits, and says for whom."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import read_document, remove_file, unwritable, write_anew
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.install.swap import finish_swap

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from filelock import FileLock

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter

WAIT_S = 600.0
"""How long a run waits for another, which may be fetching some 3 GB: at 50 Mbit/s, eight minutes."""
_OWNER = "owner"
"""The file that names the run that works there."""

_KEPT = ("lock", ".gitignore")
"""What lies beside a previous environment while no run works; Git sees none of it while the first is there."""


@contextmanager
def environment_lock(
    paths: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
) -> Iterator[bool]:
    """Hold the environment for one run, and yield whether it had to wait for another.

    What a run that died has begun is finished or undone first, and what this one has begun if it ends early.

    Raises:
        InstallationError: another run holds it for more than ``wait`` seconds, or its folder cannot be written.
    """
    from filelock import FileLock

    guard = FileLock(paths.guard)
    made = [folder for folder in paths.work.parents if not folder.exists()]
    try:
        try:
            has_waited = _acquire(guard, paths, reporter, wait)
            # On a full disk those who wait read of "another run".
            with suppress(OSError):
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
                # What cannot be done now is left to the next run.
                with suppress(OSError, InstallationError):
                    finish_swap(paths, reporter)
                with suppress(OSError):
                    (paths.work / _OWNER).unlink(missing_ok=True)
                _tidy(paths, made)
                guard.release()
                if os.name == "nt":
                    # Windows does not remove a file that is open.
                    _tidy(paths, made)


def is_idle(paths: EnvironmentPaths) -> bool:
    """Whether no run works on the environment, and none died while doing so."""
    if not paths.work.exists():
        return True
    at_rest = {*_KEPT, paths.previous.name}
    return _entries(paths) == at_rest


def _acquire(
    guard: FileLock,
    paths: EnvironmentPaths,
    reporter: Reporter,
    wait: float,
) -> bool:
    """Lock the guard; return whether another run had it."""
    if _try(guard, paths, 0):
        return False
    reporter.wait(f"waiting up to {wait:.0f} s for {_owner(paths)}, which works on {paths.venv}")
    deadline = time.monotonic() + wait
    while not _try(guard, paths, max(0, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            raise InstallationError(
                "busy",
                f"{paths.venv} is still in use by {_owner(paths)}",
                hint="Wait for it to end; then run this command again",
            )
    return True


def _try(
    guard: FileLock,
    paths: EnvironmentPaths,
    seconds: float,
) -> bool:
    """Lock the guard; return False after ``seconds``, or if the run before takes the folder away just now."""
    from filelock import Timeout

    # A place that takes no folder is a fault, and no reason to wait.
    paths.work.mkdir(parents=True, exist_ok=True)
    with suppress(Timeout, FileNotFoundError):
        _open(paths)
        guard.acquire(timeout=seconds)
        # The run before may have taken the folder away between the two.
        _open(paths)
        return True
    return False


def _open(paths: EnvironmentPaths) -> None:
    """Make the folder and what git reads in it; only a regular file is ever opened to be locked."""
    paths.work.mkdir(parents=True, exist_ok=True)
    ignored = paths.work / ".gitignore"
    if not _is_regular(ignored):
        # The disk may be full, or another run has just written it.
        with suppress(OSError):
            write_anew(ignored, "*\n")
    if not _is_regular(paths.guard):
        remove_file(paths.guard)


def _is_regular(path: Path) -> bool:
    """Whether a regular file lies there that has no other name."""
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
    """Return which run holds the environment, as far as its own words can be believed."""
    with suppress(OSError, ValueError):
        text = read_document(paths.work / _OWNER, paths.work)
        if re.fullmatch(r"process \d+ since [\d:]+", text):
            return text
    return "another run"
