"""An environment takes the place of another: one exchange, with a journal that the next run can finish or undo.

::

    build     work/staging-…                           a run that dies here leaves the old environment as it was
    journal   work/journal.json names the newcomer
    exchange  newcomer <-> venv                        one stroke, or venv -> work/aside, newcomer -> venv
    lock      the newcomer's lock goes into the folder
    settle    what was replaced becomes work/previous  then the journal goes
"""

from __future__ import annotations

import errno
import json
import shutil
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.environments.marker import read_marker
from gpuinstall.errors import InstallationError
from gpuinstall.files import unwritable, write_atomically
from gpuinstall.install.exchange import exchange
from gpuinstall.interruption import defer_interrupts

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.environments.paths import EnvironmentPaths

_FIXED = {errno.EXDEV, errno.EBUSY}


class _Journal(NamedTuple):
    """An exchange that has begun: the newcomer's id and the name of its folder."""

    id: str | None
    newcomer: str
    keep: bool


@defer_interrupts()
def swap_in(place: EnvironmentPaths, newcomer: Path, *, keep: bool = True) -> None:
    """Put ``newcomer`` (staging or previous) in the environment's place; raise InstallationError if it may not be."""
    marker = read_marker(newcomer)
    journal = _Journal(marker.id if marker else None, newcomer.name, keep)
    write_atomically(place.journal, json.dumps(journal._asdict()))
    try:
        _put(place, newcomer)
    except OSError as error:
        repair(place)
        raise _refused(place, error) from None
    try:
        _finish(place, newcomer, keep=keep)
    except OSError as error:
        raise unwritable(place.previous, error) from None


def repair(place: EnvironmentPaths) -> None:
    """Finish or undo what a run that died has begun, and clear away what it was building."""
    journal, marker = _read_journal(place), read_marker(place.venv)
    if journal and marker and marker.id == journal.id:
        _finish(place, place.work / journal.newcomer, keep=journal.keep)
    if place.aside.exists() and not place.venv.exists():
        place.aside.rename(place.venv)
    place.journal.unlink(missing_ok=True)
    for part in (place.private_lock, *place.work.glob(".*.*")):
        part.unlink(missing_ok=True)
    for folder in place.stagings:
        discard(folder)


def discard(folder: Path) -> None:
    """Remove a folder tree that may not be there."""
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def size_of(folder: Path) -> int:
    """The bytes of a folder tree."""
    files = (entry for entry in folder.rglob("*") if entry.is_file() and not entry.is_symlink())
    return sum(entry.stat().st_size for entry in files)


def _read_journal(place: EnvironmentPaths) -> _Journal | None:
    with suppress(OSError, ValueError, TypeError):
        return _Journal(**json.loads(place.journal.read_text(encoding="utf-8")))
    return None


def _put(place: EnvironmentPaths, newcomer: Path) -> None:
    if not place.venv.exists():
        newcomer.rename(place.venv)
    elif not exchange(newcomer, place.venv):
        place.venv.rename(place.aside)
        newcomer.rename(place.venv)


def _finish(place: EnvironmentPaths, newcomer: Path, *, keep: bool) -> None:
    publish_lock(place)
    replaced = place.aside if place.aside.exists() else newcomer
    if replaced.exists() and replaced != place.previous:
        discard(place.previous)
        replaced.rename(place.previous)
    if not keep:
        discard(place.previous)
    place.journal.unlink(missing_ok=True)


def publish_lock(place: EnvironmentPaths) -> None:
    """Bring the lock in the folder to what the environment holds."""
    marker = read_marker(place.venv)
    if marker is None:
        return
    text = (place.venv / marker.lock).read_text(encoding="utf-8")
    beside = place.folder / marker.lock
    if not beside.is_file() or beside.read_text(encoding="utf-8") != text:
        write_atomically(beside, text, place.work if place.work.exists() else None)


def _refused(place: EnvironmentPaths, error: OSError) -> InstallationError:
    if error.errno in _FIXED:
        return InstallationError(
            "not-replaceable",
            f"{place.venv} cannot be replaced: it is a mount point, or lies in a lower layer of an image",
            hint="put the environment elsewhere: gpuinstall install --venv DIR",
        )
    return unwritable(place.venv, error)
