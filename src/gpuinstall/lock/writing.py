"""Locks written into a folder for several targets at once, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.errors import UsageError
from gpuinstall.files import write_atomically
from gpuinstall.lock.build import build_locks
from gpuinstall.lock.fit import Fit, best, fits_in, read_locks
from gpuinstall.lock.plan_and_resolve import VersionPins, plan_and_resolve
from gpuinstall.lock.request import pinned
from gpuinstall.lock.wheels import local_path
from gpuinstall.units import readable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.lock.alignment import Agreement
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources

Status = Literal["written", "unchanged"]


@dataclass(frozen=True)
class LockOptions:
    """Locks of ``aims`` in ``folder``; without ``upgrade`` those that still serve stay.

    ``exact`` says that the requirements were named, so that only locks made from them serve; ``files`` are the digests
    of the files that they were read from; ``newest`` gives each target its own newest torch; ``upgrade_packages`` are
    the only ones that may move.
    """

    folder: Path
    aims: tuple[LockRequest, ...]
    exact: bool = False
    files: Mapping[str, str] = field(default_factory=dict)
    upgrade: bool = False
    upgrade_packages: tuple[str, ...] = ()
    newest: bool = False


@dataclass(frozen=True)
class Written:
    """A lock in its place.

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
        }


def write_locks(order: LockOptions, session: Session) -> list[Written]:
    """Make the locks, or leave alone those that serve; raise what choosing or resolving raises."""
    held = [] if order.upgrade or order.upgrade_packages else [_held(aim, order) for aim in order.aims]
    fits = [fit for fit in held if fit]
    if fits and len(fits) == len(order.aims) and _in_step(fits, order):
        return [_unchanged(fit.lock, order, session) for fit in fits]
    kept = _kept(read_locks(order.folder), order.upgrade_packages) if order.upgrade_packages else {}
    aims = [_holding(aim, kept.get("torch")) for aim in order.aims]
    agreements = plan_and_resolve(aims, session, newest=order.newest, hold=_hold(kept, order.aims[0].catalog.family))
    _announce(agreements, session)
    locks = build_locks(agreements, [aim.request for aim in order.aims], session, order.files)
    return [
        replace(place(lock, order.folder), apart=one.apart, private=private_sources(lock, session.sources))
        for lock, one in zip(locks, agreements, strict=True)
    ]


def _unchanged(lock: Lock, order: LockOptions, session: Session) -> Written:
    """Leave a lock as it is, but for the files that its requirements now come from."""
    elsewhere = order.exact and lock.inputs and lock.requirements_files != order.files
    kept = place(lock.made_from(order.files) if elsewhere else lock, order.folder)
    return replace(kept, private=private_sources(lock, session.sources))


def place(lock: Lock, folder: Path) -> Written:
    """Put a lock into its folder, unless it lies there already."""
    path = folder / lock.name
    if path.is_file() and path.read_text("utf-8", "replace") == lock.text:
        return Written(path, lock, "unchanged")
    write_atomically(path, lock.text)
    return Written(path, lock, "written")


def private_sources(lock: Lock, sources: Sources) -> tuple[str, ...]:
    """Name the folders of this machine and the mirrors of this network that a lock takes files from."""
    folders = {str(path.parent) for file in lock.files if (path := local_path(file.url))}
    mirrors = (sources.torch_index if sources.named else None, sources.default_index)
    return (*sorted(folders), *(index for index in mirrors if index))


def _held(aim: LockRequest, order: LockOptions) -> Fit | None:
    """Find the lock in the folder that serves an aim: the one named after its target, or the best for its machine."""
    judged = fits_in(order.folder, aim.machine, aim.request, aim.catalog, exact=order.exact)
    named = [each for each in judged if aim.request.backend is None or each.lock.target == aim.target]
    return best(named)


def _in_step(fits: Sequence[Fit], order: LockOptions) -> bool:
    """Say whether all have one Python, and one torch unless each is to have its own."""
    torches = {fit.choice.build.torch for fit in fits}
    return len({fit.lock.python for fit in fits}) == 1 and (order.newest or len(torches) == 1)


def _kept(locks: Sequence[Lock], moving: tuple[str, ...]) -> dict[str, str]:
    """The locked version of every package but those that may move; local versions are left to the choice.

    Raise UsageError for a package that no lock has.
    """
    held = {name: version.partition("+")[0] for lock in locks for name, version in lock.versions.items()}
    for name in moving:
        if name not in held:
            raise UsageError("not-locked", f"no lock here has a package called {name}", hint="check the name")
    return {name: version for name, version in held.items() if name not in moving}


def _hold(kept: Mapping[str, str], family: Collection[str]) -> VersionPins:
    """Keep the family as it is with its torch, and everything else where nothing stands against it."""
    firm = sorted(name for name in kept if name in family) if "torch" in kept else []
    rest = {name: version for name, version in kept.items() if name not in family}
    return VersionPins(tuple(f"{name}=={kept[name]}" for name in firm), rest)


def _holding(aim: LockRequest, torch: str | None) -> LockRequest:
    if torch is None:
        return aim
    return replace(aim, request=replace(aim.request, requirements=pinned(aim.request.requirements, torch)))


def _announce(agreements: Sequence[Agreement], session: Session) -> None:
    """Say what was chosen for each, and the bytes that have to be fetched to be hashed."""
    for agreement in agreements:
        choice = agreement.settled.choice
        session.reporter.step(
            "Build", f"torch {choice.build.name} · Python {choice.python} for {agreement.draft.target}"
        )
    missing = {file.url: head for one in agreements for file, head in one.draft.hashes.missing.items()}
    if missing:
        price = readable(sum(head.size or 0 for head in missing.values()))
        session.reporter.step("Hashes", f"{len(missing)} files have none on their index: {price} to fetch, once")
