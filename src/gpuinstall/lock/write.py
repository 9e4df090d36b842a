"""Locks written into a folder for several targets at once, what became of each, and where they differ."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gpuinstall.errors import LockError, UsageError
from gpuinstall.files import holds_text, read_document, write_atomically
from gpuinstall.lock.declaration import locks_in
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import best, judge, read_locks
from gpuinstall.lock.lock import (
    LOCK_IN_CONFLICT,
    Lock,
    VersionChange,
    compare_versions,
    parse,
    read_lock,
    sides,
    split_packages,
    version_conflicts,
)
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.target import Target
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.folder_request import FolderRequest
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session


class TargetDifference(NamedTuple):
    """The version of a package that one target has while another has a different one."""

    package: str
    target: str
    version: str
    why: str


def differences(
    written: Sequence[Written], family: Collection[str]
) -> tuple[TargetDifference, ...]:
    """Find the packages that locks hold in different versions; the backend in a version does not count."""

    def why(name: str, one: Written) -> str:
        if name == "torch":
            return "the newest for this target"
        if name in family:
            return f"it belongs to torch {one.lock.versions.get('torch')}"
        return one.apart.get(name, "the newest for this target")

    by_target = {one.lock.target: one for one in written}
    different = []
    for name, versions in split_packages(one.lock for one in written).items():
        for target, version in versions.items():
            different.append(TargetDifference(name, target, version, why(name, by_target[target])))
    return tuple(different)


LockStatus = Literal["written", "unchanged"]


class LockOptions(NamedTuple):
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
        return self.lock.entry(self.path, self.status) | {
            "changes": [change._asdict() for change in self.changes],
            "private": list(self.private),
            "unhashed": list(self.lock.unhashed),
        }


def write_locks(options: LockOptions, session: Session) -> list[Written]:
    """Make the locks, or leave alone those that serve; raise what choosing or resolving raises."""
    files = options.asked.files
    if serving := _serving(options):
        # They stay as they are, but for the files that their requirements now come from.
        return [_write(lock.made_from(files), options, session) for lock in serving]
    there = list[Lock]()
    for path in [] if options.upgrade else locks_in(options.folder):
        there += (
            both := [parse(path.name, text) for text in sides(read_document(path, path.parent))]
        )
        if len(both) > 1:
            session.reporter.step("Merged", f"both requests of {path.name}; git add {path.name}")
    held = [lock for lock in there if lock.evidence]
    resolutions = resolve_locks(
        options.requests, session, held=held, moving=options.moving, newest=options.newest
    )
    if options.newest:
        family, why = options.requests[0].catalog.family, "the newest for this target"
        resolutions = [
            replace(
                one, apart={**dict.fromkeys(family.intersection(one.versions), why), **one.apart}
            )
            for one in resolutions
        ]
    old = [_readable(options.folder / resolution.target.filename) for resolution in resolutions]
    pairs = zip(old, resolutions, strict=True)
    changes = [
        compare_versions(lock.held, resolution.held) if lock else () for lock, resolution in pairs
    ]
    _announce(resolutions, changes, session)
    requests = [request.request for request in options.requests]
    locks = build_locks(resolutions, requests, session, options.asked, options.folder)
    return [
        replace(_write(lock, options, session), changes=changed, apart=resolution.apart)
        for lock, changed, resolution in zip(locks, changes, resolutions, strict=True)
    ]


def targets_of(folder: Path) -> list[Target]:
    """What the locks of ours in a folder are for; of damaged ones their names tell it."""
    targets = []
    for path in locks_in(folder):
        lock = _readable(path)
        with suppress(UsageError):
            if lock is None or lock.evidence:
                targets.append(
                    Target.parse(path.name.removeprefix("pylock.").removesuffix(".toml"))
                )
    return targets


def unnamed_locks(folder: Path, targets: Collection[str]) -> list[Path]:
    """The locks of ours in a folder that are for none of ``targets``; what others made is theirs."""
    named = {f"pylock.{target}.toml" for target in targets}
    others = [path for path in locks_in(folder) if path.name not in named]
    return [path for path in others if (lock := _readable(path)) and lock.evidence]


def _serving(options: LockOptions) -> list[Lock]:
    """The locks that serve as they are, each named after its target or the best for its machine, and all together."""
    if options.upgrade or options.moving:
        return []
    try:
        locks = read_locks(options.folder)
    except LockError as error:
        if error.code != LOCK_IN_CONFLICT:
            raise
        return []
    serving: list[Lock] = []
    for request in options.requests:
        named = [
            lock
            for lock in locks
            if request.request.backend is None or lock.target == request.label
        ]
        machine, wanted, catalog = request.machine, request.request, request.catalog
        fit = best(judge(named, machine, wanted, catalog, exact=True), machine, wanted, catalog)
        if fit is None:
            return []
        serving.append(fit.lock)
    together = len({lock.python for lock in serving}) == 1 and not version_conflicts(serving)
    return serving if together else []


def _write(lock: Lock, options: LockOptions, session: Session) -> Written:
    """Put a lock into its folder, unless it lies there already; name the sources that not everybody has."""
    path, sources = options.folder / lock.name, session.sources
    folders = {str(place.parent) for file in lock.files if (place := local_path(file.url))}
    mirrors = (
        sources.torch_index if sources.named else None,
        sources.default_index,
        *lock.indexes.values(),
    )
    private = (*sorted(folders), *dict.fromkeys(index for index in mirrors if index))
    if holds_text(path, lock.text):
        return Written(path, lock, "unchanged", private=private)
    write_atomically(path, lock.text)
    return Written(path, lock, "written", private=private)


def _readable(path: Path) -> Lock | None:
    with suppress(LockError):
        return read_lock(path)
    return None


def _announce(
    resolutions: Sequence[Resolution], changes: Sequence[Sequence[VersionChange]], session: Session
) -> None:
    """Say what was chosen for each, what changes, and the bytes that have to be fetched to be hashed."""
    for one, changed in zip(resolutions, changes, strict=True):
        choice = one.choice
        session.reporter.step(
            "Build", f"torch {choice.build.name} · Python {choice.python} for {one.target}"
        )
        for each in changed:
            session.reporter.step("", str(each))
    for remark in dict.fromkeys(remark for one in resolutions for remark in one.remarks):
        session.reporter.step("", remark)
    for warning in dict.fromkeys(
        warning.message for one in resolutions for warning in one.plan.warnings
    ):
        session.reporter.warn(warning)
    missing = {file.url: head for one in resolutions for file, head in one.hashes.missing.items()}
    if missing:
        price = readable(sum(head.size or 0 for head in missing.values()))
        files = (
            f"{len(missing)} files have no hash on their"
            if len(missing) > 1
            else "1 file has no hash on its"
        )
        session.reporter.step("Hashes", f"{files} index: {price} to download once")
