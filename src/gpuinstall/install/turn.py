"""One run at a time on an environment: the next one waits, and says for whom."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpuinstall.errors import InstallationError
from gpuinstall.files import unwritable
from gpuinstall.install.swap import repair
from gpuinstall.interruption import defer_interrupts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from filelock import FileLock

    from gpuinstall.environments.paths import EnvironmentPaths
    from gpuinstall.reporter import Reporter

WAIT_S = 600.0

_KEPT = {".gitignore", "lock"}
"""What lies beside a previous environment while nobody works."""


@contextmanager
def turn(place: EnvironmentPaths, wait: float, reporter: Reporter) -> Iterator[None]:
    """VersionPins the environment for one run; raise InstallationError after ``wait`` seconds of waiting for another.

    What a run that died has begun is finished or undone first, and what this one has begun if it ends early.
    """
    from filelock import FileLock

    guard = FileLock(place.guard)
    made = [folder for folder in place.work.parents if not folder.exists()]
    try:
        _begin(guard, place, made, wait, reporter)
        yield
    finally:
        if guard.is_locked:
            with defer_interrupts():
                _end(place, made)
                guard.release()


def at_rest(place: EnvironmentPaths) -> bool:
    """Say whether nobody works on the environment, and nobody died while doing so."""
    return not place.work.exists() or {entry.name for entry in place.work.iterdir()} == _KEPT | {place.previous.name}


def _begin(guard: FileLock, place: EnvironmentPaths, made: list[Path], wait: float, reporter: Reporter) -> None:
    try:
        _acquire(guard, place, wait, reporter)
        _owner_file(place).write_text(f"process {os.getpid()} since {time.strftime('%H:%M:%S')}", encoding="utf-8")
        repair(place)
    except OSError as error:
        _tidy(place, made)
        raise unwritable(place.work, error) from None


def _end(place: EnvironmentPaths, made: list[Path]) -> None:
    """Leave the environment whole; what cannot be done now is left to the next run."""
    with suppress(OSError, InstallationError):
        repair(place)
    with suppress(OSError):
        _owner_file(place).unlink(missing_ok=True)
    _tidy(place, made)


def _acquire(guard: FileLock, place: EnvironmentPaths, wait: float, reporter: Reporter) -> None:
    if _try(guard, place, 0):
        return
    reporter.wait(f"waiting up to {wait:.0f} s for {_owner(place)}, which works on {place.venv}")
    deadline = time.monotonic() + wait
    while not _try(guard, place, max(0, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            raise InstallationError(
                "busy",
                f"{place.venv} is still being worked on by {_owner(place)}",
                hint="wait for it to end, or give --wait more seconds",
            )


def _try(guard: FileLock, place: EnvironmentPaths, seconds: float) -> bool:
    """Lock the guard; False after ``seconds``, or where the run before takes the folder away just now."""
    from filelock import Timeout

    place.work.mkdir(parents=True, exist_ok=True)
    with suppress(Timeout, FileNotFoundError):
        _open(place)
        guard.acquire(timeout=seconds)
        _open(place)
        return True
    return False


def _open(place: EnvironmentPaths) -> None:
    place.work.mkdir(parents=True, exist_ok=True)
    (place.work / ".gitignore").write_text("*\n", encoding="utf-8")


def _tidy(place: EnvironmentPaths, made: list[Path]) -> None:
    """Leave nothing behind but a previous environment, nor folders that were made; the guard goes while it is held."""
    with suppress(OSError):
        if not {entry.name for entry in place.work.iterdir()} - _KEPT:
            for name in _KEPT:
                (place.work / name).unlink(missing_ok=True)
            place.work.rmdir()
        for folder in made:
            folder.rmdir()


def _owner(place: EnvironmentPaths) -> str:
    with suppress(OSError):
        return _owner_file(place).read_text(encoding="utf-8")
    return "another run"


def _owner_file(place: EnvironmentPaths) -> Path:
    return place.work / "owner"
