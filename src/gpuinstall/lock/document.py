"""New locks from resolutions: what one target needs, written in one way, with the evidence of its making."""

from __future__ import annotations

import os
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.markers import Marker

from gpuinstall import uv
from gpuinstall.errors import InternalError
from gpuinstall.lock.build_files import BUILD_FILES_DIGEST
from gpuinstall.lock.declaration import digest, plain, spelled
from gpuinstall.lock.fetch import fetch_missing
from gpuinstall.lock.folder_request import FolderRequest
from gpuinstall.lock.lock import Lock, LockedFile, parse, render, sealed, unknown_hash
from gpuinstall.lock.transfer import Transfer, cache_words
from gpuinstall.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.target import Target
    from gpuinstall.request import Request
    from gpuinstall.session import Session
    from gpuinstall.web import Head


def build_locks(
    resolutions: Sequence[Resolution],
    requests: Sequence[Request],
    session: Session,
    recorded: FolderRequest | None = None,
    folder: Path | None = None,
) -> list[Lock]:
    """Fetch what has no hash, each file once, and make a lock of each resolution of what its request asked for.

    What one lock for machines like this one lacks comes into uv's cache, where an installation finds it. ``recorded``
    says which files the requests were read from; ``folder`` is where the locks will lie (the working folder), from
    which paths in them begin.
    """
    [first, *others] = resolutions
    if first.hashes.missing and not others and Marker(first.target.marker).evaluate():
        lock, choice = build_incomplete(first, requests[0], session, recorded, folder), first.choice
        heads = _later(first)
        missing = {file: head.size or 0 for file, head in heads.items()}
        private_lock, links = session.scratch / "pylock.private.toml", session.scratch / "unpacked"
        only = {file.package for file in heads}
        transfer = Transfer(lock, choice, private_lock, Path.cwd(), missing, heads, only=only)
        words = [
            *uv.for_target(choice.python, first.target.uv_platform),
            *cache_words(lock, choice, session),
        ]
        return [transfer.run(uv.unpack(session.python, private_lock, links, words), session)]
    hashes = fetch_missing(reduce(or_, (resolution.hashes for resolution in resolutions)), session)
    both = zip(resolutions, requests, strict=True)
    return [_build(*each, hashes, recorded, folder) for each in both]


def build_incomplete(
    resolution: Resolution,
    request: Request,
    session: Session,
    recorded: FolderRequest | None = None,
    folder: Path | None = None,
) -> Lock:
    """Make a lock to install from: its wheels that lack a hash get it on their way, and nobody may keep it so."""
    later = {file.url: unknown_hash(file.url) for file in _later(resolution)}
    others = resolution.hashes.of([file for file in resolution.files if file.url not in later])
    return _build(
        resolution, request, {**fetch_missing(others, session), **later}, recorded, folder
    )


def _build(
    resolution: Resolution,
    request: Request,
    hashes: Mapping[str, str],
    recorded: FolderRequest | None,
    folder: Path | None,
) -> Lock:
    evidence = evidence_of(resolution, request, recorded or FolderRequest())
    target, python = resolution.target, resolution.choice.python
    made = document(
        resolution.document, hashes, target, python, evidence, folder=folder or Path.cwd()
    )
    return parse(target.filename, render(made))


def _later(resolution: Resolution) -> dict[LockedFile, Head]:
    """The wheels of indexes that give no hash of them."""
    indexed = {
        package["name"] for package in resolution.document["packages"] if package.get("wheels")
    }
    return {
        file: head for file, head in resolution.hashes.missing.items() if file.package in indexed
    }


def document(
    resolved: Mapping[str, Any],
    hashes: Mapping[str, str],
    target: Target,
    python: str,
    evidence: Mapping[str, Any],
    *,
    folder: Path = Path(),
) -> dict[str, Any]:
    """Build the lock of ``target`` for Python ``X.Y``, to lie in ``folder``; ``hashes`` are by address."""
    return sealed(
        {
            "lock-version": "1.0",
            "environments": [target.marker],
            "requires-python": f"=={python}.*",
            "created-by": "gpuinstall",
            "packages": [
                _package(package, hashes, folder) for package in resolved.get("packages", ())
            ],
            "tool": {"gpuinstall": evidence},
        }
    )


def evidence_of(
    resolution: Resolution, request: Request, recorded: FolderRequest
) -> dict[str, Any]:
    """What a lock says of its making: by the standard it may not steer an installation.

    Its inputs and what the folder's requirements files asked for, the build with its architectures and floors, the
    packages that no hash pins, and those that could not have the version of the other targets.
    """
    build, wanted, target = resolution.choice.build, resolution.request, resolution.target
    rules = rules_for(wanted.machine, wanted.catalog, {build.backend.kind})
    inputs = spelled(request.requirements)
    optional = {
        "constraints": list(plain(request.constraints)),
        "sources": list(request.sources),
        "unhashed": [
            each["name"]
            for each in resolution.document["packages"]
            if {"directory", "vcs"} & each.keys()
        ],
        "preferred-digest": digest(request.preferred) if request.preferred else None,
        BUILD_FILES_DIGEST: request.build_files_digest,
        "asked": request.backend if wanted.builds_here or not request.is_for_gpus else None,
        "architectures": list(build.code),
        "floors": {
            **rules.floors(build),
            **({"glibc": target.glibc} if target.os == "linux" else {}),
        },
        "apart": sorted(resolution.apart),
        "request-revision": recorded.revision,
        "requirements-files": dict(recorded.files),
    }
    return {
        "inputs": list(inputs),
        "inputs-digest": digest(inputs),
        "torch": str(build.torch),
        "backend": build.backend.tag,
        "catalogue": wanted.catalog.date,
        **{key: value for key, value in optional.items() if value},
        **({"code-check": False} if request.sourcing.code_check is False else {}),
    }


def _package(package: Mapping[str, Any], hashes: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Write one package: its files with their hashes, or the folder or commit that no hash pins."""
    kept = {key: package[key] for key in ("name", "version", "marker", "index") if key in package}
    if package.get("wheels"):
        return kept | {"wheels": [_file(entry, hashes, folder) for entry in package["wheels"]]}
    for kind in ("sdist", "archive"):
        if kind in package:
            return kept | {kind: _file(package[kind], hashes, folder)}
    if "directory" in package:
        return kept | {
            "directory": package["directory"] | _path(package["directory"]["path"], folder)
        }
    return kept | {"vcs": package["vcs"]}


def _file(entry: Mapping[str, Any], hashes: Mapping[str, str], folder: Path) -> dict[str, Any]:
    address = entry.get("url") or Path(entry["path"]).as_uri()
    sha256 = hashes.get(address)
    if sha256 is None:
        raise InternalError("hash-missing", f"{address} has no hash")
    place = {"url": address} if "url" in entry else _path(entry["path"], folder)
    inside = {"subdirectory": entry["subdirectory"]} if "subdirectory" in entry else {}
    return {**place, **inside, "hashes": {"sha256": sha256}}


def _path(path: str, folder: Path) -> dict[str, str]:
    """A path from the lock's folder on, or an absolute one where there is none."""
    try:
        return {"path": Path(os.path.relpath(path, folder)).as_posix()}
    except ValueError:
        return {"path": Path(path).as_posix()}
