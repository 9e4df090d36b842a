"""Locks written into a folder for several targets at once, what became of each, and where they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpuinstall.base.errors import LockError
from gpuinstall.base.files import holds_text, read_document, write_atomically
from gpuinstall.base.units import number_of, readable
from gpuinstall.base.values import dataclass
from gpuinstall.lock.declaration import locks_in
from gpuinstall.lock.fit import best, judge, read_locks, readable_lock
from gpuinstall.lock.lock import (
    LOCK_IN_CONFLICT,
    Lock,
    VersionChange,
    compare_versions,
    parse,
    sides,
    version_conflicts,
)
from gpuinstall.lock.making import resolve_locks

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from gpuinstall.base.request import Request
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session


class LockOptions(NamedTuple):
    """Which locks to make."""

    folder: Path
    requests: tuple[LockRequest, ...]
    upgrade: bool = False
    """Whether those that still serve are made anew too."""
    moving: tuple[str, ...] = ()
    """The only packages that may move."""


@dataclass(frozen=True)
class Written:
    """A lock in its folder."""

    path: Path
    lock: Lock
    status: Literal["written", "unchanged"]
    changes: tuple[VersionChange, ...] = ()
    """The changes from the lock that lay there."""

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in the document of ``lock --json``."""
        return {
            **self.lock.entry(self.path, self.status),
            "changes": [change._asdict() for change in self.changes],
            "unhashed": list(self.lock.addresses.values()),
        }


def write_locks(options: LockOptions, session: Session) -> list[Written]:
    """Make the locks, or leave alone those that serve; raise what choosing or resolving raises."""
    serving = _serving(options)
    if serving:
        return [_write(lock, options.folder) for lock in serving]
    resolutions = _resolve(options, session)
    before = [
        readable_lock(options.folder / resolution.target.filename) for resolution in resolutions
    ]
    changes = [
        compare_versions(lock.held, resolution.held) if lock else ()
        for lock, resolution in zip(before, resolutions, strict=True)
    ]
    _announce(resolutions, changes, session)
    # Loaded after the servers were asked, most of it while they answered.
    from gpuinstall.lock.document import build_locks

    locks = build_locks(
        resolutions,
        [request.request for request in options.requests],
        session,
        folder=options.folder,
    )
    written = []
    for lock, changed in zip(locks, changes, strict=True):
        one = _write(lock, options.folder)
        written.append(replace(one, changes=changed))
    return written


def _serving(options: LockOptions) -> list[Lock]:
    """Return the locks that serve as they are, each named after its target or the best for its machine, together."""
    if options.upgrade or options.moving:
        return []
    try:
        locks = read_locks(options.folder)
    except LockError as error:
        if error.code != LOCK_IN_CONFLICT:
            raise
        return []
    serving = []
    for one in options.requests:
        targets = {lock.target for lock in locks} if one.request.backend is None else {one.label}
        candidates = [lock for lock in locks if lock.target in targets]
        verdicts = judge(candidates, one.machine, one.request, one.catalog, exact=True)
        fit = best(verdicts, one.machine, one.request, one.catalog)
        if fit is None or _is_of_other_files(fit.lock, one.request):
            return []
        serving.append(fit.lock)
    if len({lock.python for lock in serving}) > 1 or version_conflicts(serving):
        return []
    return serving


def _is_of_other_files(lock: Lock, request: Request) -> bool:
    """Whether a lock of ours says that its requirements come from other files than they do now."""
    return lock.is_ours and lock.record.requirements_files != request.files


def _resolve(options: LockOptions, session: Session) -> list[Resolution]:
    """Resolve near to the locks of the folder; of one in conflict both sides count."""
    locks = []
    for path in [] if options.upgrade else locks_in(options.folder):
        texts = sides(read_document(path, path.parent))
        locks += [parse(path.name, text) for text in texts]
        if len(texts) > 1:
            session.reporter.step("Merged", f"both requests of {path.name}; git add {path.name}")
    resolutions = resolve_locks(
        options.requests,
        session,
        held=[lock for lock in locks if lock.is_ours],
        moving=options.moving,
    )
    if not options.requests[0].request.newest_per_target:
        return resolutions
    family = options.requests[0].catalog.family
    return [replace(one, apart=one.apart | (family & one.versions.keys())) for one in resolutions]


def _announce(
    resolutions: Sequence[Resolution],
    changes: Sequence[Sequence[VersionChange]],
    session: Session,
) -> None:
    """Report what was chosen for each, what changes, and the bytes that have to be fetched to be hashed."""
    reporter = session.reporter
    for one, changed in zip(resolutions, changes, strict=True):
        build = f"torch {one.choice.build.name} · Python {one.choice.python}"
        reporter.step("Build", f"{build} for {one.target}")
        for change in changed:
            reporter.step("", str(change))
    for remark in dict.fromkeys(remark for one in resolutions for remark in one.remarks):
        reporter.step("", remark)
    warnings = [reason.message for one in resolutions for reason in one.plan.warnings]
    for warning in dict.fromkeys(warnings):
        reporter.warn(warning)
    missing = {file.url: head for one in resolutions for file, head in one.hashes.missing.items()}
    if missing:
        price = readable(sum(head.size or 0 for head in missing.values()))
        files = number_of(len(missing), "file")
        reporter.step("Hashes", f"{files} without a hash on the index: {price} to download once")


def _write(lock: Lock, folder: Path) -> Written:
    """Put a lock into its folder, unless it lies there already."""
    path = folder / lock.name
    if holds_text(path, lock.text):
        return Written(path, lock, "unchanged")
    write_atomically(path, lock.text)
    return Written(path, lock, "written")


def unnamed_locks(
    folder: Path,
    targets: Collection[str],
) -> list[Path]:
    """Return the locks of ours in a folder that are for none of ``targets``; what others made is theirs."""
    names = {f"pylock.{target}.toml" for target in targets}
    paths = []
    for path in locks_in(folder):
        lock = readable_lock(path)
        if path.name not in names and lock and lock.is_ours:
            paths.append(path)
    return paths
