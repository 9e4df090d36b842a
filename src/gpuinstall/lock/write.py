"""Locks written into a folder for several targets at once, and what became of each."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.errors import LockError, UsageError
from gpuinstall.files import holds_text, write_atomically
from gpuinstall.lock.compare import compare_versions, held_apart
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import Fit, best, judge, locks_in, read_locks
from gpuinstall.lock.lock import read_lock
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.target import Target
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.compare import VersionChange
    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources

LockStatus = Literal["written", "unchanged"]


@dataclass(frozen=True)
class LockOptions:
    """Locks for ``requests``, made of what the folder is ``asked``; without ``upgrade`` those that still serve stay.

    ``moving`` are the only packages that may move; ``newest`` gives each target its own newest torch; ``prune`` removes
    the locks of the folder that are not among them.
    """

    folder: Path
    requests: tuple[LockRequest, ...]
    asked: FolderRequest
    upgrade: bool = False
    moving: tuple[str, ...] = ()
    newest: bool = False
    prune: bool = False


@dataclass(frozen=True)
class Written:
    """A lock in its folder.

    ``changes`` are those from the lock that lay there; ``apart`` says by package why it could not have the version of
    the others; ``private`` are the sources of this machine or this network alone that it takes files from.
    """

    path: Path
    lock: Lock
    status: LockStatus
    changes: tuple[VersionChange, ...] = ()
    apart: Mapping[str, str] = field(default_factory=dict)
    private: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write its entry in the document of ``lock --json``."""
        return {
            "target": self.lock.target,
            "path": str(self.path),
            "status": self.status,
            "sha256": self.lock.sha256,
            "torch": self.lock.versions.get("torch"),
            "changes": [change.to_dict() for change in self.changes],
            "private": list(self.private),
            "unhashed": list(self.lock.unhashed),
        }


def write_locks(options: LockOptions, session: Session) -> list[Written]:
    """Make the locks, or leave alone those that serve; raise what choosing or resolving raises."""
    if kept := _serving(options):
        return [_unchanged(lock, options, session) for lock in kept]
    held = [] if options.upgrade else [lock for lock in read_locks(options.folder) if lock.evidence]
    resolutions = resolve_locks(options.requests, session, held=held, moving=options.moving, newest=options.newest)
    if options.newest:
        resolutions = _meant_apart(resolutions, options.requests[0].catalog.family)
    changes = [_changes(one, options.folder) for one in resolutions]
    _announce(resolutions, changes, session)
    asked = [request.request for request in options.requests]
    locks = build_locks(resolutions, asked, session, options.asked, options.folder)
    return [
        replace(_write(lock, options, session), changes=changed, apart=one.apart)
        for lock, changed, one in zip(locks, changes, resolutions, strict=True)
    ]


def targets_of(folder: Path) -> list[Target]:
    """What the locks of ours in a folder are for; of damaged ones their names tell it."""
    found = ((path, _readable(path)) for path in locks_in(folder))
    targets = []
    for path in [path for path, lock in found if lock is None or lock.evidence]:
        with suppress(UsageError):
            targets.append(Target.parse(path.name.removeprefix("pylock.").removesuffix(".toml")))
    return targets


def unnamed_locks(folder: Path, targets: Collection[str]) -> list[Path]:
    """The locks of ours in a folder that are for none of ``targets``; what others made is theirs."""
    named = {f"pylock.{target}.toml" for target in targets}
    found = ((path, _readable(path)) for path in locks_in(folder) if path.name not in named)
    return [path for path, lock in found if lock and lock.evidence]


def _private_sources(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """Name the folders of this machine and the mirrors of this network that a lock takes files from."""
    folders = {str(path.parent) for file in lock.files if (path := local_path(file.url))}
    mirrors = (sources.torch_index if sources.named else None, sources.default_index)
    return (*sorted(folders), *(index for index in mirrors if index))


def _serving(options: LockOptions) -> list[Lock]:
    """The locks in the folder that serve as they are: all with one Python, and one torch unless each has its own."""
    if options.upgrade or options.moving:
        return []
    locks = read_locks(options.folder)
    fits = [fit for request in options.requests if (fit := _serving_one(locks, request))]
    serving = [fit.lock for fit in fits]
    together = len({lock.python for lock in serving}) == 1 and not held_apart(serving)
    return serving if together and len(fits) == len(options.requests) else []


def _serving_one(locks: Sequence[Lock], request: LockRequest) -> Fit | None:
    """Find the lock that serves a request: the one named after its target, or the best for its machine."""
    named = [lock for lock in locks if request.request.backend is None or lock.target == request.label]
    return best(judge(named, request.machine, request.request, request.catalog, exact=True))


def _unchanged(lock: Lock, options: LockOptions, session: Session) -> Written:
    """Leave a lock as it is, but for the files that its requirements now come from."""
    elsewhere = lock.inputs and lock.requirements_files != options.asked.files
    return _write(lock.made_from(options.asked.files) if elsewhere else lock, options, session)


def _write(lock: Lock, options: LockOptions, session: Session) -> Written:
    """Put a lock into its folder, unless it lies there already."""
    path, private = options.folder / lock.name, _private_sources(lock, session.sources)
    if holds_text(path, lock.text):
        return Written(path, lock, "unchanged", private=private)
    write_atomically(path, lock.text)
    return Written(path, lock, "written", private=private)


def _meant_apart(resolutions: Sequence[Resolution], family: frozenset[str]) -> list[Resolution]:
    """Say of the family that each target has its own newest."""
    held = [dict.fromkeys(family.intersection(one.versions), "the newest that it has") for one in resolutions]
    return [replace(one, apart={**members, **one.apart}) for one, members in zip(resolutions, held, strict=True)]


def _changes(resolution: Resolution, folder: Path) -> tuple[VersionChange, ...]:
    """Compare with the lock that lies there for the same target, if one can be read."""
    old = _readable(folder / resolution.target.filename)
    return compare_versions(old.held, resolution.held) if old else ()


def _readable(path: Path) -> Lock | None:
    with suppress(LockError):
        return read_lock(path)
    return None


def _announce(resolutions: Sequence[Resolution], changes: Sequence[Sequence[VersionChange]], session: Session) -> None:
    """Say what was chosen for each, what changes, and the bytes that have to be fetched to be hashed."""
    for one, changed in zip(resolutions, changes, strict=True):
        choice = one.choice
        session.reporter.step("Build", f"torch {choice.build.name} · Python {choice.python} for {one.target}")
        for each in changed:
            session.reporter.step("", str(each))
    for remark in dict.fromkeys(remark for one in resolutions for remark in one.remarks):
        session.reporter.step("Build", remark)
    missing = {file.url: head for one in resolutions for file, head in one.hashes.missing.items()}
    if missing:
        price = readable(sum(head.size or 0 for head in missing.values()))
        files = f"{len(missing)} files have none on their" if len(missing) > 1 else "1 file has none on its"
        session.reporter.step("Hashes", f"{files} index: {price} to fetch, once")
