"""Lock an environment, so that only one command at a time changes it.

If a change is interrupted, the next command completes it or rolls it back.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os.path import exists
from typing import NamedTuple

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import GpuInstallError, InstallationError, UsageError
from gpuinstall.base.files import convert_write_errors, retry, write_atomically
from gpuinstall.base.interruption import defer_interrupts
from gpuinstall.base.removal import remove_file
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.environment import package_versions
from gpuinstall.environments.packages import read_packages
from gpuinstall.environments.records import make_undo_command
from gpuinstall.environments.rights import check_owner
from gpuinstall.environments.running import (
    ForeignChange,
    find_foreign_change,
    is_shared_file_system,
    try_lock_file,
)
from gpuinstall.install.journal import remove_leftovers
from gpuinstall.install.transaction import check_last_change, recover, roll_back

WAIT_S = 600.0
"""Seconds to wait for another command, which may be downloading 3 GB."""


class _Lock(NamedTuple):
    has_locks: bool
    """Whether the file system has locks."""
    has_waited: bool
    """Whether another command held the lock."""
    is_shared: bool
    """Whether another machine may hold a lock that is invisible here."""


@contextmanager
def environment_lock(
    place: EnvironmentPaths,
    reporter: Reporter,
    wait: float = WAIT_S,
    *,
    is_rollback: bool = False,
    is_replaced: bool = False,
) -> Iterator[tuple[bool, bool]]:
    """Lock an environment, and recover an interrupted change.

    Args:
        place: The environment, which may not exist yet.
        reporter: Reports waits and recovered changes.
        wait: The seconds to wait for another command.
        is_rollback: Whether to recover a change of another machine, which may still run.
        is_replaced: Whether the environment is removed or rebuilt, so that a missing journal is not necessary.

    Yields:
        Whether another command or a power cut may have changed the environment, and whether a change was recovered.

    Raises:
        InstallationError: Another command changes the environment, the folder is not writable, or the journal of an
            interrupted change is missing.
        UsageError: Another user or machine started a change, or a user's folder is at the path of the journal.
    """
    with folder_lock(place, reporter, wait) as lock:
        was_unfinished = place.has_unfinished_change()
        change = find_foreign_change(place, has_locks=lock.has_locks)
        if change and not (is_rollback and change.is_elsewhere):
            raise _create_change_error(place, change)
        # Other machines and processes may be using their folders.
        is_alone = lock.has_locks and not lock.is_shared
        try:
            recover(place, reporter, is_replaced=is_replaced)
            is_incomplete = check_last_change(place)
            remove_leftovers(place, is_alone=is_alone)
            yield lock.has_waited or is_incomplete, was_unfinished
        finally:
            with defer_interrupts():
                remove_leftovers(place, is_alone=is_alone)


def _create_change_error(
    place: EnvironmentPaths, change: ForeignChange
) -> GpuInstallError:
    """Return the error for a change that may still be running."""
    if not change.is_elsewhere:
        return InstallationError(
            "busy",
            f"another command has been changing {place.venv} since {change.time}",
            hint="Wait for it to end; then run this command again",
        )
    return UsageError(
        "change-elsewhere",
        f"{change.host} began to change {place.venv} at {change.time}",
        why="locks of another machine may be invisible on this file system",
        hint=make_undo_command(
            place, "if it was killed: completes the change or rolls it back"
        ),
    )


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
    with environment_lock(place, reporter, is_rollback=True) as (_, recovered):
        if not recovered:
            # Another command may have changed the environment during the wait.
            before = package_versions(read_packages(place.find_packages_folders()))
            roll_back(place, reporter)
    return before


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
def folder_lock(
    place: EnvironmentPaths, reporter: Reporter, wait: float = WAIT_S
) -> Iterator[_Lock]:
    """Lock an environment and its lock files, without recovering a change.

    Args:
        place: The environment, which may not exist yet.
        reporter: Reports waits.
        wait: The seconds to wait for another command.

    Raises:
        InstallationError: Another command held the lock for more than ``wait`` seconds, or the folder is not writable.
    """
    ignored = place.work / ".gitignore"
    created = [folder for folder in place.work.parents if not exists(folder)]
    try:
        with _file_lock(place, reporter, wait) as lock:
            try:
                with suppress(InstallationError):
                    # This file makes Git ignore the whole folder.
                    write_atomically(ignored, "*\n", is_cached=True)
                yield lock
            finally:
                with defer_interrupts():
                    own = {ignored, place.lock_file}
                    if not lock.is_shared and own.issuperset(place.work.glob("*")):
                        remove_file(ignored)
    finally:
        # rmdir fails for a folder with a journal, which is kept.
        with suppress(OSError):
            for folder in (place.work, *created):
                folder.rmdir()


@contextmanager
def _file_lock(
    place: EnvironmentPaths, reporter: Reporter, wait: float
) -> Iterator[_Lock]:
    """Lock a file for the duration of a block, and remove a local one.

    Raises:
        InstallationError: Another command held the lock for more than ``wait`` seconds, or the file cannot be written.
    """
    deadline = time.monotonic() + wait
    has_waited = False
    with convert_write_errors(place.work):
        while (acquired := _try_acquire(place)) is None:
            if time.monotonic() >= deadline:
                raise InstallationError(
                    "busy",
                    f"another command is still using {place.venv}",
                    hint="Wait for it to end; then run this command again",
                )
            if not has_waited:
                text = f"waiting up to {wait:.0f} s for another command"
                reporter.wait(f"{text}, which is using {place.venv}")
            has_waited = True
            time.sleep(0.05)
    descriptor, has_locks = acquired
    is_shared = is_shared_file_system(place.work)
    if not has_locks:
        reporter.warn(
            f"{place.work} is on a file system without locks; run one command at a time"
        )
    try:
        yield _Lock(has_locks, has_waited, is_shared)
    finally:
        with defer_interrupts():
            if os.name == "nt":
                # Windows cannot remove an open file.
                os.close(descriptor)
            try:
                # Commands of another machine may use the same file.
                if not is_shared:
                    remove_file(place.lock_file)
            finally:
                if os.name != "nt":
                    os.close(descriptor)


def _try_acquire(place: EnvironmentPaths) -> tuple[int, bool] | None:
    """Try to lock an environment.

    Returns:
        The descriptor of the lock file, and whether the file system has locks. None: another command holds the lock.

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
        is_acquired, has_locks = try_lock_file(descriptor)
        # The previous command removed the file before this one acquired the lock.
        is_acquired = is_acquired and _is_at(descriptor, place)
    finally:
        if not is_acquired:
            os.close(descriptor)
    return (descriptor, has_locks) if is_acquired else None


def _is_at(descriptor: int, place: EnvironmentPaths) -> bool:
    """Return whether an open file is still the lock file of an environment."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), place.lock_file.stat())
    return False
