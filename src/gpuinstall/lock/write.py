"""Locks written into a folder for several targets at once, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.errors import UsageError
from gpuinstall.files import holds, write_atomically
from gpuinstall.lock.document import build_locks
from gpuinstall.lock.fetch import local_path
from gpuinstall.lock.fit import Fit, best, judge, read_locks
from gpuinstall.lock.plan_and_resolve import plan_and_resolve
from gpuinstall.lock.resolver import VersionPins
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources

Status = Literal["written", "unchanged"]


@dataclass(frozen=True)
class LockOptions:
    """Locks for ``requests`` in ``folder``; without ``upgrade`` those that still serve stay.

    ``exact`` says that the requirements were named, so that only locks made from them serve; ``files`` are the digests
    of the files that they were read from; ``newest`` gives each target its own newest torch; ``upgrade_packages`` are
    the only ones that may move.
    """

    folder: Path
    requests: tuple[LockRequest, ...]
    exact: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    upgrade: bool = False
    upgrade_packages: tuple[str, ...] = ()
    newest: bool = False


@dataclass(frozen=True)
class Written:
    """A lock in its folder.

    ``apart`` says by package why it could not have the version of the others; ``private`` are the sources of this
    machine or this network alone that it takes files from.
    """

    path: Path
    lock: Lock
    status: Status
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
            "private": list(self.private),
            "unhashed": list(self.lock.unhashed),
        }


def write_locks(options: LockOptions, session: Session) -> list[Written]:
    """Make the locks, or leave alone those that serve; raise what choosing or resolving raises."""
    if kept := _serving(options):
        return [_unchanged(lock, options, session) for lock in kept]
    requests, pins = list(options.requests), VersionPins()
    if options.upgrade_packages:
        held = _held_versions(read_locks(options.folder), options.upgrade_packages)
        pins = _pins(held, requests[0].catalog.family)
        requests = [request.with_torch(held["torch"]) if "torch" in held else request for request in requests]
    resolutions = plan_and_resolve(requests, session, newest=options.newest, pins=pins)
    _announce(resolutions, session)
    asked = [request.request for request in options.requests]
    locks = build_locks(resolutions, asked, session, options.files, options.folder)
    return [
        replace(_write(lock, options, session), apart=resolution.apart)
        for lock, resolution in zip(locks, resolutions, strict=True)
    ]


def private_sources(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """Name the folders of this machine and the mirrors of this network that a lock takes files from."""
    folders = {str(path.parent) for file in lock.files if (path := local_path(file.url))}
    mirrors = (sources.torch_index if sources.named else None, sources.default_index)
    return (*sorted(folders), *(index for index in mirrors if index))


def _serving(options: LockOptions) -> list[Lock]:
    """The locks in the folder that serve as they are: all with one Python, and one torch unless each has its own."""
    if options.upgrade or options.upgrade_packages:
        return []
    locks = read_locks(options.folder)
    fits = [fit for request in options.requests if (fit := _serving_one(locks, request, exact=options.exact))]
    torches = {fit.choice.build.torch for fit in fits}
    together = len({fit.lock.python for fit in fits}) == 1 and (options.newest or len(torches) == 1)
    return [fit.lock for fit in fits] if together and len(fits) == len(options.requests) else []


def _serving_one(locks: Sequence[Lock], request: LockRequest, *, exact: bool) -> Fit | None:
    """Find the lock that serves a request: the one named after its target, or the best for its machine."""
    named = [lock for lock in locks if request.request.backend is None or lock.target == request.target]
    return best(judge(named, request.machine, request.request, request.catalog, exact=exact))


def _unchanged(lock: Lock, options: LockOptions, session: Session) -> Written:
    """Leave a lock as it is, but for the files that its requirements now come from."""
    elsewhere = options.exact and lock.inputs and lock.requirements_files != options.files
    return _write(lock.made_from(options.files) if elsewhere else lock, options, session)


def _write(lock: Lock, options: LockOptions, session: Session) -> Written:
    """Put a lock into its folder, unless it lies there already."""
    path, private = options.folder / lock.name, private_sources(lock, session.sources)
    if holds(path, lock.text):
        return Written(path, lock, "unchanged", private=private)
    write_atomically(path, lock.text)
    return Written(path, lock, "written", private=private)


def _held_versions(locks: Sequence[Lock], upgraded: tuple[str, ...]) -> dict[str, str]:
    """The locked version of every package but the upgraded; local versions are left to the choice.

    Raise UsageError for a package that no lock has.
    """
    held = {name: version.partition("+")[0] for lock in locks for name, version in lock.versions.items()}
    for name in upgraded:
        if name not in held:
            raise UsageError("not-locked", f"no lock here has a package called {name}", hint="check the name")
    return {name: version for name, version in held.items() if name not in upgraded}


def _pins(held: Mapping[str, str], family: Collection[str]) -> VersionPins:
    """Keep the family as it is with its torch, and everything else where nothing stands against it."""
    firm = sorted(name for name in held if name in family) if "torch" in held else []
    rest = {name: version for name, version in held.items() if name not in family}
    return VersionPins(tuple(f"{name}=={held[name]}" for name in firm), rest)


def _announce(resolutions: Sequence[Resolution], session: Session) -> None:
    """Say what was chosen for each, and the bytes that have to be fetched to be hashed."""
    for one in resolutions:
        choice = one.planned.choice
        session.reporter.step("Build", f"torch {choice.build.name} · Python {choice.python} for {one.target}")
    for remark in dict.fromkeys(remark for one in resolutions for remark in one.planned.remarks):
        session.reporter.step("Build", remark)
    missing = {file.url: head for one in resolutions for file, head in one.hashes.missing.items()}
    if missing:
        price = readable(sum(head.size or 0 for head in missing.values()))
        session.reporter.step("Hashes", f"{len(missing)} files have none on their index: {price} to fetch, once")
