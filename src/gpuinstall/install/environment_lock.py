"""Lock an environment, so that only one command at a time changes it.

If a change is interrupted, the next command completes it or rolls it back.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import exists

from gpuinstall.base.environment_paths import JOURNAL, EnvironmentPaths
from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.files import (
    convert_write_errors,
    retry,
    try_lock,
    write_atomically,
)
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import remove_file
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.environment import package_versions
from gpuinstall.environments.guard import move_guard
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.rights import check_owner
from gpuinstall.environments.running import (
    Owner,
    find_running_owner,
    read_owner,
    read_touched,
)
from gpuinstall.environments.stamp import read_boot_id
from gpuinstall.install.journal import keep_touched
from gpuinstall.install.transaction import (
    recover,
    remove_leftovers,
    roll_back,
)

WAIT_S = 600.0
"""Seconds to wait for another command, which may be downloading 3 GB."""
_WITHOUT_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS}
"""The errors of file systems that have no locks."""


@contextmanager
def environment_lock(
    place: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
) -> Iterator[tuple[bool, bool]]:
    """Lock an environment, and recover an interrupted change.

    Args:
        place: The environment, which may not exist yet.
        reporter: Reports waits and recovered changes.
        wait: The seconds to wait for another command.

    Yields:
        Whether another command held the lock, and whether a change was recovered. Both can change the environment.

    Raises:
        InstallationError: Another command held the lock for more than ``wait`` seconds, or the folder is not writable.
        UsageError: Another user or host started a change, or a user's folder is at the path of the journal.
    """
    with folder_lock(place, reporter, wait) as has_waited:
        was_unfinished = place.has_unfinished_change()
        try:
            recover(place, reporter)
            remove_leftovers(place)
            yield has_waited, was_unfinished
        finally:
            with defer_interrupts():
                remove_leftovers(place)


def undo_change(place: EnvironmentPaths, reporter: Reporter) -> dict[str, str]:
    """Roll back the interrupted change of an environment, or its last change.

    Args:
        place: The environment.
        reporter: Reports waits and kept files.

    Returns:
        The versions of the packages before the rollback, by name.

    Raises:
        UsageError: This user has no recorded change of the environment.
        InstallationError: Another user owns the environment.
    """
    check_owner(place)
    before = package_versions(read_packages(place.find_packages_folders()))
    with environment_lock(place, reporter) as (_, recovered):
        if not recovered:
            # Another command may have changed the environment during the wait.
            before = package_versions(read_packages(place.find_packages_folders()))
            roll_back(place, reporter)
        if place.is_managed:
            # The restored settings may contain the previous path of the environment.
            move_guard(place.venv)
    return before


@contextmanager
def folder_lock(
    place: EnvironmentPaths, reporter: Reporter, wait: float = WAIT_S
) -> Iterator[bool]:
    """Lock an environment and its lock files, without recovering a change.

    Args:
        place: The environment, which may not exist yet.
        reporter: Reports waits.
        wait: The seconds to wait for another command.

    Yields:
        Whether another command held the lock.

    Raises:
        InstallationError: Another command held the lock for more than ``wait`` seconds, or the folder is not writable.
    """
    ignored = place.work / ".gitignore"
    created = [folder for folder in place.work.parents if not exists(folder)]
    try:
        with _file_lock(place, reporter, wait) as has_waited:
            try:
                with suppress(InstallationError):
                    # This file makes Git ignore the whole folder.
                    write_atomically(ignored, "*\n", is_cached=True)
                yield has_waited
            finally:
                with defer_interrupts():
                    own = {ignored, place.lock_file, place.owner_file}
                    if own.issuperset(place.work.glob("*")):
                        remove_file(ignored)
    finally:
        # rmdir fails for a folder with a journal, which is kept.
        with suppress(OSError):
            for folder in (place.work, *created):
                folder.rmdir()


@contextmanager
def lock_files_mutex(place: EnvironmentPaths, reporter: Reporter) -> Iterator[None]:
    """Keep other commands from changing the lock files next to an environment.

    If the folder is not writable, nothing is locked.
    """
    if not os.access(place.work.parent, os.W_OK):
        yield
        return
    with folder_lock(place, reporter):
        yield


@contextmanager
def _file_lock(
    place: EnvironmentPaths, reporter: Reporter, wait: float
) -> Iterator[bool]:
    """Lock a file for the duration of a block, and remove the file at the end.

    Args:
        place: The environment.
        reporter: Reports waits.
        wait: The maximum seconds to wait.

    Yields:
        Whether another command held the lock.

    Raises:
        InstallationError: Another command held the lock for more than ``wait`` seconds, or the file cannot be written.
    """
    deadline = time.monotonic() + wait
    has_waited = False
    with convert_write_errors(place.work):
        while (descriptor := _try_acquire(place, reporter)) is None:
            if time.monotonic() >= deadline:
                raise InstallationError(
                    "busy",
                    f"{place.venv} is still in use by {_name_owner(place)}",
                    hint="Wait for it to end; then run this command again",
                )
            if not has_waited:
                reporter.wait(
                    f"waiting up to {wait:.0f} s for {_name_owner(place)}, which is using {place.venv}"
                )
            has_waited = True
            time.sleep(0.05)
    try:
        with keep_touched(place.owner_file, place.current_change / JOURNAL):
            yield has_waited
    finally:
        with defer_interrupts():
            if os.name == "nt":
                # Windows cannot remove an open file.
                os.close(descriptor)
            try:
                remove_file(place.owner_file)
                remove_file(place.lock_file)
            finally:
                if os.name != "nt":
                    os.close(descriptor)


def _try_acquire(place: EnvironmentPaths, reporter: Reporter) -> int | None:
    """Try to lock an environment.

    Returns:
        The descriptor of the lock file; None: another command holds the lock.

    Raises:
        OSError: The folder cannot be written.
    """
    try:
        place.work.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        # Another command removed the folder between two calls of mkdir.
        if os.path.lexists(place.work):
            raise
        return None
    try:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        descriptor = retry(os.open, place.lock_file, flags, 0o666)
    except FileNotFoundError:
        # Another command removed the folder at this point.
        return None
    is_acquired = False
    try:
        is_acquired = _acquire(place, descriptor, reporter)
    finally:
        if not is_acquired:
            os.close(descriptor)
    return descriptor if is_acquired else None


def _acquire(place: EnvironmentPaths, descriptor: int, reporter: Reporter) -> bool:
    """Lock an open lock file, and write the owner file.

    Returns:
        Whether no other command uses the environment.

    Raises:
        UsageError: Another host may be changing the environment.
        OSError: The owner file, which is the lock on this file system, cannot be written.
    """
    problem = None
    try:
        if not try_lock(descriptor):
            return False
    except OSError as error:
        if error.errno not in _WITHOUT_LOCKS:
            raise
        problem = error.strerror
    # The previous command removed the file before this one acquired the lock.
    if not os.fstat(descriptor).st_nlink:
        return False
    os.utime(place.lock_file)
    now_ns = os.fstat(descriptor).st_mtime_ns
    owner = find_running_owner(place, now_ns, is_locked=problem is None)
    if owner:
        if place.has_unfinished_change() and owner.boot != read_boot_id():
            raise _create_elsewhere_error(place, owner)
        return False
    if not _write_owner(place, is_lock=problem is not None):
        return False
    if problem:
        text = f"{place.work} is on a file system without locks ({problem})"
        reporter.warn(f"{text}; the file {place.owner_file.name} is the lock")
    return True


def _write_owner(place: EnvironmentPaths, *, is_lock: bool) -> bool:
    """Write the owner file, and return whether this process may continue.

    Args:
        place: The environment.
        is_lock: Whether the file is the lock. Otherwise, it shows other hosts that the command runs.
    """
    remove_file(place.owner_file)
    try:
        with place.owner_file.open("x", encoding="utf-8") as opened:
            opened.write(Owner.here().to_json())
    except OSError as error:
        if is_lock and not isinstance(error, FileExistsError):
            raise
        return not is_lock
    return True


def _create_elsewhere_error(place: EnvironmentPaths, owner: Owner) -> UsageError:
    touched_s = read_touched(place) // 10**9
    clock = time.strftime("%H:%M:%S", time.localtime(touched_s))
    return UsageError(
        "change-elsewhere",
        f"{place.venv} was being changed by {owner.host} at {clock}",
        why="this host cannot determine whether that command is still running",
        hint="Wait for it to end, or ten minutes after a crash; then run it again",
    )


def _name_owner(place: EnvironmentPaths) -> str:
    """Return the process that holds an environment's lock, if known."""
    return str(read_owner(place) or "another run")
