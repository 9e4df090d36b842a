"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpuinstall.base.errors import InstallationError, LockError, NoBuildError, UsageError
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.lock.build_files import BUILD_FILES, has_same_build_files
from gpuinstall.lock.declaration import changed_inputs, command_again, digest, lines_in
from gpuinstall.lock.fit import (
    fit,
    has_same_preferences,
    locked_build,
    read_locks,
    same_inputs,
    uninstalled,
)
from gpuinstall.lock.lock import Lock, files_of_package, version_conflicts
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest, VersionPins, machine_for_target
from gpuinstall.lock.target import Target
from gpuinstall.machine.vendors import rules_for
from gpuinstall.sources.provenance import RECORDED_HASHES
from gpuinstall.sources.requirements_file import RequirementsFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from packaging.pylock import Package

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
        reasons += _tampered(lock, catalog)
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


def _tampered(lock: Lock, catalog: Catalog) -> Iterator[Reason]:
    """Yield what of a lock is not as it was made, or not as it would be made."""
    target = Target.parse(lock.target)
    yield from faults(lock, target)
    machine = machine_for_target(target)
    build = locked_build(lock, machine, catalog)
    if build is None:
        return
    torch = lock.evidence.get("torch")
    backend = lock.evidence.get("backend")
    if torch != str(build.torch) or backend != build.backend.tag:
        message = f"it claims torch {torch} for {backend}, but contains {build.name}"
        yield Reason("evidence", message)
    rules = rules_for(
        machine,
        catalog,
        {build.backend.kind},
    )
    floors = lock.evidence.get("floors", {})
    if isinstance(floors, dict):
        # That of glibc is the target's, not the build's.
        floors = {**floors}
        floors.pop("glibc", None)
    if floors != dict(rules.floors(build)):
        yield Reason("evidence", f"its minimum versions are not those of {build.name}")


def faults(lock: Lock, target: Target) -> Iterator[Reason]:
    """Yield what of a lock of ours is not as it would be made for ``target``."""
    yield from _record_faults(lock, target)
    packages = lock.pylock.packages
    names = Counter(package.name for package in packages)
    for name, times in names.items():
        if times > 1:
            yield Reason("twice", f"{name} is in it {times} times")
    for requirement in map(parse_requirement, lock.inputs):
        if requirement.marker or requirement.url:
            continue
        if requirement.name not in names:
            message = f"{requirement.name}, which was requested, is missing"
            yield Reason("incomplete", message)
    for package in packages:
        yield from _package_faults(package, lock, target)


def _record_faults(lock: Lock, target: Target) -> Iterator[Reason]:
    """Yield what of the record of a lock's making is not as it would be."""
    if not lock.is_sealed:
        yield Reason("edited", "it was edited after gpuinstall wrote it")
    if lock.python is None:
        python = lock.pylock.requires_python or "of any kind"
        yield Reason("widened", f"it is for Python {python}, not one minor version")
    environments = lock.pylock.environments or ()
    markers = [str(marker) for marker in environments]
    if markers != [str(Marker(target.marker))]:
        yield Reason("widened", f"it does not say it is for {target} alone")
    if lock.evidence.get("inputs-digest") != digest(lock.inputs):
        yield Reason("edited", "its record of its inputs does not match")


def _package_faults(
    package: Package,
    lock: Lock,
    target: Target,
) -> Iterator[Reason]:
    if package.name in uninstalled(lock, target, lock.python or "3.12"):
        message = f"{package.name} would not be installed: {package.marker} never holds"
        yield Reason("uninstalled", message)
    for wheel in package.wheels or ():
        if not _is_of(wheel.filename, package):
            message = f"{wheel.filename} is not a wheel of {package.name} {package.version}"
            yield Reason("misnamed-file", message)
    files = files_of_package(package)
    if not all("sha256" in file.hashes for file in files):
        yield Reason("unhashed", f"a file of {package.name} has no sha256")


def _is_of(filename: str, package: Package) -> bool:
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    if name != canonicalize_name(package.name):
        return False
    return package.version in {None, version}


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
    again = replace(again, pins=VersionPins(tuple(versions)))
    if lock.relaxed:
        from gpuinstall.lock.relax import relaxed_again

        again = relaxed_again(again, lock.relaxed, session)
    try:
        [resolution] = resolve_locks([again], session)
    except (NoBuildError, InstallationError) as error:
        if error.code in {"network", "offline", "unreachable"}:
            raise
        return [Reason("withdrawn", error.why or error.message)]
    return list(_differing(lock, resolution))


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
    today = resolution.held.keys()
    missing = resolution.versions.keys() - lock.versions.keys()
    for name in sorted(missing):
        yield Reason("incomplete", f"{name}, required by its packages, is missing")
    for name in sorted(lock.names - today):
        yield Reason("not-asked-for", f"{name} is in it, but nothing requires it")
    for name in sorted(today & lock.versions.keys()):
        urls = {file.url for file in resolution.files if file.package == name}
        known = resolution.hashes.known
        hashes = {known[url] for url in urls if url in known}
        locked_urls = {file.url for file in lock.files if file.package == name}
        unexpected = locked_urls - urls
        if hashes - lock.hashes_by_package[name]:
            message = f"{name} {lock.versions[name]} has changed on its index"
            yield Reason("hash-differs", message)
        elif unexpected:
            message = f"{name} comes from an unexpected place: {min(unexpected)}"
            yield Reason("other-address", message)
