"""Check whether lock files are up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.base.advice import Advice, Hint, make_command
from gpuinstall.base.errors import LockError, UsageError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import is_http_url
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.file.fit import OTHER_REQUEST, check_lock
from gpuinstall.lock.file.lock import (
    Lock,
    find_different_versions,
    format_versions,
)
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest, create_target_machine
from gpuinstall.lock.request.lock_sources import check_hosts
from gpuinstall.sources.gate import list_source_fixes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.lock.file.folder import FolderLocks
    from gpuinstall.sources import Sources
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client

    RequestForLock = Callable[[LockRequest], Request]

_PER_TARGET = "versions-per-target"
_UPDATED = frozenset({OTHER_REQUEST, "versions-differ", "edited", _PER_TARGET})
"""Codes of staleness reasons that ``lock`` fixes without ``--upgrade``."""


class CheckedLock(Value):
    """A lock file and the reasons why it is stale."""

    path: Path
    lock: Lock
    reasons: tuple[Reason, ...]
    is_left_over: bool = False
    """Whether the project's settings no longer list the lock file's target."""

    @property
    def fixes(self) -> tuple[Hint, ...]:
        """The commands or changes that make the lock file up to date."""
        codes = {reason.code for reason in self.reasons}
        if self.is_left_over and "misnamed" not in codes:
            note = f"{self.lock.target} is no longer a target"
            return (Advice("rm", (self.lock.name,), note=note),)
        if codes == {_PER_TARGET}:
            return ("Omit --same, or remove per-target = true from pyproject.toml",)
        if codes <= _UPDATED:
            return (make_command("lock"),)
        return list_source_fixes(codes) or (make_command("lock", "--upgrade"),)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a lock file in ``lock check --json``."""
        status = "stale" if self.reasons else "fresh"
        reasons = [reason.to_dict() for reason in self.reasons]
        return {**self.lock.to_entry(self.path, status), "reasons": reasons}


class CheckedProject(Value):
    """The current request of a project, and how to check its lock files."""

    request: Request
    catalog: Catalog

    for_lock: RequestForLock
    """Returns the request with extras for a target machine."""

    targets: Sequence[str] = ()
    """The targets in the project's settings; empty if all are allowed."""

    gate: LockGate | None = None
    """Checks the package sources; None if they are already checked."""

    same: bool = False
    """Whether different versions of a package make lock files stale."""


def check_locks(
    existing: FolderLocks,
    project: CheckedProject,
    targets: Sequence[str],
    session: Session | None,
) -> list[CheckedLock]:
    """Check every lock file that gpuinstall created in a folder.

    Args:
        existing: The lock files of the folder.
        project: The current request of the project.
        targets: The targets that must have a lock file. If no targets are given,
            one lock file for any target is enough.
        session: The HTTP clients and caches, or None to skip online checks.

    Raises:
        LockError: A lock file is missing or cannot be read.
    """
    locks = [lock for lock in existing.check() if lock.is_from_gpuinstall]
    paths = {file.path.name: file.path for file in existing.files}
    _check_missing_locks(locks, targets)
    left_over = find_locks_of_other_targets(locks, project.targets)
    kept = [lock for lock in locks if lock not in left_over]
    checked = []
    for lock in locks:
        is_left_over = lock in left_over
        # Do not compare versions with the lock files of removed targets.
        compared = locks if is_left_over else kept
        reasons = [*_find_staleness_reasons(lock, compared, project)]
        if session and not reasons:
            sources = session.find_listed_sources()
            found = _find_unavailable_files(
                lock, sources, session.client, session.reporter
            )
            reasons = [*found]
        checked.append(
            CheckedLock(paths[lock.name], lock, tuple(reasons), is_left_over)
        )
    return checked


def find_locks_of_other_targets(
    locks: Iterable[Lock], targets: Sequence[str]
) -> list[Lock]:
    """Return lock files for targets that ``targets`` does not list."""
    names = {Target.parse(text).filename for text in targets}
    return [lock for lock in locks if names and lock.name not in names]


def _check_missing_locks(locks: Sequence[Lock], targets: Sequence[str]) -> None:
    """Raise LockError if a target has no lock file, or if none exists."""
    names = {lock.name for lock in locks}
    missing = {Target.parse(text).filename for text in targets} - names
    if not names:
        missing = missing or {"pylock.*.toml"}
    if missing:
        message = f"no {' and no '.join(sorted(missing))} in this folder"
        words = ["lock"]
        own = [lock.target for lock in locks if lock.is_from_gpuinstall]
        for text in dict.fromkeys((*own, *targets)):
            words += ["--target", text]
        raise LockError("lock-missing", message, hint=make_command(*words))


def _find_staleness_reasons(
    lock: Lock, compared: Iterable[Lock], project: CheckedProject
) -> Iterator[Reason]:
    """Yield the reasons why a lock file is stale.

    Args:
        lock: The lock file to check.
        compared: The lock files that must have the same versions.
        project: The current request of the project.
    """
    try:
        target = Target.parse(lock.target)
    except UsageError as error:
        message = f"its file name has no valid target: {error.message}"
        yield Reason("misnamed", message)
        return
    # A lock that was created with --relax remains valid.
    request = replace(project.request, backend=target.backend, relax=True)
    machine = create_target_machine(target, lock.glibc)
    of_target = LockRequest(machine, request, project.catalog)
    wanted = replace(of_target, request=project.for_lock(of_target))
    verdict = check_lock(lock, wanted, gate=project.gate, exact=True)
    if isinstance(verdict, Rejection):
        yield verdict.reason
    differing = find_different_versions(compared) if project.same else {}
    for name, versions in differing.items():
        if name in lock.versions:
            found = f"{name} {format_versions(versions)}"
            message = f"the locks in this folder have different versions: {found}"
            is_allowed = request.newest_per_target
            yield Reason(_PER_TARGET if is_allowed else "versions-differ", message)
    if not lock.is_sealed:
        yield Reason("edited", "it was edited after gpuinstall wrote it")


def _find_unavailable_files(
    lock: Lock, sources: Sources, client: Client, reporter: Reporter
) -> Iterator[Reason]:
    """Yield a reason if locked files are unavailable or from unknown hosts."""
    files = [file for file in lock.files if is_http_url(file.url)]
    try:
        check_hosts(lock, files, sources, client, reporter)
    except LockError as error:
        yield Reason(error.code, error.message)
        return
    addresses = [file.url for file in files]
    gone = map_concurrently(client.is_gone, addresses)
    for file, is_gone in zip(files, gone, strict=True):
        if is_gone:
            message = f"{file.package} is no longer available at {file.url}"
            yield Reason("withdrawn", message)
