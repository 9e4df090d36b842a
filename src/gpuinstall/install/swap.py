"""An environment takes the place of another: one exchange, with a journal that the next run can finish or undo.

::

    build     work/staging-…                           a run that dies here leaves the old environment as it was
    journal   work/journal.json names the newcomer
    exchange  newcomer <-> venv                        one stroke, or venv -> work/aside, newcomer -> venv
    lock      the newcomer's lock goes into the folder
    settle    what was replaced becomes work/previous  and that one the next change's beginning; the journal goes
"""

from __future__ import annotations

import errno
import json
import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.files import (
    exchange,
    holds_text,
    is_folder,
    read_document,
    read_json,
    remove_file,
    remove_path,
    unwritable,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.text import some
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.ownership import left_paths
from gpuinstall.environments.records import remember_replaced
from gpuinstall.install.disposal import discard, dispose, finish_disposals

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter

_FIXED = {errno.EXDEV, errno.EBUSY}
"""The errors of a folder that cannot be renamed whatever its permissions."""
_NEWCOMER = re.compile(r"previous|staging-[0-9a-f]+")
_PART = re.compile(r"\..{1,40}\.[0-9a-f]{8}")
"""A file of ours that was being written."""


class _Journal(NamedTuple):
    """An exchange that has begun."""

    id: str | None
    """The id of the newcomer's marker."""
    newcomer: str
    """The name of its folder."""


@defer_interrupts()
def swap_in(
    paths: EnvironmentPaths,
    newcomer: Path,
    reporter: Reporter,
) -> None:
    """Put ``newcomer`` (staging or previous) in the environment's place.

    Raises:
        InstallationError: it may not be put there; the environment is as it was.
    """
    marker = read_marker(newcomer)
    journal = _Journal(marker.id if marker else None, newcomer.name)
    # From here on the next run knows what to look for; killed before, it finds only a staging folder to remove.
    write_atomically(paths.journal, json.dumps(journal._asdict()))
    remember_replaced(paths.venv)
    try:
        if not paths.venv.exists():
            newcomer.rename(paths.venv)
        elif not exchange(newcomer, paths.venv):
            # Killed between the two, nothing lies at venv, and the next run brings back what is aside.
            paths.venv.rename(paths.aside)
            newcomer.rename(paths.venv)
    except OSError as error:
        finish_swap(paths, reporter)
        if error.errno not in _FIXED:
            raise unwritable(paths.venv, error) from None
        raise InstallationError(
            "not-replaceable",
            f"{paths.venv} cannot be replaced: it is a mount point, or in a lower layer of an image",
            hint="gpuinstall install --venv DIR   # another folder",
        ) from None
    try:
        _finish(paths, newcomer, reporter)
    except OSError as error:
        raise unwritable(paths.previous, error) from None


def finish_swap(paths: EnvironmentPaths, reporter: Reporter) -> None:
    """Finish or undo what a run that died has begun, and clear away what it was building."""
    journal = _read_journal(paths)
    if journal and _is_exchanged(paths, journal):
        _finish(paths, paths.work / journal.newcomer, reporter)
    if is_folder(paths.aside) and not os.path.lexists(paths.venv):
        paths.aside.rename(paths.venv)
    # After an exchange the old environment may lie where the new one was built; now it is the previous one.
    parts = [path for path in paths.work.iterdir() if _PART.fullmatch(path.name)]
    for file in (paths.journal, paths.private_lock, paths.build_settings, *parts):
        remove_file(file)
    for staging in paths.stagings:
        remove_path(staging)
    finish_disposals(paths, reporter)


def _read_journal(paths: EnvironmentPaths) -> _Journal | None:
    """Return the journal; None if it is not one that we would have written."""
    with suppress(OSError, ValueError, TypeError):
        journal = _Journal(**read_json(paths.journal, paths.work))
        if _NEWCOMER.fullmatch(journal.newcomer):
            return journal
    return None


def _is_exchanged(paths: EnvironmentPaths, journal: _Journal) -> bool:
    """Whether the newcomer has taken the environment's place, even if it was removed from there since."""
    marker = read_marker(paths.venv)
    if marker and marker.id == journal.id:
        return True
    replaced = paths.work / journal.newcomer
    marker = read_marker(replaced)
    return is_folder(replaced) and (marker.id if marker else None) != journal.id


def _finish(
    paths: EnvironmentPaths,
    newcomer: Path,
    reporter: Reporter,
) -> None:
    """Settle an exchange that has happened; every step may be taken again after a kill, and the journal goes last."""
    publish_lock(paths)
    replaced = paths.aside if is_folder(paths.aside) else newcomer
    if is_folder(replaced) and replaced != paths.previous:
        if _is_copy(replaced, paths.previous):
            discard(paths.previous)
        else:
            dispose(paths.previous, paths, reporter)
        replaced.rename(paths.previous)
    if paths.has_previous and not _is_copy(paths.venv, paths.previous):
        users = left_paths(paths.previous, paths.venv)
        if users:
            text = f"{some(users)}, which no installer wrote, with the replaced environment: in {paths.previous}"
            reporter.notice("Moved", text)
    paths.journal.unlink(missing_ok=True)


def _is_copy(venv: Path, original: Path) -> bool:
    """Whether an environment was made as a copy of another, with all that was the user's in it."""
    copy, source = read_marker(venv), read_marker(original)
    return copy is not None and source is not None and copy.copied_from == source.id


def publish_lock(paths: EnvironmentPaths) -> None:
    """Bring the lock in the folder to what the environment holds."""
    marker = read_marker(paths.venv)
    if marker is None:
        return
    lock = paths.folder / marker.lock
    text = read_document(paths.venv / marker.lock, paths.venv)
    if not holds_text(lock, text):
        write_atomically(lock, text, paths.work if paths.work.exists() else None)


def size_of(folder: Path) -> int:
    """Return the bytes of a folder tree."""
    size = 0
    folders = [str(folder)]
    # As text and by entries: a Path for each of 16,000 files, and three questions of it, takes a third of a second.
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    size += entry.stat(follow_symlinks=False).st_size
    return size
