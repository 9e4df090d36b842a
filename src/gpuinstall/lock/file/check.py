"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.base.errors import (
    InstallationError,
    LockError,
    NoBuildError,
    UsageError,
)
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import replace
from gpuinstall.lock.file.fit import OTHER_REQUEST, fit, read_locks
from gpuinstall.lock.file.lock import Lock, Record, unknown_hash, version_conflicts
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.file.write import lock_of
from gpuinstall.lock.request.lock_request import LockRequest, machine_for_target
from gpuinstall.lock.solve.solve import resolve_locks

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.sources.session import Session


_MADE_AGAIN = frozenset({"inputs-changed", OTHER_REQUEST, "versions-differ"})
"""The reasons for which a plain ``lock`` makes a lock again, near to the versions that it has."""


_NOT_OF_THE_LOCK = frozenset(
    {
        "http-status",
        "network",
        "no-space",
        "not-writable",
        "offline",
        "search-ended",
        "too-slow",
        "transfer",
        "unreachable",
    }
)
"""What keeps a lock from being compared, and says nothing of it."""


class CheckedLock(NamedTuple):
    """A lock and why it is stale; nothing if it is fresh."""

    path: Path
    lock: Lock
    reasons: tuple[Reason, ...]

    @property
    def command(self) -> str:
        """What makes it fresh."""
        codes = {reason.code for reason in self.reasons}
        return (
            "gpuinstall lock" if codes <= _MADE_AGAIN else "gpuinstall lock --upgrade"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in the document of ``lock check --json``."""
        status = "stale" if self.reasons else "fresh"
        reasons = [reason._asdict() for reason in self.reasons]
        return {**self.lock.entry(self.path, status), "reasons": reasons}


def check_locks(
    folder: Path,
    request: Request,
    catalog: Catalog,
    targets: Sequence[str] = (),
    session: Session | None = None,
) -> list[CheckedLock]:
    """Check every lock of ours in a folder.

    Args:
        folder: The folder.
        request: What they are to hold.
        catalog: The builds of torch.
        targets: Those that each have to have a lock; none: any lock will do.
        session: The clients of the run; None: only as far as no network is needed.

    Raises:
        LockError: if there is none, none for a target, or one that cannot be read.
    """
    locks = [lock for lock in read_locks(folder) if lock.is_ours]
    _check_complete(locks, targets)
    conflicts = version_conflicts(locks)

    def reasons_of(lock: Lock) -> list[Reason]:
        reasons = _stale_offline(lock, request, catalog)
        if reasons:
            return reasons
        for name, versions in conflicts.items():
            if name in lock.versions:
                message = f"the locks here disagree: {name} {versions}"
                reasons.append(Reason("versions-differ", message))
        if reasons:
            return reasons
        if not lock.is_sealed:
            reasons.append(Reason("edited", "it was edited after gpuinstall wrote it"))
        if session:
            reasons += _stale_online(lock, request, catalog, session, folder)
        return reasons

    checked = []
    for lock in locks:
        reasons = tuple(reasons_of(lock))
        checked.append(CheckedLock(folder / lock.name, lock, reasons))
    return checked


def _check_complete(locks: Sequence[Lock], targets: Sequence[str]) -> None:
    """Raise LockError if there is no lock, or none for one of the targets."""
    names = {lock.name for lock in locks}
    missing = {Target.parse(text).filename for text in targets} - names
    if not targets and not names:
        missing = {"pylock.*.toml"}
    if missing:
        message = f"there is no {' and no '.join(sorted(missing))} here"
        raise LockError("lock-missing", message, hint="gpuinstall lock")


def _stale_offline(
    lock: Lock,
    request: Request,
    catalog: Catalog,
) -> list[Reason]:
    """Return without a network why a lock is stale: its name, other inputs, or a build that its target does not run."""
    try:
        target = Target.parse(lock.target)
    except UsageError as error:
        message = f"its file name does not match its target: {error.message}"
        return [Reason("misnamed", message)]
    reasons = []
    changes = lock.record.changes(Record.of(request))
    if changes:
        message = f"the request has changed since: {', '.join(changes)}"
        reasons.append(Reason("inputs-changed", message))
    of_target = replace(request, backend=target.backend)
    machine = machine_for_target(target, lock.glibc)
    verdict = fit(lock, machine, of_target, catalog)
    if isinstance(verdict, Rejection):
        reasons.append(verdict.reason)
    return reasons


def _stale_online(
    lock: Lock,
    request: Request,
    catalog: Catalog,
    session: Session,
    folder: Path,
) -> list[Reason]:
    """Resolve what a lock was made from again, within its own versions, and return what differs from that."""
    target = Target.parse(lock.target)
    made_for = replace(request, requirements=lock.record.inputs or request.requirements)
    # Versions without a hash stay as they are: a branch may have moved since.
    requirements = [_by_address(text, lock) for text in made_for.requirements]
    again = LockRequest.for_target(target, made_for, catalog, glibc=lock.glibc)
    again = again.asking(requirements=tuple(requirements))
    metadata: tuple[Mapping[str, Any], ...] = ()
    if lock.record.relaxed:
        from gpuinstall.lock.solve.relax import relaxed_again

        again, metadata = relaxed_again(again, lock.record.relaxed, session)
    try:
        [resolution] = resolve_locks([again], session, locks=[lock], metadata=metadata)
    except (NoBuildError, InstallationError) as error:
        if error.code in _NOT_OF_THE_LOCK:
            raise
        return [Reason("withdrawn", error.why or error.message)]
    # Its own hashes, but for those that the index gives: what has none there need not be fetched again.
    hashes = {file.url: unknown_hash(file.url) for file in resolution.files}
    hashes |= {file.url: file.sha256 for file in lock.files if file.sha256}
    hashes |= resolution.hashes.known
    return list(_differences(lock, lock_of(resolution, hashes, folder)))


def _differences(lock: Lock, today: Lock) -> Iterator[Reason]:
    """Yield what a lock has otherwise than one of the same versions that is made today."""
    if _comparable(lock) != _comparable(today):
        message = f"it does not say that it is for torch {today.record.torch} and the request alone"
        yield Reason("record-differs", message)
    before = lock.contents
    now = today.contents
    for name in sorted({*before, *now}):
        if name not in before:
            yield Reason("incomplete", f"{name}, required by its packages, is missing")
        elif name not in now:
            yield Reason("not-asked-for", f"{name} is in it, but nothing requires it")
        elif before[name] != now[name]:
            message = f"{name} is not what its sources have today; once it is made again, git diff tells"
            yield Reason("package-differs", message)


def _comparable(lock: Lock) -> tuple[object, ...]:
    """Return what does not change as long as the versions of a lock stay."""
    record = lock.record
    made_for = (record.inputs, record.torch, record.backend, record.floors)
    return *made_for, lock.pylock.requires_python, lock.pylock.environments


def _by_address(text: str, lock: Lock) -> str:
    """Write a requirement of a repository as the lock has it: by its commit, which no hash pins."""
    requirement = parse_requirement(text)
    name = requirement.name
    if not requirement.is_remote or name not in lock.addresses:
        return text
    return lock.addresses[name].replace(f"{name} @", f"{name}{requirement.extras} @", 1)
