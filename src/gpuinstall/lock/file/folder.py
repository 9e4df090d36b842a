"""The lock files of a folder, which a command reads once."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.files import hide_linked_text
from gpuinstall.base.text import join_names
from gpuinstall.base.values import Value
from gpuinstall.lock.file.target import Target, find_locks

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.lock.file.lock import Lock


class LockFile(Value):
    """A lock file, which may be malformed."""

    path: Path
    text: str = ""
    lock: Lock | None = None
    """The lock, or None if it cannot be read."""
    error: LockError | None = None


class FolderLocks(Value):
    """The lock files of a project folder and of its environment."""

    files: tuple[LockFile, ...] = ()
    own: Lock | None = None
    """The environment's lock, or None if it is missing or was edited."""

    @property
    def valid(self) -> list[Lock]:
        """The locks that can be read."""
        return [file.lock for file in self.files if file.lock]

    @property
    def by_target(self) -> dict[Target, Lock | None]:
        """gpuinstall's locks by target; None for a malformed lock."""
        locks: dict[Target, Lock | None] = {}
        for file in self.files:
            name = file.path.name.removeprefix("pylock.").removesuffix(".toml")
            if file.lock is None or file.lock.is_from_gpuinstall:
                with suppress(UsageError):
                    locks[Target.parse(name)] = file.lock
        return locks

    @property
    def requested_targets(self) -> list[Target]:
        """The targets of the locks if the user requested any target.

        Otherwise, the locks are only for the machine that created them.
        """
        is_named = any(lock and lock.record.asked for lock in self.by_target.values())
        return [*self.by_target] if is_named else []

    def find_selected_extras(self, target: str) -> set[str]:
        """Return the extras in the locks of a target and the environment."""
        known = [lock for one, lock in self.by_target.items() if str(one) == target]
        locks = filter(None, (*known, self.own))
        return {name for lock in locks for name in lock.record.selected_extras}

    def check(self) -> list[Lock]:
        """Return all locks of the folder.

        Raises:
            LockError: A lock file cannot be read.
        """
        for file in self.files:
            if file.error:
                raise file.error
        return self.valid

    def report_later_versions(self, reporter: Reporter) -> None:
        """Report locks of a later minor version; its keys are ignored."""
        for lock in self.valid:
            version = lock.pylock.lock_version
            if version.minor:
                message = f"{lock.name} has lock-version {version}, read as 1.0"
                reporter.step("Lock", message)

    def report_damaged(self, request: Request, reporter: Reporter) -> None:
        """Warn that requirements of a damaged lock may not be in a request."""
        damaged = [file.path.name for file in self.files if file.error]
        if damaged:
            names = join_names([one.text for one in request.requirements])
            reporter.warn(
                f"{join_names(damaged)} cannot be read; only these requirements are locked: {names}"
            )


def read_folder_locks(folder: Path, own: Lock | None = None) -> FolderLocks:
    """Read the lock files of a folder.

    Args:
        folder: The folder.
        own: The lock of its environment.
    """
    return FolderLocks(tuple(map(read_lock_file, find_locks(folder))), own)


def read_lock_file(path: Path) -> LockFile:
    """Read a lock file, and keep the error if it cannot be read."""
    # The module is slow to import.
    from gpuinstall.lock.file.lock import parse, read_lock_text

    text = ""
    try:
        text = read_lock_text(path)
        with hide_linked_text(path):
            return LockFile(path, text, parse(path.name, text))
    except LockError as error:
        return LockFile(path, text, error=error)
