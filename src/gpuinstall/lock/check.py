"""Whether a lock is fresh, and if not, why: first without a network, then against what the sources hold today."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from gpuinstall.errors import InstallationError, LockError, NoBuildError, UsageError
from gpuinstall.finding import Reason, Rejection
from gpuinstall.lock.build_files import BUILD_FILES, has_same_build_files
from gpuinstall.lock.declaration import changed_inputs, command_again, digest, plain
from gpuinstall.lock.fit import fit, locked_build, read_locks, same_inputs, uninstalled
from gpuinstall.lock.lock import Lock, version_conflicts
from gpuinstall.lock.making import resolve_locks
from gpuinstall.lock.request import LockRequest, VersionPins, machine_for_target
from gpuinstall.lock.target import Target
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.provenance import RECORDED_HASHES
from gpuinstall.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from packaging.pylock import Package

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.machine import Machine
    from gpuinstall.request import Request
    from gpuinstall.session import Session


class CheckedLock(NamedTuple):
    """A lock and why it is stale; nothing where it is fresh."""

    path: Path
    lock: Lock
    reasons: tuple[Reason, ...]

    @property
    def command(self) -> str:
        """What makes it fresh."""
        codes = {reason.code for reason in self.reasons}
        if codes == {"no-target"}:
            return "gpuinstall lock --prune"
        return command_again(codes, self.lock.requirements_files, self.lock.inputs)

    def to_dict(self) -> dict[str, Any]:
        """Write its entry in the document of ``lock check --json``."""
        entry = self.lock.entry(self.path, "stale" if self.reasons else "fresh")
        return entry | {"reasons": [reason._asdict() for reason in self.reasons]}


class DeclaredUse(NamedTuple):
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
    missing = (
        sorted(wanted - {lock.name for lock in locks}) if declared.targets or not locks else []
    )
    if missing:
        raise LockError(
            "lock-missing", f"there is no {' and no '.join(missing)} here", hint="gpuinstall lock"
        )

    apart = {
        name: Reason("versions-differ", f"the locks here disagree: {name} {', '.join(versions)}")
        for name, versions in version_conflicts(locks).items()
    }

    def reasons(lock: Lock) -> tuple[Reason, ...]:
        files = {} if declared.named else lock.requirements_files
        return (
            (*_unnamed(lock, declared), *changed_inputs(files, folder))
            or stale_here(lock, request, catalog, declared.machines)
            or tuple(reason for name, reason in apart.items() if name in lock.versions)
            or (
                *_tampered(lock, catalog),
                *(_stale_there(lock, request, catalog, session) if session else ()),
            )
        )

    return [CheckedLock(folder / lock.name, lock, reasons(lock)) for lock in locks]


def stale_here(
    lock: Lock, request: Request, catalog: Catalog, machines: Iterable[Machine] = ()
) -> tuple[Reason, ...]:
    """Say without a network why a lock is stale: other inputs, or a build that its machines do not run."""
    reasons = []
    if not same_inputs(lock, request):
        before = {
            *plain(lock.inputs),
            *(f"-c {text}" for text in plain(lock.constraints)),
            *lock.sources,
        }
        now = {
            *plain(request.requirements),
            *(f"-c {text}" for text in plain(request.constraints)),
            *request.sources,
        }
        moved = [
            *(f"+ {text}" for text in sorted(now - before)),
            *(f"- {text}" for text in sorted(before - now)),
        ]
        readable = [line for line in moved if not line[2:].startswith(RECORDED_HASHES)]
        changes = ", ".join(readable) or _unlisted_change(lock, request)
        reasons.append(Reason("inputs-changed", f"the request has changed since: {changes}"))
    target = Target.parse(lock.target)
    judged = [
        fit(lock, machine_for_target(target), replace(request, backend=target.backend), catalog)
    ]
    alike = (
        machine for machine in machines if (machine.os, machine.arch) == (target.os, target.arch)
    )
    judged += [fit(lock, machine, request, catalog) for machine in alike]
    reasons += [verdict.reason for verdict in judged if isinstance(verdict, Rejection)]
    return tuple(dict.fromkeys(reasons))


def _unlisted_change(lock: Lock, request: Request) -> str:
    """Say what has changed of the request, if its lines are the same."""
    if not has_same_build_files(lock, request.build_files_digest):
        return BUILD_FILES
    if request.sourcing.code_check and not lock.code_check:
        return "packages need code for the GPUs, which the lock was made without"
    if lock.evidence.get("preferred-digest", digest(())) != digest(request.preferred):
        return "other versions in the project's own lock"
    return "other hashes of files"


def faults(lock: Lock, target: Target) -> Iterator[Reason]:
    """Say what of a lock of ours is not as it would be made for ``target``."""
    if not lock.is_sealed:
        yield Reason("edited", "it was edited after gpuinstall wrote it")
    if lock.python is None:
        python = lock.pylock.requires_python or "of any kind"
        yield Reason("widened", f"it is for Python {python}, not one minor version")
    if [str(marker) for marker in lock.pylock.environments or ()] != [str(Marker(target.marker))]:
        yield Reason("widened", f"it does not say it is for {target} alone")
    if lock.evidence.get("inputs-digest") != digest(lock.inputs):
        yield Reason("edited", "its record of its inputs does not match")
    for name, times in Counter(package.name for package in lock.pylock.packages).items():
        if times > 1:
            yield Reason("twice", f"{name} is in it {times} times")
    for asked in map(parse_requirement, lock.inputs):
        if asked.marker is None and asked.url is None and asked.name not in lock.names:
            yield Reason("incomplete", f"{asked.name}, which was requested, is missing")
    for package in lock.pylock.packages:
        yield from _package_faults(package, lock, target)


def _tampered(lock: Lock, catalog: Catalog) -> Iterator[Reason]:
    """Say what of a lock is not as it was made, or not as it would be made."""
    target = Target.parse(lock.target)
    yield from faults(lock, target)
    machine = machine_for_target(target)
    build = locked_build(lock, machine, catalog)
    if build is None:
        return
    torch, backend = lock.evidence.get("torch"), lock.evidence.get("backend")
    if (torch, backend) != (str(build.torch), build.backend.tag):
        yield Reason(
            "evidence", f"it claims torch {torch} for {backend}, but contains {build.name}"
        )
    floors = lock.evidence.get("floors", {})
    written = (
        {name: floor for name, floor in floors.items() if name != "glibc"}
        if isinstance(floors, dict)
        else None
    )
    if written != dict(rules_for(machine, catalog, {build.backend.kind}).floors(build)):
        yield Reason("evidence", f"its minimum versions are not those of {build.name}")


def _package_faults(package: Package, lock: Lock, target: Target) -> Iterator[Reason]:
    if package.name in uninstalled(lock, target, lock.python or "3.12"):
        yield Reason(
            "uninstalled", f"{package.name} would not be installed: {package.marker} never holds"
        )
    for wheel in package.wheels or ():
        if not _is_of(wheel.filename, package):
            yield Reason(
                "misnamed-file",
                f"{wheel.filename} is not a wheel of {package.name} {package.version}",
            )
    entries: list[Any] = [*(package.wheels or ()), *filter(None, (package.sdist, package.archive))]
    if not all("sha256" in entry.hashes for entry in entries):
        yield Reason("unhashed", f"a file of {package.name} has no sha256")


def _is_of(filename: str, package: Package) -> bool:
    try:
        name, version, _, _ = parse_wheel_filename(filename)
    except InvalidWheelFilename:
        return False
    return name == canonicalize_name(package.name) and package.version in {None, version}


def _stale_there(
    lock: Lock, request: Request, catalog: Catalog, session: Session
) -> tuple[Reason, ...]:
    """Resolve what a lock was made from again, within its own versions: what differs from that is said."""
    target = Target.parse(lock.target)
    inputs = lock.inputs or request.requirements
    asked = replace(request, requirements=tuple(_pinned(lock, inputs)), python=lock.python)
    versions = {name: version.partition("+")[0] for name, version in lock.versions.items()}
    held = tuple(
        f"{name}=={version}" for name, version in versions.items() if name not in lock.addresses
    )
    wanted = replace(LockRequest.for_target(target, asked, catalog), pins=VersionPins(held))
    try:
        resolution = resolve_locks([wanted], session)[0]
    except (NoBuildError, InstallationError) as error:
        if error.code in {"network", "offline", "unreachable"}:
            raise
        return (Reason("withdrawn", error.why or error.message),)
    return tuple(_differing(lock, resolution))


def _pinned(lock: Lock, requirements: Iterable[str]) -> Iterator[str]:
    """Write what was asked for, each in the version that a lock has of it; torch is always among it."""
    names = set()
    for asked in map(parse_requirement, requirements):
        names.add(asked.name)
        version = lock.versions.get(asked.name, "").partition("+")[0]
        if asked.name in lock.addresses:
            yield lock.addresses[asked.name]
        elif asked.url or asked.marker or not version:
            yield asked.text
        else:
            yield f"{asked.name}{asked.extras}=={version}"
    if "torch" not in names and "torch" in lock.versions:
        yield f"torch=={lock.versions['torch'].partition('+')[0]}"


def _differing(lock: Lock, resolution: Resolution) -> Iterator[Reason]:
    """Compare a lock with today's resolution: its packages, their addresses, and the hashes that are known."""
    today = resolution.held.keys()
    for name in sorted(resolution.versions.keys() - lock.versions.keys()):
        yield Reason("incomplete", f"{name}, required by its packages, is missing")
    for name in sorted(lock.names - today):
        yield Reason("not-asked-for", f"{name} is in it, but nothing requires it")
    for name in sorted(today & lock.versions.keys()):
        listed = {file.url for file in resolution.files if file.package == name}
        known = {resolution.hashes.known.get(url) for url in listed} - {None}
        strange = {file.url for file in lock.files if file.package == name} - listed
        if known - lock.hashes(name):
            yield Reason("hash-differs", f"{name} {lock.versions[name]} has changed on its index")
        elif strange:
            yield Reason("other-address", f"{name} comes from an unexpected place: {min(strange)}")


def _unnamed(lock: Lock, declared: DeclaredUse) -> Iterator[Reason]:
    """Say that a lock's file is not named after a target, or after one that nobody names any more."""
    try:
        Target.parse(lock.target)
    except UsageError as error:
        yield Reason("misnamed", f"its file name does not match its target: {error.message}")
    if declared.every and lock.name not in {
        Target.parse(text).filename for text in declared.targets
    }:
        yield Reason(
            "no-target",
            "it is for none of the targets any more; gpuinstall lock --prune removes it",
        )
