"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import InstallationError, LockError, NoBuildError, UsageError
from gpuinstall.lock.compare import held_apart
from gpuinstall.lock.fit import Misfit, fit, read_locks, same_inputs
from gpuinstall.lock.inputs import changed_inputs
from gpuinstall.lock.plan_and_resolve import plan_and_resolve
from gpuinstall.lock.request import LockRequest, machine_for_target
from gpuinstall.lock.target import Target
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.lock import Lock
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request
    from gpuinstall.session import Session


@dataclass(frozen=True)
class CheckedLock:
    """A lock and why it is stale; nothing where it is fresh."""

    path: Path
    lock: Lock
    reasons: tuple[Reason, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write its entry in the document of ``lock --check --json``."""
        return {
            "target": self.lock.target,
            "path": str(self.path),
            "status": "stale" if self.reasons else "fresh",
            "sha256": self.lock.sha256,
            "torch": self.lock.versions.get("torch"),
            "reasons": [reason._asdict() for reason in self.reasons],
        }


@dataclass(frozen=True)
class DeclaredUse:
    """What locks are said to serve: targets that each have one, machines that run theirs.

    ``every`` says that there are no other targets. ``named`` says that the requirements are given too; else the files
    that a lock was made from are read again.
    """

    targets: tuple[str, ...] = ()
    machines: tuple[Machine, ...] = ()
    every: bool = False
    named: bool = True


def check_locks(
    folder: Path, request: Request, catalog: Catalog, declared: DeclaredUse, session: Session | None
) -> list[CheckedLock]:
    """Check every lock of ours in the folder, without ``session`` only as far as no network is needed.

    Raise LockError where there is none, none for a target that is declared, or one that cannot be read.
    """
    locks = [lock for lock in read_locks(folder) if lock.evidence]
    wanted = {Target.parse(text).filename for text in declared.targets} or {"pylock.*.toml"}
    missing = sorted(wanted - {lock.name for lock in locks}) if declared.targets or not locks else []
    if missing:
        raise LockError("lock-missing", f"there is no {' and no '.join(missing)} here", hint="gpuinstall lock")

    apart = _versions_apart(locks)

    def reasons(lock: Lock) -> tuple[Reason, ...]:
        here = (
            *_misnamed(lock),
            *_unnamed(lock, declared),
            *changed_inputs({} if declared.named else lock.requirements_files, folder),
        )
        return (
            here
            or stale_here(lock, request, catalog, declared.machines)
            or tuple(reason for name, reason in apart.items() if name in lock.versions)
            or (stale_there(lock, request, catalog, session) if session else ())
        )

    return [CheckedLock(folder / lock.name, lock, reasons(lock)) for lock in locks]


def stale_here(lock: Lock, request: Request, catalog: Catalog, machines: Iterable[Machine] = ()) -> tuple[Reason, ...]:
    """Say without a network why a lock is stale: other inputs, or a build that its machines do not run."""
    reasons = []
    if not same_inputs(lock, request):
        asked = " ".join(request.requirements)
        reasons.append(Reason("inputs-changed", f"it was made for {' '.join(lock.inputs)}, and {asked} is asked for"))
    target = Target.parse(lock.target)
    judged = [fit(lock, machine_for_target(target), replace(request, backend=target.backend), catalog)]
    judged += [fit(lock, machine, request, catalog) for machine in machines if _of(machine, target)]
    reasons += [each.reason for each in judged if isinstance(each, Misfit)]
    return tuple(dict.fromkeys(reasons))


def stale_there(lock: Lock, request: Request, catalog: Catalog, session: Session) -> tuple[Reason, ...]:
    """Resolve a lock's own versions again: a package that was withdrawn, or a file that was exchanged, shows."""
    target = Target.parse(lock.target)
    versions = {name: version.partition("+")[0] for name, version in lock.versions.items()}
    pinned_names = [f"{name}=={version}" for name, version in versions.items() if name not in lock.addresses]
    asked = (*pinned_names, *lock.addresses.values())
    pinned = LockRequest.for_target(target, replace(request, requirements=asked, python=lock.python), catalog)
    try:
        resolution = plan_and_resolve([pinned], session)[0]
    except (NoBuildError, InstallationError) as error:
        if error.code in {"network", "offline", "unreachable"}:
            raise
        return (Reason("withdrawn", error.why or error.message),)
    return tuple(_differing(lock, _listed_hashes(resolution)))


def _listed_hashes(resolution: Resolution) -> dict[str, str | None]:
    """The sha256 of each package's file, as far as it costs no transfer."""
    return {file.package: resolution.hashes.known.get(file.url) for file in resolution.files}


def _differing(lock: Lock, listed: Mapping[str, str | None]) -> Iterator[Reason]:
    """Compare a lock with the sha256 that each package of today's resolution has, where one is known."""
    for name, sha256 in sorted(listed.items()):
        if name not in lock.versions:
            yield Reason("incomplete", f"{name}, which its packages demand, is not in it")
        elif sha256 and sha256 not in lock.hashes(name):
            yield Reason("hash-differs", f"{name} {lock.versions[name]} is another file today")


def _versions_apart(locks: Sequence[Lock]) -> dict[str, Reason]:
    """The packages that the locks of a folder hold in different versions although they could have the same."""
    found = held_apart(locks).items()
    return {
        name: Reason("versions-differ", f"the locks here disagree: {name} {', '.join(held)}") for name, held in found
    }


def _unnamed(lock: Lock, declared: DeclaredUse) -> Iterator[Reason]:
    if declared.every and lock.name not in {Target.parse(text).filename for text in declared.targets}:
        yield Reason("no-target", "no target names it any more; gpuinstall lock --prune removes it")


def _misnamed(lock: Lock) -> Iterator[Reason]:
    try:
        Target.parse(lock.target)
    except UsageError as error:
        yield Reason("misnamed", f"its file is not named after what it is for: {error.message}")


def _of(machine: Machine, target: Target) -> bool:
    return (machine.os, machine.arch) == (target.os, target.arch)
