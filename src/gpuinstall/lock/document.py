"""New locks from resolutions: what one target needs, written in one way, with the evidence of its making."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.markers import Marker
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from gpuinstall.base import uv
from gpuinstall.base.errors import InternalError
from gpuinstall.catalog.narrowing import glibc_floor
from gpuinstall.lock.build_files import BUILD_FILES_DIGEST
from gpuinstall.lock.declaration import canonical, digest
from gpuinstall.lock.fetch import fetch_missing
from gpuinstall.lock.folder_request import FolderRequest
from gpuinstall.lock.lock import Lock, LockedFile, parse, render, sealed, unknown_hash
from gpuinstall.lock.resolver import MISSING_EXTRAS
from gpuinstall.lock.target import GLIBC, minor
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


_ANY_GLIBC = "2.0"
"""What a wheel without GNU's C library requires of it."""

_UNRECORDED = FolderRequest()
"""What is recorded of a request that no file of a folder made."""


def build_locks(
    resolutions: Sequence[Resolution],
    requests: Sequence[Request],
    session: Session,
    recorded: FolderRequest = _UNRECORDED,
    folder: Path = Path(),
) -> list[Lock]:
    """Fetch what has no hash, each file once, and return a lock of each resolution.

    Args:
        resolutions: What the locks are made of.
        requests: What each was resolved for.
        session: What fetches.
        recorded: Which files the requests were read from.
        folder: Where the locks will lie (the working folder), from which paths in them begin.
    """
    [first, *others] = resolutions
    is_here = not others and Marker(first.target.marker).evaluate()
    if first.hashes.missing and is_here:
        lock = build_incomplete(
            first,
            requests[0],
            session,
            recorded,
            folder,
        )
        return [_complete(lock, first, session)]
    hashes = fetch_missing(reduce(or_, (resolution.hashes for resolution in resolutions)), session)
    return [
        _build(resolution, request, hashes, recorded, folder)
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
    unpacked = session.scratch / "unpacked"
    command = uv.unpack(
        session.python,
        private_lock,
        unpacked,
        words,
    )
    return transfer.run(command, session)


def build_incomplete(
    resolution: Resolution,
    request: Request,
    session: Session,
    recorded: FolderRequest = _UNRECORDED,
    folder: Path = Path(),
) -> Lock:
    """Return a lock to install from: its wheels that lack a hash get it on their way, and nobody may keep it so."""
    later = {file.url: unknown_hash(file.url) for file in _later(resolution)}
    files = [file for file in resolution.files if file.url not in later]
    hashes = fetch_missing(resolution.hashes.of(files), session)
    return _build(
        resolution,
        request,
        {**hashes, **later},
        recorded,
        folder,
    )


def _later(resolution: Resolution) -> dict[LockedFile, Head]:
    """Return the wheels of indexes that give no hash of them."""
    packages = resolution.document["packages"]
    with_wheels = {package["name"] for package in packages if package.get("wheels")}
    missing = resolution.hashes.missing
    return {file: head for file, head in missing.items() if file.package in with_wheels}


def _build(
    resolution: Resolution,
    request: Request,
    hashes: _Hashes,
    recorded: FolderRequest,
    folder: Path,
) -> Lock:
    made = document(
        _with_archives(resolution),
        hashes,
        resolution.target,
        resolution.choice.python,
        evidence_of(resolution, request, recorded),
        folder=folder,
    )
    return parse(resolution.target.filename, render(made))


def _with_archives(resolution: Resolution) -> dict[str, Any]:
    """Return what was resolved, with files as archives that pip takes by their address alone."""
    files = resolution.request.files
    by_address = {name for name, wheels in files.items() if any(one.by_address for one in wheels)}
    packages = []
    for package in resolution.document["packages"]:
        entry = dict(package)
        if entry["name"] in by_address:
            entry["archive"] = entry.pop("wheels")[0]
        packages.append(entry)
    document = {**resolution.document, "packages": packages}
    document.pop(MISSING_EXTRAS, None)
    return document


def document(
    resolved: _Table,
    hashes: _Hashes,
    target: Target,
    python: str,
    evidence: _Table,
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
            "tool": {"gpuinstall": evidence},
        }
    )


def evidence_of(
    resolution: Resolution,
    request: Request,
    recorded: FolderRequest,
) -> dict[str, Any]:
    """Return what a lock says of its making: by the standard it may not steer an installation.

    Its inputs and what the folder's requirements files asked for, the build with its architectures and floors, the
    packages that no hash pins, and those that could not have the version of the other targets.
    """
    build = resolution.choice.build
    machine = resolution.request.machine
    catalog = resolution.request.catalog
    inputs = canonical(request.requirements)
    evidence: dict[str, Any] = {
        "inputs": list(inputs),
        "inputs-digest": digest(inputs),
        "torch": str(build.torch),
        "backend": build.backend.tag,
        "catalogue": catalog.date,
    }
    unhashed = [
        package["name"]
        for package in resolution.document["packages"]
        if "directory" in package or "vcs" in package
    ]
    floors = dict(rules_for(machine, catalog, {build.backend.kind}).floors(build))
    if resolution.target.os == "linux":
        floors["glibc"] = _glibc_floor(resolution)
    optional = {
        "constraints": sorted(canonical(request.constraints)),
        "sources": list(request.sources),
        "unhashed": unhashed,
        "preferred-digest": digest(request.preferred) if request.preferred else None,
        BUILD_FILES_DIGEST: request.build_files_digest,
        "asked": request.backend,
        "architectures": list(build.code),
        "floors": floors,
        "apart": sorted(resolution.apart),
        "relaxed": dict(resolution.relaxed),
        "cuda-compat": dict(request.cuda_compat),
        "request-revision": recorded.revision,
        "requirements-files": dict(recorded.files),
    }
    evidence |= {key: value for key, value in optional.items() if value}
    return evidence


def _glibc_floor(resolution: Resolution) -> str:
    """Return the glibc that the wheels require, at least the one that locks are made for."""
    floors = dict[str, list[str]]()
    for file in resolution.files:
        with suppress(InvalidWheelFilename):
            _, _, _, tags = parse_wheel_filename(file.name)
            floor = glibc_floor(tags) or _ANY_GLIBC
            floors.setdefault(file.package, []).append(floor)
    # Of the wheels of one package, the machine takes one that it can load.
    required = [min(levels, key=minor) for levels in floors.values()]
    least = min(GLIBC, resolution.target.glibc, key=minor)
    return max([least, *required], key=minor)


def _package(
    package: _Table,
    hashes: _Hashes,
    folder: Path,
) -> dict[str, Any]:
    """Return one package: its files with their hashes, or the folder or commit that no hash pins."""
    entry = {key: package[key] for key in ("name", "version", "marker", "index") if key in package}
    if package.get("wheels"):
        entry["wheels"] = [_file(wheel, hashes, folder) for wheel in package["wheels"]]
        return entry
    for kind in ("sdist", "archive"):
        if kind in package:
            entry[kind] = _file(
                package[kind],
                hashes,
                folder,
            )
            return entry
    if "directory" in package:
        directory = package["directory"]
        entry["directory"] = {**directory, "path": _path(directory["path"], folder)}
    else:
        entry["vcs"] = package["vcs"]
    return entry


def _file(
    entry: _Table,
    hashes: _Hashes,
    folder: Path,
) -> dict[str, Any]:
    address = entry.get("url") or Path(entry["path"]).as_uri()
    if address not in hashes:
        raise InternalError("hash-missing", f"{address} has no hash")
    file = {}
    if "url" in entry:
        file["url"] = address
    else:
        file["path"] = _path(entry["path"], folder)
    if "subdirectory" in entry:
        file["subdirectory"] = entry["subdirectory"]
    file["hashes"] = {"sha256": hashes[address]}
    return file


def _path(path: str, folder: Path) -> str:
    """Return a path from the lock's folder on, or an absolute one if there is none."""
    with suppress(ValueError):
        path = os.path.relpath(path, folder)
    return Path(path).as_posix()
