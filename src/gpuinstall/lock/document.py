"""New locks from resolutions: what one target needs, written in one way, with the evidence of its making."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.markers import Marker

from gpuinstall.base import uv
from gpuinstall.base.errors import InternalError
from gpuinstall.lock.fetch import fetch_missing
from gpuinstall.lock.lock import Lock, LockedFile, Record, parse, render, sealed, unknown_hash
from gpuinstall.lock.transfer import Transfer, cache_words
from gpuinstall.machine.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.target import Target
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Head

    _Table = Mapping[str, Any]
    _Hashes = Mapping[str, str]


def build_locks(
    resolutions: Sequence[Resolution],
    requests: Sequence[Request],
    session: Session,
    folder: Path = Path(),
) -> list[Lock]:
    """Fetch what has no hash, each file once, and return a lock of each resolution.

    Args:
        resolutions: What the locks are made of.
        requests: What each was resolved for.
        session: What fetches.
        folder: Where the locks will lie (the working folder), from which paths in them begin.
    """
    [first, *others] = resolutions
    if first.hashes.missing and not others and Marker(first.target.marker).evaluate():
        lock = build_incomplete(first, requests[0], session, folder)
        return [_complete(lock, first, session)]
    hashes = fetch_missing(reduce(or_, (resolution.hashes for resolution in resolutions)), session)
    return [
        lock_of(resolution, request, hashes, folder)
        for resolution, request in zip(resolutions, requests, strict=True)
    ]


def _complete(lock: Lock, resolution: Resolution, session: Session) -> Lock:
    """Fetch what the lock of a machine like this one lacks into uv's cache, where an installation finds it."""
    choice = resolution.choice
    heads = _later(resolution)
    private_lock = session.scratch / "pylock.private.toml"
    transfer = Transfer(
        lock=lock,
        choice=choice,
        private_lock=private_lock,
        folder=Path.cwd(),
        missing={file: head.size or 0 for file, head in heads.items()},
        heads=heads,
        only={file.package for file in heads},
    )
    words = uv.for_target(choice.python, resolution.target.uv_platform)
    words += cache_words(lock, choice, session)
    command = uv.unpack(session.python, private_lock, session.scratch / "unpacked", words)
    return transfer.run(command, session)


def build_incomplete(
    resolution: Resolution,
    request: Request,
    session: Session,
    folder: Path = Path(),
) -> Lock:
    """Return a lock to install from: its wheels that lack a hash get it on their way, and nobody may keep it so."""
    later = {file.url: unknown_hash(file.url) for file in _later(resolution)}
    files = [file for file in resolution.files if file.url not in later]
    hashes = fetch_missing(resolution.hashes.of(files), session)
    return lock_of(resolution, request, {**hashes, **later}, folder)


def _later(resolution: Resolution) -> dict[LockedFile, Head]:
    """Return the wheels of indexes that give no hash of them."""
    packages = resolution.document["packages"]
    with_wheels = {package["name"] for package in packages if package.get("wheels")}
    missing = resolution.hashes.missing
    return {file: head for file, head in missing.items() if file.package in with_wheels}


def lock_of(
    resolution: Resolution,
    request: Request,
    hashes: _Hashes,
    folder: Path,
) -> Lock:
    """Return the lock of a resolution; ``hashes`` are by address."""
    made = document(
        _with_archives(resolution),
        hashes,
        resolution.target,
        resolution.choice.python,
        record_of(resolution, request),
        folder=folder,
    )
    return parse(resolution.target.filename, render(made))


def _with_archives(resolution: Resolution) -> dict[str, Any]:
    """Return what was resolved, with files as archives that pip takes by their address alone."""
    files = resolution.request.files
    packages = [dict(package) for package in resolution.document["packages"]]
    for package in packages:
        if any(wheel.by_address for wheel in files.get(package["name"], ())):
            package["archive"] = package.pop("wheels")[0]
    return {**resolution.document, "packages": packages}


def document(
    resolved: _Table,
    hashes: _Hashes,
    target: Target,
    python: str,
    record: Record,
    *,
    folder: Path = Path(),
) -> dict[str, Any]:
    """Return the lock of ``target`` for Python ``X.Y``, to lie in ``folder``; ``hashes`` are by address."""
    packages = [_package(package, hashes, folder) for package in resolved.get("packages", ())]
    return sealed(
        {
            "lock-version": "1.0",
            "environments": [target.marker],
            "requires-python": f"=={python}.*",
            "created-by": "gpuinstall",
            "packages": packages,
            "tool": {"gpuinstall": record.to_table()},
        }
    )


def record_of(resolution: Resolution, request: Request) -> Record:
    """Return what a lock records: its request, the build with its floors, what no hash pins."""
    build = resolution.choice.build
    machine = resolution.request.machine
    catalog = resolution.request.catalog
    rules = rules_for(machine, catalog, {build.backend.kind})
    packages = resolution.document["packages"]
    unhashed = [one["name"] for one in packages if "directory" in one or "vcs" in one]
    return replace(
        Record.of(request),
        torch=str(build.torch),
        backend=build.backend.tag,
        catalogue=catalog.date,
        unhashed=tuple(unhashed),
        architectures=tuple(build.code),
        floors=dict(rules.floors(build)),
        apart=tuple(sorted(resolution.apart)),
        relaxed=dict(resolution.relaxed),
    )


def _package(
    package: _Table,
    hashes: _Hashes,
    folder: Path,
) -> dict[str, Any]:
    """Return one package: its files with their hashes, or the folder or commit that no hash pins."""
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
        entry["directory"] = {**directory, "path": _path(directory["path"], folder)}
    return entry


def _file(entry: _Table, hashes: _Hashes, folder: Path) -> dict[str, Any]:
    address = entry.get("url") or Path(entry["path"]).as_uri()
    if address not in hashes:
        raise InternalError("hash-missing", f"{address} has no hash")
    file = {"url": address} if "url" in entry else {"path": _path(entry["path"], folder)}
    if "subdirectory" in entry:
        file["subdirectory"] = entry["subdirectory"]
    return {**file, "hashes": {"sha256": hashes[address]}}


def _path(path: str, folder: Path) -> str:
    """Return a path from the lock's folder on, or an absolute one if there is none."""
    with suppress(ValueError):
        path = os.path.relpath(path, folder)
    return Path(path).as_posix()
