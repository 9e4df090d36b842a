"""An environment takes the place of another: one exchange, which the next run can finish or undo.

::

    build      work/staging-…                  a run that dies here leaves the old environment as it was
    named      work/staging-…=<id>             proven; whether it still holds the environment of that id tells the rest
    exchange   staging-…=<id> <-> venv         one stroke, or venv -> work/aside, staging-…=<id> -> venv
    lock       the newcomer's lock goes into the folder
    settle     what was replaced becomes work/previous, and the previous one before goes
    discarded  work/.discarded-…               an environment of ours that nothing of the user's is in
    kept       venv.kept/<date>/               one that has files of the user's: nothing of ours removes it
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    exchange,
    holds_text,
    read_document,
    unwritable,
    write_anew,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import is_folder, remove_file, remove_path
from gpuinstall.base.text import some
from gpuinstall.environments.environment import read_marker
from gpuinstall.environments.kept_files import remove_environment
from gpuinstall.environments.ownership import user_paths
from gpuinstall.environments.records import remember_replaced, was_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from filelock import FileLock

    from gpuinstall.base.environment_paths import EnvironmentPaths
    from gpuinstall.base.reporter import Reporter

_FIXED = {errno.EXDEV, errno.EBUSY}
"""The errors of a folder that cannot be renamed whatever its permissions."""
_NEWCOMER = re.compile(r"(previous|staging-[0-9a-f]{8})=(.+)")
"""The name of what is about to take the environment's place, with the id of its marker."""
_OURS = re.compile(r"staging-[0-9a-f]{8}|\.discarded-[0-9a-f]{8}")
"""The folders that a killed run leaves: what it was building, and what it was deleting."""
_PART = re.compile(r"\..{1,40}\.[0-9a-f]{8}")
"""A file of ours that was being written."""


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
    try:
        remember_replaced(paths.venv)
        # There is always something to exchange, by which the next run sees how far this one came.
        paths.venv.mkdir(exist_ok=True)
        named = newcomer.with_name(f"{newcomer.name}={_id_of(newcomer)}")
        newcomer = newcomer.rename(named)
        if not exchange(newcomer, paths.venv):
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
        finish_swap(paths, reporter)
    except OSError as error:
        raise unwritable(paths.previous, error) from None


def finish_swap(paths: EnvironmentPaths, reporter: Reporter) -> None:
    """Finish or undo an exchange that has begun, and clear away what a run that died was building or deleting."""
    replaced = _clear_away(paths)
    if is_folder(paths.aside):
        if os.path.lexists(paths.venv):
            replaced = paths.aside
        else:
            paths.aside.rename(paths.venv)
    if replaced:
        _settle(replaced, paths, reporter)


def _clear_away(paths: EnvironmentPaths) -> Path | None:
    """Remove what a run leaves, but for the environment that it has replaced; return that, if there is one."""
    replaced = None
    for path in list(paths.work.iterdir()):
        newcomer = _NEWCOMER.fullmatch(path.name) if is_folder(path) else None
        if newcomer and _id_of(path) != newcomer[2]:
            replaced = path
        elif newcomer and newcomer[1] == "previous" and not paths.has_previous:
            path.rename(paths.previous)
        elif newcomer or _OURS.fullmatch(path.name):
            remove_path(path)
        elif _PART.fullmatch(path.name):
            remove_file(path)
    return replaced


def _id_of(venv: Path) -> str:
    """Return the id of an environment's marker.

    Two that others made need not be told apart: whichever is not in force is the previous one.
    """
    marker = read_marker(venv)
    return marker.id if marker else "none"


def _settle(
    replaced: Path,
    paths: EnvironmentPaths,
    reporter: Reporter,
) -> None:
    """Publish the lock, and keep what was replaced; every step may be taken again after a kill, and its name goes last."""
    publish_lock(paths)
    if not any(replaced.iterdir()):
        replaced.rmdir()
        return
    if _is_copy(replaced, paths.previous):
        _discard(paths.previous, paths)
    else:
        previous = paths.previous
        remove_environment(previous, paths.kept, trash=paths.work, reporter=reporter)
    if not _is_copy(paths.venv, replaced):
        users = user_paths(replaced)
        if users:
            text = f"{some(users)}, which no installer wrote, with the replaced environment: in {paths.previous}"
            reporter.notice("Moved", text)
    replaced.rename(paths.previous)


def _is_copy(venv: Path, original: Path) -> bool:
    """Whether an environment was made as a copy of another, with all that was the user's in it."""
    copy, source = read_marker(venv), read_marker(original)
    return copy is not None and source is not None and copy.copied_from == source.id


def _discard(folder: Path, paths: EnvironmentPaths) -> None:
    """Delete an environment of ours that nothing of the user's is in; what resists is tried again by the next run."""
    with suppress(FileNotFoundError):
        discarded = folder.rename(paths.work / f".discarded-{os.urandom(4).hex()}")
        remove_path(discarded)


def roll_back(
    paths: EnvironmentPaths,
    reporter: Reporter,
    *,
    replace: bool,
) -> None:
    """Exchange an environment, and its lock, for the previous one, whoever made that.

    Args:
        paths: The environment.
        reporter: Is told for whom to wait.
        replace: Whether what is in its place now may be an environment that others made.

    Raises:
        UsageError: there is none, or this user has replaced neither it nor what is in its place.
    """
    venv = paths.venv
    with environment_lock(paths, reporter):
        if not paths.has_previous:
            raise UsageError("no-previous", f"no previous environment of {venv}")
        if not was_at(venv, paths.previous):
            raise UsageError(
                "not-made-here",
                f"the previous environment of {venv} was not replaced by you on this machine",
                why="it may have come with the folder, and would run unproven",
                hint="gpuinstall sync   # makes one from the lock",
            )
        is_ours = read_marker(venv) is not None or not os.path.lexists(venv)
        if not (is_ours or replace or was_at(venv, venv)):
            # It would become the previous one, which the next change deletes.
            raise UsageError(
                "not-ours",
                f"{venv} was not made by gpuinstall, which leaves it where it is",
                hint="Run it again with --replace",
            )
        swap_in(paths, paths.previous, reporter)


def publish_lock(paths: EnvironmentPaths) -> None:
    """Bring the lock in the folder to what the environment holds."""
    marker = read_marker(paths.venv)
    if marker is None:
        return
    lock = paths.folder / marker.lock
    text = read_document(paths.venv / marker.lock, paths.venv)
    if not holds_text(lock, text):
        write_atomically(lock, text, paths.work if paths.work.exists() else None)


WAIT_S = 600.0
"""How long a run waits for another, which may be fetching some 3 GB: at 50 Mbit/s, eight minutes."""
_OWNER = "owner"
"""The file that names the run that works there."""

_AT_REST = {"lock", ".gitignore"}
"""What lies beside a previous environment while no run works; Git sees none of it while the second is there."""


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
    with (
        _tidied(paths),
        file_lock(paths.guard, paths.venv, reporter, wait) as has_waited,
    ):
        try:
            # On a full disk those who wait read of "another run".
            with suppress(OSError):
                write_anew(paths.work / _OWNER, f"process {os.getpid()}")
            with suppress(OSError):
                write_anew(paths.work / ".gitignore", "*\n")
            try:
                finish_swap(paths, reporter)
            except OSError as error:
                raise unwritable(paths.work, error) from None
            yield has_waited
        finally:
            with defer_interrupts():
                # What cannot be done now is left to the next run.
                with suppress(OSError, InstallationError):
                    finish_swap(paths, reporter)
                remove_file(paths.work / _OWNER)
                if _entries(paths) <= _AT_REST:
                    remove_file(paths.work / ".gitignore")


@contextmanager
def _tidied(paths: EnvironmentPaths) -> Iterator[None]:
    """Leave nothing behind but environments, nor folders that were made for one."""
    made = [folder for folder in paths.work.parents if not folder.exists()]
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in (paths.work, *made):
                folder.rmdir()


def is_idle(paths: EnvironmentPaths) -> bool:
    """Whether no run works on the environment, and none died while doing so."""
    return _entries(paths) <= {*_AT_REST, paths.previous.name}


def _entries(paths: EnvironmentPaths) -> set[str]:
    with suppress(FileNotFoundError):
        return {entry.name for entry in paths.work.iterdir()}
    return set()


@contextmanager
def file_lock(
    file: Path,
    place: Path,
    reporter: Reporter,
    wait: float,
) -> Iterator[bool]:
    """Hold a lock file for one run on ``place``, and yield whether another run had it; the file goes with the run.

    Raises:
        InstallationError: another run holds it for more than ``wait`` seconds, or it cannot be written.
    """
    from filelock import FileLock

    guard = FileLock(file)
    deadline = time.monotonic() + wait
    has_waited = False
    try:
        while not _try_lock(guard, file):
            if time.monotonic() >= deadline:
                raise InstallationError(
                    "busy",
                    f"{place} is still in use by {_owner(file)}",
                    hint="Wait for it to end; then run this command again",
                )
            if not has_waited:
                reporter.wait(
                    f"waiting up to {wait:.0f} s for {_owner(file)}, which works on {place}"
                )
            has_waited = True
            time.sleep(0.05)
    except OSError as error:
        raise unwritable(file.parent, error) from None
    try:
        yield has_waited
    finally:
        with defer_interrupts():
            if os.name == "nt":
                # Windows does not remove a file that is open.
                guard.release()
            remove_file(file)
            guard.release()


def _try_lock(guard: FileLock, file: Path) -> bool:
    """Lock a file; return False if another run has it, or takes its folder away just now."""
    from filelock import Timeout

    # A place that takes no folder is a fault, and no reason to wait.
    file.parent.mkdir(parents=True, exist_ok=True)
    if not _is_regular(file):
        remove_file(file)
    with suppress(Timeout, FileNotFoundError):
        guard.acquire(timeout=0)
        if _is_regular(file):
            return True
        # The run before has taken the file away between the two.
        guard.release()
    return False


def _is_regular(path: Path) -> bool:
    """Whether a regular file lies there that has no other name: to lock another would empty what it leads to."""
    with suppress(OSError):
        status = path.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
    return False


def _owner(file: Path) -> str:
    """Return which run holds an environment, as far as its own words can be believed."""
    with suppress(OSError, ValueError):
        text = read_document(file.with_name(_OWNER), file.parent)
        if re.fullmatch(r"process \d+", text):
            return text
    return "another run"
