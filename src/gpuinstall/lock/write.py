"""Write lock files for one or more targets."""

from __future__ import annotations

import dataclasses
import os
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w
from packaging.pylock import Package, PackageArchive, Pylock
from packaging.version import Version

from gpuinstall.base.files import (
    has_text,
    leads_outside,
    write_atomically,
)
from gpuinstall.base.text import format_count, format_size
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import Value, asdict, replace
from gpuinstall.base.versions import version_key
from gpuinstall.environments.rights import check_writable
from gpuinstall.lock.check import find_locks_of_other_targets
from gpuinstall.lock.file.fit import (
    check_lock,
    find_best_lock,
)
from gpuinstall.lock.file.lock import (
    Lock,
    LockedFile,
    Record,
    VersionChange,
    add_seal,
    compare_requests,
    compare_versions,
    find_different_versions,
    find_file_url,
    find_version_conflicts,
    format_changes,
    format_versions,
    is_outdated,
    parse,
    placeholder_hash,
)
from gpuinstall.lock.resolve.locks import resolve_locks
from gpuinstall.lock.resolve.previous import Previous
from gpuinstall.lock.uv.fetch import fetch_missing
from gpuinstall.machine.vendors import create_rules
from gpuinstall.sources.sources import report_ignored_settings

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.request import Request
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.lock.file.folder import FolderLocks
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.uv.resolution import Resolution
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Client, Head

    _Hashes = Mapping[str, str]


OUTDATED = "has a different request"


class WrittenLock(Value):
    """A lock file, and whether it was written."""

    path: Path
    lock: Lock
    status: Literal["written", "unchanged", "stale"]
    """The write status; ``stale`` if a dry run would update the lock file."""
    changes: tuple[VersionChange, ...] = ()
    """The version changes since the previous lock file."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of a lock file in ``lock --json``."""
        return {
            **self.lock.to_entry(self.path, self.status),
            "changes": [*map(asdict, self.changes)],
            "unhashed": list(self.lock.addresses.values()),
        }


class WriteOptions(Value):
    """The options of ``lock``."""

    upgrade: bool = False
    """Whether to resolve even if the existing lock files are up to date."""
    moving: Collection[str] = ()
    """The packages that may change. Others keep their versions."""
    dry_run: bool = False
    """Whether to write no lock files, and download no files to hash."""


def write_locks(
    requests: Sequence[LockRequest],
    session: Session,
    existing: FolderLocks,
    gate: LockGate,
    options: WriteOptions,
) -> list[WrittenLock]:
    """Write a lock file for each request unless all are up to date.

    Args:
        requests: A request for each lock file.
        session: The HTTP clients and caches.
        existing: The lock files in the folder.
        gate: Checks the package sources in existing lock files.
        options: What to upgrade, and whether to write.
    """
    folder, upgrade, moving = gate.folder, options.upgrade, options.moving
    if not upgrade and not moving:
        current = _find_current_locks(existing, requests, gate)
        if current:
            return [_write(lock, folder) for lock in current]
    if not options.dry_run:
        check_writable(folder)
    report_ignored_settings(session.sources, session.reporter)
    kept = existing.valid if upgrade else existing.check()
    existing.report_damaged(requests[0].request, session.reporter)
    locked = [lock for lock in kept if lock.is_from_gpuinstall]
    resolutions = resolve_locks(requests, session, Previous(locked, moving, upgrade))
    before = {lock.name: lock.all_versions for lock in existing.valid}
    changes = [
        compare_versions(before[name], one.all_versions) if name in before else ()
        for one in resolutions
        for name in [one.target.filename]
    ]
    _report_resolutions(resolutions, changes, session.reporter)
    missing = {file for one in resolutions for file in one.hashes.missing}
    later = missing if options.dry_run else ()
    hashes = fetch_hashes(resolutions, later, session.client, session.reporter)
    locks = build_locks(requests, resolutions, hashes, folder)
    # Write concurrently, because each write waits for the disk.
    write = partial(_write, folder=folder, dry_run=options.dry_run)
    written = map_concurrently(write, locks)
    return [
        replace(one, changes=changed)
        for one, changed in zip(written, changes, strict=True)
    ]


def _find_current_locks(
    existing: FolderLocks,
    requests: Sequence[LockRequest],
    gate: LockGate,
) -> list[Lock]:
    """Return the existing lock file for each request if all are up to date.

    Returns:
        The lock files, or an empty list if a lock file is missing or stale, or if
        their versions conflict.
    """
    locks = existing.check()
    current = []
    for one in requests:
        candidates = locks
        if one.request.backend is not None:
            candidates = [lock for lock in locks if lock.target == one.label]
        verdicts = [check_lock(lock, one, gate=gate, exact=True) for lock in candidates]
        chosen = find_best_lock(verdicts, one)
        if chosen is None or not chosen.lock.is_sealed:
            return []
        best = one.outcome
        if best.choice and not chosen.plan.covered_gpus >= best.covered_gpus:
            return []
        lock = chosen.lock
        # The same requirements may now be in other files.
        if compare_requests(lock.record, Record.from_request(one.request)).files:
            return []
        current.append(lock)
    has_one_python = len({lock.python for lock in current}) == 1
    return current if has_one_python and not find_version_conflicts(current) else []


def _report_resolutions(
    resolutions: Sequence[Resolution],
    changes: Sequence[Sequence[VersionChange]],
    reporter: Reporter,
) -> None:
    """Report selected builds, version changes, and downloads for hashes."""
    for one, changed in zip(resolutions, changes, strict=True):
        build = f"torch {one.choice.build.name} · Python {one.choice.python}"
        reporter.step("Build", f"{build} for {one.target}")
        for line in format_changes(changed):
            reporter.step("", line)
    remarks = chain.from_iterable(one.remarks for one in resolutions)
    for remark in dict.fromkeys(remarks):
        reporter.step("", remark)
    warnings = chain.from_iterable(one.plan.warnings for one in resolutions)
    for warning in dict.fromkeys(warnings):
        reporter.warn(warning.message, *warning.fixes)
    missing: dict[LockedFile, Head] = {}
    for one in resolutions:
        missing |= one.hashes.missing
    if missing:
        files = format_count(len(missing), "file")
        size = format_size(sum(head.size or 0 for head in missing.values()))
        text = f"{files} without a hash on the index: {size} to download once"
        reporter.step("Hashes", text)


def _write(lock: Lock, folder: Path, *, dry_run: bool = False) -> WrittenLock:
    """Write a lock file to a folder unless its text is unchanged."""
    path = folder / lock.name
    if has_text(path, lock.text):
        return WrittenLock(path, lock, "unchanged")
    if dry_run:
        return WrittenLock(path, lock, "stale")
    write_atomically(path, lock.text)
    return WrittenLock(path, lock, "written")


def find_warnings_about_others(
    locks: Sequence[Lock], existing: FolderLocks, config: Request
) -> Iterator[str]:
    """Yield warnings about lock files that were not rewritten.

    Args:
        locks: The new lock files.
        existing: The lock files in the folder before.
        config: The project's settings. Without targets, all targets are allowed.
    """
    new = {lock.name for lock in locks}
    before = filter(None, existing.by_target.values())
    others = [lock for lock in before if lock.name not in new]
    outdated = [
        other for other in others if any(is_outdated(other, lock) for lock in locks)
    ]
    left_over = find_locks_of_other_targets(others, config.targets)
    for lock in left_over:
        if lock in outdated:
            yield f"{lock.name}: {OUTDATED}, and {lock.target} is no longer a target; rm {lock.name}"
    kept = [lock for lock in others if lock not in left_over]
    names = [lock.name for lock in kept if lock in outdated]
    if names:
        yield f"{', '.join(names)}: {OUTDATED}; lock updates them"
    torches = find_different_versions([*locks, *kept]).get("torch")
    if kept and torches and not config.newest_per_target:
        common = min(torches.values(), key=version_key)
        yield (
            f"the lock files have torch {format_versions(torches)}; lock without a target "
            f"or machine selects one version for all, {common} or older"
        )


def fetch_hashes(
    resolutions: Iterable[Resolution],
    later: Collection[LockedFile],
    client: Client,
    reporter: Reporter,
) -> _Hashes:
    """Download files without a hash, and return the hash of every file by URL.

    Args:
        resolutions: The resolutions to lock.
        later: The files to hash during the installation. Until then, the locks have
            placeholder hashes, and must not be saved.
        client: The HTTP client.
        reporter: Reports the progress.
    """
    hashes: dict[str, str] = {}
    missing: dict[LockedFile, Head] = {}
    for resolution in resolutions:
        hashes |= resolution.hashes.known
        missing |= resolution.hashes.missing
    now = {file: head for file, head in missing.items() if file not in later}
    hashes |= fetch_missing(now, client, reporter)
    return hashes | {file.url: placeholder_hash(file.url) for file in later}


def build_locks(
    requests: Sequence[LockRequest],
    resolutions: Sequence[Resolution],
    hashes: _Hashes,
    folder: Path,
) -> list[Lock]:
    """Build a lock from each resolution, as ``build_lock``."""
    return [
        build_lock(request, resolution, hashes, folder)
        for request, resolution in zip(requests, resolutions, strict=True)
    ]


def build_lock(
    request: LockRequest, resolution: Resolution, hashes: _Hashes, folder: Path
) -> Lock:
    """Build a lock from a resolution.

    Args:
        request: The user's request, which the lock records.
        resolution: The resolution to lock.
        hashes: The SHA-256 hash of every file, by URL.
        folder: The folder for the lock file, to which locked paths are relative.
    """
    # pip installs these wheels only from an ``archive`` entry.
    by_address = {
        name
        for name, files in resolution.prebuilt.items()
        if any(wheel.by_address for wheel in files)
    }
    packages = []
    for package in resolution.packages:
        kept = _complete_package(package, hashes, folder)
        if kept.wheels and package.name in by_address:
            wheel = kept.wheels[0]
            archive = PackageArchive(
                url=wheel.url, path=wheel.path, hashes=wheel.hashes
            )
            kept = dataclasses.replace(kept, wheels=None, archive=archive)
        packages.append(kept)
    pylock = Pylock(
        lock_version=Version("1.0"), created_by="gpuinstall", packages=packages
    )
    tables = pylock.to_dict()["packages"]
    for table in tables:
        if "marker" in table:
            table["marker"] = table["marker"].replace('"', "'")  # as uv writes it
    document = {
        "lock-version": "1.0",
        "environments": [resolution.target.marker],
        "requires-python": f"=={resolution.choice.python}.*",
        "created-by": "gpuinstall",
        "packages": tables,
        "tool": {"gpuinstall": _create_record(request, resolution).to_table()},
    }
    return parse(resolution.target.filename, tomli_w.dumps(add_seal(document)))


def _create_record(request: LockRequest, resolution: Resolution) -> Record:
    build = resolution.choice.build
    catalog = resolution.request.catalog
    rules = create_rules(request.machine, catalog, {build.backend.kind})
    record = Record.from_request(request.request)
    return replace(
        record,
        asked=record.asked if request.is_backend_asked else None,
        torch=str(build.torch),
        backend=build.backend.tag,
        catalogue=catalog.date,  # prose: key of lock files
        architectures=tuple(build.code),
        floors=dict(rules.find_minimum_drivers(build)),
        glibc=resolution.target.glibc if request.machine.os == "linux" else None,
        apart=tuple(sorted(resolution.apart)),
        relaxed={name: one.text for name, one in resolution.relaxed.items()},
    )


def _complete_package(package: Package, hashes: _Hashes, folder: Path) -> Package:
    """Return a package of uv's lock with all hashes and relative paths."""
    complete = partial(_complete_file, hashes=hashes, folder=folder)
    wheels = [*map(complete, package.wheels or ())]
    directory = package.directory
    if directory:
        path = _relative_path(directory.path, folder)
        directory = dataclasses.replace(directory, path=path)
    return dataclasses.replace(
        package,
        wheels=wheels or None,
        sdist=None if wheels else complete(package.sdist),
        archive=None if wheels else complete(package.archive),
        directory=directory,
    )


def _complete_file(file: Any, hashes: _Hashes, folder: Path) -> Any:
    if file is None:
        return None
    # The URL is the key of the hash, even for a local file.
    url = find_file_url(file)
    path = file.path and _relative_path(file.path, folder)
    # Record a file outside the folder by its URL, like a find-links file.
    is_inside = path and not leads_outside(path)
    return dataclasses.replace(
        file,
        url=None if is_inside else url,
        path=path if is_inside else None,
        size=None,
        upload_time=None,
        hashes={"sha256": hashes[url]},
    )


def _relative_path(path: str, folder: Path) -> str:
    """Return a path relative to a folder unless it is on another drive."""
    # On Windows, a path on another drive cannot be relative.
    with suppress(ValueError):
        path = os.path.relpath(path, folder)
    return Path(path).as_posix()
