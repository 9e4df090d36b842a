"""Locks of resolutions, with the evidence of their making, written into a folder for several targets at once."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tomli_w

from gpuinstall.base.errors import LockError
from gpuinstall.base.files import holds_text, read_document, write_atomically
from gpuinstall.base.text import number_of, readable
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value, replace
from gpuinstall.lock.file.check import of_other_targets
from gpuinstall.lock.file.fetch import fetch_missing
from gpuinstall.lock.file.fit import (
    best,
    fit,
    locks_by_target,
    read_locks,
    readable_lock,
)
from gpuinstall.lock.file.lock import (
    LOCK_IN_CONFLICT,
    Lock,
    LockedFile,
    Record,
    VersionChange,
    change_lines,
    compare_versions,
    is_outdated,
    leads_out,
    parse,
    sealed,
    sides,
    unknown_hash,
    version_conflicts,
)
from gpuinstall.lock.request.declaration import locks_in
from gpuinstall.lock.solve.solve import resolve_locks
from gpuinstall.machine.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.file.entries import LockGate
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.uv.resolution import Resolution
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Head

    _Table = Mapping[str, Any]
    _Hashes = Mapping[str, str]


NOT_OF_THIS = "made for another request or other versions"


class Written(Value):
    """A lock in its folder."""

    path: Path
    lock: Lock
    status: Literal["written", "unchanged", "stale"]
    """``stale``: a dry run would write it."""
    changes: tuple[VersionChange, ...] = ()
    """The changes from the lock that lay there."""

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in the document of ``lock --json``."""
        return {
            **self.lock.entry(self.path, self.status),
            "changes": [change._asdict() for change in self.changes],
            "unhashed": list(self.lock.addresses.values()),
        }


def write_locks(
    folder: Path,
    requests: Sequence[LockRequest],
    session: Session,
    *,
    gate: LockGate,
    upgrade: bool = False,
    moving: Collection[str] = (),
    dry_run: bool = False,
) -> list[Written]:
    """Make locks, or leave alone those that serve; raise what choosing or resolving raises.

    Args:
        folder: Where they lie.
        requests: One for each.
        session: The clients of the run.
        gate: The gate for the existing locks.
        upgrade: Whether those that still serve are made anew too.
        moving: The only packages that may move.
        dry_run: Whether to resolve without writing; a file without a hash is not downloaded.
    """
    if not upgrade and not moving:
        serving = _serving(folder, requests, gate)
        if serving:
            return [_write(lock, folder) for lock in serving]
    session.sources.explain_ignored_settings(session.reporter)
    if upgrade:
        existing = _readable_locks(folder)
    else:
        existing = _existing_locks(folder, session)
    resolutions = resolve_locks(
        requests, session, locks=existing, moving=moving, upgrade=upgrade
    )
    changes = []
    for resolution in resolutions:
        before = readable_lock(folder / resolution.target.filename)
        changes.append(
            compare_versions(before.all_versions, resolution.all_versions)
            if before
            else ()
        )
    _announce(resolutions, changes, session.reporter)
    if dry_run:
        unhashed = {file for one in resolutions for file in one.hashes.missing}
        locks = build_locks(resolutions, session, folder, later=unhashed)
        written = [_compare(lock, folder) for lock in locks]
    else:
        locks = build_locks(resolutions, session, folder)
        # Each waits until the disk has it.
        written = side_by_side(partial(_write, folder=folder), locks)
    return [
        replace(one, changes=changed)
        for one, changed in zip(written, changes, strict=True)
    ]


def _serving(
    folder: Path,
    requests: Sequence[LockRequest],
    gate: LockGate,
) -> list[Lock]:
    """Return the locks that serve as they are, one for each request; none if one is missing or they do not go together.

    Args:
        folder: Where they lie.
        requests: One that names a backend is served by the lock of its target alone, another by the best for its machine.
        gate: The gate for their sources.
    """
    try:
        locks = read_locks(folder)
    except LockError as error:
        if error.code != LOCK_IN_CONFLICT:
            raise
        return []
    serving = []
    for one in requests:
        candidates = locks
        if one.request.backend is not None:
            candidates = [lock for lock in locks if lock.target == one.label]
        wanted = one.machine, one.request, one.catalog
        verdicts = [fit(lock, *wanted, gate=gate, exact=True) for lock in candidates]
        best_fit = best(verdicts, *wanted)
        if best_fit is None:
            return []
        lock = best_fit.lock
        # Its requirements may come from other files than they did.
        if lock.is_ours and (
            lock.record.requirements_files != Record.of(one.request).requirements_files
        ):
            return []
        serving.append(lock)
    has_one_python = len({lock.python for lock in serving}) == 1
    return serving if has_one_python and not version_conflicts(serving) else []


def _readable_locks(folder: Path) -> list[Lock]:
    """Return the locks of ours in a folder that can be read."""
    return [lock for lock in locks_by_target(folder).values() if lock]


def _existing_locks(folder: Path, session: Session) -> list[Lock]:
    """Return the locks of ours in a folder; of one in conflict both sides."""
    locks = []
    for path in locks_in(folder):
        texts = sides(read_document(path, path.parent))
        locks += [parse(path.name, text) for text in texts]
        if len(texts) > 1:
            session.reporter.step(
                "Merged", f"both requests of {path.name}; git add {path.name}"
            )
    return [lock for lock in locks if lock.is_ours]


def _announce(
    resolutions: Sequence[Resolution],
    changes: Sequence[Sequence[VersionChange]],
    reporter: Reporter,
) -> None:
    """Report what was chosen for each, what changes, and the bytes that have to be fetched to be hashed.

    Args:
        resolutions: What the locks are made of.
        changes: What changes in each of them, in the same order.
        reporter: Is told.
    """
    for one, changed in zip(resolutions, changes, strict=True):
        build = f"torch {one.choice.build.name} · Python {one.choice.python}"
        reporter.step("Build", f"{build} for {one.target}")
        for line in change_lines(changed):
            reporter.step("", line)
    remarks = chain.from_iterable(one.remarks for one in resolutions)
    for remark in dict.fromkeys(remarks):
        reporter.step("", remark)
    warnings = chain.from_iterable(one.plan.warnings for one in resolutions)
    for warning in dict.fromkeys(reason.message for reason in warnings):
        reporter.warn(warning)
    missing: dict[LockedFile, Head] = {}
    for one in resolutions:
        missing |= one.hashes.missing
    if missing:
        files = number_of(len(missing), "file")
        price = readable(sum(head.size or 0 for head in missing.values()))
        text = f"{files} without a hash on the index: {price} to download once"
        reporter.step("Hashes", text)


def _write(lock: Lock, folder: Path) -> Written:
    """Write a lock into its folder, unless it is already there."""
    compared = _compare(lock, folder)
    if compared.status == "unchanged":
        return compared
    write_atomically(compared.path, lock.text)
    return replace(compared, status="written")


def _compare(lock: Lock, folder: Path) -> Written:
    """Compare a lock with the one in its folder."""
    path = folder / lock.name
    status: Literal["unchanged", "stale"] = "stale"
    if holds_text(path, lock.text):
        status = "unchanged"
    return Written(path, lock, status)


def others_beside(
    locks: Sequence[Lock], folder: Path, targets: Sequence[str]
) -> Iterator[str]:
    """Yield what is wrong with the other locks of ours in a folder, beside those that were just made.

    Args:
        locks: Those that were made.
        folder: Where they lie.
        targets: Those that the folder's settings name; none: any lock may lie there.
    """
    made = {lock.name for lock in locks}
    outdated = [
        other
        for other in _readable_locks(folder)
        if other.name not in made and any(is_outdated(other, lock) for lock in locks)
    ]
    left_over = of_other_targets(outdated, targets)
    for lock in left_over:
        yield f"{lock.name}: {NOT_OF_THIS}, and {lock.target} is no target here; rm {lock.name}"
    names = [lock.name for lock in outdated if lock not in left_over]
    if names:
        yield f"{', '.join(names)}: {NOT_OF_THIS}; gpuinstall lock updates them"


def build_locks(
    resolutions: Sequence[Resolution],
    session: Session,
    folder: Path,
    later: Collection[LockedFile] = (),
) -> list[Lock]:
    """Fetch what has no hash, each file once, and return a lock of each resolution.

    Args:
        resolutions: What the locks are made of.
        session: What fetches.
        folder: Where the locks will lie (the working folder), from which paths in them begin.
        later: The files that get their hash while they are installed: nobody may keep the locks before.
    """
    hashes: dict[str, str] = {}
    missing: dict[LockedFile, Head] = {}
    for resolution in resolutions:
        hashes |= resolution.hashes.known
        missing |= resolution.hashes.missing
    now = {file: head for file, head in missing.items() if file not in later}
    hashes |= fetch_missing(now, session)
    hashes |= {file.url: unknown_hash(file.url) for file in later}
    return [lock_of(resolution, hashes, folder) for resolution in resolutions]


def lock_of(
    resolution: Resolution,
    hashes: _Hashes,
    folder: Path,
) -> Lock:
    """Return the lock of a resolution, with its seal.

    Args:
        resolution: What it is made of.
        hashes: The sha256 of every file by its address.
        folder: Where the lock will lie, from which paths in it begin.
    """
    # pip takes such a file by its address alone.
    by_address = {
        name
        for name, files in resolution.prebuilt.items()
        if any(wheel.by_address for wheel in files)
    }
    packages = []
    for package in resolution.packages:
        entry = _package(package, hashes, folder)
        if "wheels" in entry and package["name"] in by_address:
            entry["archive"], *_ = entry.pop("wheels")
        packages.append(entry)
    document = {
        "lock-version": "1.0",
        "environments": [resolution.target.marker],
        "requires-python": f"=={resolution.choice.python}.*",
        "created-by": "gpuinstall",
        "packages": packages,
        "tool": {"gpuinstall": _record_of(resolution).to_table()},
    }
    return parse(resolution.target.filename, tomli_w.dumps(sealed(document)))


def _record_of(resolution: Resolution) -> Record:
    """Return what a lock records: its request, the build with its floors, what no hash pins."""
    build = resolution.choice.build
    made_for = resolution.request
    written = made_for.written or made_for.request
    rules = rules_for(made_for.machine, made_for.catalog, {build.backend.kind})
    packages = resolution.packages
    unhashed = [one["name"] for one in packages if "directory" in one or "vcs" in one]
    return replace(
        Record.of(written),
        torch=str(build.torch),
        backend=build.backend.tag,
        catalogue=made_for.catalog.date,
        unhashed=tuple(unhashed),
        architectures=tuple(build.code),
        floors=dict(rules.floors(build)),
        apart=tuple(sorted(resolution.apart)),
        relaxed={name: one.text for name, one in resolution.relaxed.items()},
    )


def _package(
    package: _Table,
    hashes: _Hashes,
    folder: Path,
) -> dict[str, Any]:
    """Return one package: its files with their hashes, or the folder or commit that no hash pins.

    Args:
        package: The package, as uv's lock has it.
        hashes: The sha256 of every file by its address.
        folder: Where the lock will lie, from which paths in it begin.
    """
    keys = ("name", "version", "marker", "index", "vcs")
    entry = {key: package[key] for key in keys if key in package}
    if package.get("wheels"):
        entry["wheels"] = [_file(wheel, hashes, folder) for wheel in package["wheels"]]
        return entry
    for kind in ("sdist", "archive"):
        if kind in package:
            entry[kind] = _file(package[kind], hashes, folder)
    if "directory" in package:
        directory = package["directory"]
        path = _path(directory["path"], folder)
        entry["directory"] = {**directory, "path": path}
    return entry


def _file(
    entry: _Table,
    hashes: _Hashes,
    folder: Path,
) -> dict[str, Any]:
    # Hashes are kept by address, also of files that lie here.
    address = entry.get("url") or Path(entry["path"]).as_uri()
    file = {"url": address}
    if "path" in entry:
        path = _path(entry["path"], folder)
        # Nobody else has what is outside: it is told by its address, as what a folder of find-links has.
        if not leads_out(path):
            file = {"path": path}
    if "subdirectory" in entry:
        file["subdirectory"] = entry["subdirectory"]
    return {**file, "hashes": {"sha256": hashes[address]}}


def _path(path: str, folder: Path) -> str:
    """Return a path from the lock's folder on, or an absolute one if there is none."""
    with suppress(ValueError):
        path = os.path.relpath(path, folder)
    return Path(path).as_posix()
