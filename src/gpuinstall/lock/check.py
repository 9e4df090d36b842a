"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.markers import Marker

from gpuinstall.base.errors import InstallationError, LockError, NoBuildError, UsageError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.build_files import BUILD_FILES, has_same_build_files
from gpuinstall.lock.declaration import changed_inputs, command_again, lines_in
from gpuinstall.lock.document import evidence_of
from gpuinstall.lock.fit import (
    fit,
    has_same_preferences,
    read_locks,
    same_inputs,
    uninstalled,
)
from gpuinstall.lock.folder_request import FolderRequest
from gpuinstall.lock.lock import Lock, version_conflicts
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest, VersionPins, machine_for_target
from gpuinstall.lock.target import Target
from gpuinstall.sources.provenance import RECORDED_HASHES
from gpuinstall.sources.requirements_file import RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.request import Request
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.sources.session import Session


class CheckedLock(NamedTuple):
    """A lock and why it is stale; nothing if it is fresh."""

    path: Path
    lock: Lock
    reasons: tuple[Reason, ...]

    @property
    def command(self) -> str:
        """What makes it fresh."""
        codes = {reason.code for reason in self.reasons}
        if codes == {"no-target"}:
            return "gpuinstall lock --prune"
        return command_again(
            codes,
            self.lock.requirements_files,
            self.lock.inputs,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in the document of ``lock check --json``."""
        status = "stale" if self.reasons else "fresh"
        reasons = [reason._asdict() for reason in self.reasons]
        return {**self.lock.entry(self.path, status), "reasons": reasons}


class DeclaredUse(NamedTuple):
    """What locks are said to serve."""

    targets: tuple[str, ...] = ()
    """Targets that each have one."""
    machines: tuple[Machine, ...] = ()
    """Machines that run theirs."""
    is_complete: bool = False
    """Whether there are no other targets."""
    has_requirements: bool = True
    """Whether the user gives the requirements; else the files that a lock was made from are read again."""

    @property
    def filenames(self) -> set[str]:
        """The locks of the targets."""
        return {Target.parse(text).filename for text in self.targets}


def check_locks(
    folder: Path,
    request: Request,
    catalog: Catalog,
    declared: DeclaredUse,
    session: Session | None,
) -> list[CheckedLock]:
    """Check every lock of ours in the folder, without ``session`` only as far as no network is needed.

    Raises:
        LockError: if there is none, none for a target that is declared, or one that cannot be read.
    """
    locks = [lock for lock in read_locks(folder) if lock.evidence]
    _check_complete(locks, declared)
    conflicts = version_conflicts(locks)

    def reasons_of(lock: Lock) -> list[Reason]:
        reasons = list(_unnamed(lock, declared))
        if not declared.has_requirements:
            reasons += changed_inputs(lock.requirements_files, folder)
        reasons = reasons or stale_offline(lock, request, catalog, declared.machines)
        if reasons:
            return reasons
        for name, versions in conflicts.items():
            if name in lock.versions:
                message = f"the locks here disagree: {name} {', '.join(versions)}"
                reasons.append(Reason("versions-differ", message))
        if reasons:
            return reasons
        reasons += faults(lock, Target.parse(lock.target))
        if session:
            reasons += _stale_online(lock, request, catalog, session)
        return reasons

    checked = []
    for lock in locks:
        reasons = tuple(reasons_of(lock))
        checked.append(CheckedLock(folder / lock.name, lock, reasons))
    return checked


def _check_complete(locks: Iterable[Lock], declared: DeclaredUse) -> None:
    """Raise LockError if there is no lock, or none for a target that is declared."""
    names = {lock.name for lock in locks}
    missing = declared.filenames - names
    if not declared.targets and not names:
        missing = {"pylock.*.toml"}
    if missing:
        message = f"there is no {' and no '.join(sorted(missing))} here"
        raise LockError("lock-missing", message, hint="gpuinstall lock")


def _unnamed(lock: Lock, declared: DeclaredUse) -> Iterator[Reason]:
    """Yield that a lock's file is not named after a target, or after one that is not declared any more."""
    try:
        Target.parse(lock.target)
    except UsageError as error:
        message = f"its file name does not match its target: {error.message}"
        yield Reason("misnamed", message)
    if declared.is_complete and lock.name not in declared.filenames:
        message = "it is for none of the targets any more; gpuinstall lock --prune removes it"
        yield Reason("no-target", message)


def stale_offline(
    lock: Lock,
    request: Request,
    catalog: Catalog,
    machines: Iterable[Machine] = (),
) -> list[Reason]:
    """Return without a network why a lock is stale: other inputs, or a build that its machines do not run."""
    reasons = []
    if not same_inputs(lock, request):
        changes = _changed_lines(lock, request) or [_unlisted_change(lock, request)]
        message = f"the request has changed since: {', '.join(changes)}"
        reasons.append(Reason("inputs-changed", message))
    target = Target.parse(lock.target)
    of_target = replace(request, backend=target.backend)
    verdicts = [fit(lock, machine_for_target(target), of_target, catalog)]
    platform = (target.os, target.arch)
    alike = [machine for machine in machines if (machine.os, machine.arch) == platform]
    verdicts += [fit(lock, machine, request, catalog) for machine in alike]
    reasons += [verdict.reason for verdict in verdicts if isinstance(verdict, Rejection)]
    return list(dict.fromkeys(reasons))


def _changed_lines(lock: Lock, request: Request) -> list[str]:
    """Return what is new in a request since a lock was made, and what is gone."""
    recorded = RequirementsFile(lock.inputs, lock.constraints)
    requested = RequirementsFile(request.requirements, request.constraints)
    before = {*lines_in(recorded), *lock.sources}
    now = {*lines_in(requested), *request.sources}
    changes = []
    for line in sorted(now ^ before):
        if line.startswith(RECORDED_HASHES):
            continue
        sign = "+" if line in now else "-"
        changes.append(f"{sign} {line}")
    # What is new comes first.
    return sorted(changes, key=lambda change: change[0])


def _unlisted_change(lock: Lock, request: Request) -> str:
    """Return what has changed of the request, if its lines are the same."""
    if not has_same_build_files(lock, request.build_files_digest):
        return BUILD_FILES
    if not has_same_preferences(lock, request):
        return "other versions in the project's own lock"
    return "other hashes of files"


def faults(lock: Lock, target: Target) -> Iterator[Reason]:
    """Yield what of a lock of ours is not as it would be made for ``target``, whatever it holds."""
    if not lock.is_sealed:
        yield Reason("edited", "it was edited after gpuinstall wrote it")
    if lock.python is None:
        python = lock.pylock.requires_python or "of any kind"
        yield Reason("widened", f"it is for Python {python}, not one minor version")
    environments = lock.pylock.environments or ()
    markers = [str(marker) for marker in environments]
    if markers != [str(Marker(target.marker))]:
        yield Reason("widened", f"it does not say it is for {target} alone")


def _stale_online(
    lock: Lock,
    request: Request,
    catalog: Catalog,
    session: Session,
) -> list[Reason]:
    """Resolve what a lock was made from again, within its own versions, and return what differs from that."""
    target = Target.parse(lock.target)
    requirements = _pinned(lock, lock.inputs or request.requirements)
    pinned = replace(
        request,
        requirements=tuple(requirements),
        python=lock.python,
    )
    versions = [
        f"{name}=={_public_version(lock, name)}"
        for name in lock.versions
        if name not in lock.addresses
    ]
    again = LockRequest.for_target(target, pinned, catalog)
    labelled = {name: version for name, version in lock.versions.items() if "+" in version}
    preferred = {name: labelled[name] for name in labelled if name not in catalog.family}
    again = replace(again, pins=VersionPins(tuple(versions), preferred))
    if lock.relaxed:
        from gpuinstall.lock.relax import relaxed_again

        again = relaxed_again(again, lock.relaxed, session)
    try:
        [resolution] = resolve_locks([again], session)
    except (NoBuildError, InstallationError) as error:
        if error.code in {"network", "offline", "unreachable"}:
            raise
        return [Reason("withdrawn", error.why or error.message)]
    made_for = replace(request, requirements=lock.inputs)
    return [*_differing_record(lock, resolution, made_for), *_differing(lock, resolution)]


def _differing_record(lock: Lock, resolution: Resolution, request: Request) -> Iterator[Reason]:
    """Compare what a lock says of its making with what it would say."""
    made = _comparable(evidence_of(resolution, request, FolderRequest()))
    recorded = _comparable(lock.evidence)
    for key in sorted(made):
        if recorded[key] != made[key]:
            build = resolution.choice.build.name
            yield Reason("evidence", f"its record of {key} is not that of {build} and the request")


def _comparable(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return what does not change as long as the versions of a lock stay."""
    compared = {key: evidence.get(key) for key in ("inputs-digest", "torch", "backend")}
    floors = evidence.get("floors", {})
    if isinstance(floors, dict):
        # That of glibc is the wheels'.
        floors = {name: floor for name, floor in floors.items() if name != "glibc"}
    return {**compared, "floors": floors}


def _pinned(
    lock: Lock,
    requirements: Iterable[str],
) -> Iterator[str]:
    """Yield requirements, each in the version that a lock has of it; torch is always among them."""
    names = set()
    for requirement in map(parse_requirement, requirements):
        name = requirement.name
        names.add(name)
        version = _public_version(lock, name)
        if name in lock.addresses:
            yield lock.addresses[name].replace(f"{name} @", f"{name}{requirement.extras} @", 1)
        elif requirement.url or requirement.marker or not version:
            yield requirement.text
        else:
            yield f"{name}{requirement.extras}=={version}"
    if "torch" not in names and "torch" in lock.versions:
        yield f"torch=={_public_version(lock, 'torch')}"


def _public_version(lock: Lock, name: str) -> str:
    """Return the version of a package without its label; empty if it has none."""
    version = lock.versions.get(name, "")
    return version.partition("+")[0]


def _differing(lock: Lock, resolution: Resolution) -> Iterator[Reason]:
    """Compare a lock with today's resolution: its packages, their addresses, and the hashes that are known."""
    names = [package.name for package in lock.pylock.packages]
    today = resolution.held.keys()
    for name in sorted(today - set(names)):
        yield Reason("incomplete", f"{name}, required by its packages, is missing")
    for name in sorted(set(names) - today):
        yield Reason("not-asked-for", f"{name} is in it, but nothing requires it")
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Reason("twice", f"{name} is in it {names.count(name)} times")
    for name in uninstalled(lock, resolution.target, resolution.choice.python):
        yield Reason("uninstalled", f"{name} would not be installed: its marker never holds")
    known = resolution.hashes.known
    for name in sorted(today & lock.versions.keys()):
        urls = {file.url for file in resolution.files if file.package == name}
        locked = lock.hashes_by_package[name]
        hashes = {known[url] for url in urls if url in known}
        unexpected = {file.url for file in lock.files if file.package == name} - urls
        if "" in locked or hashes - locked:
            message = f"{name} {lock.versions[name]} has changed on its index"
            yield Reason("hash-differs", message)
        elif unexpected:
            message = f"{name} comes from an unexpected place: {min(unexpected)}"
            yield Reason("other-address", message)
