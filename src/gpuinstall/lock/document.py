"""New locks from resolutions: what one target needs, written in one way, with the evidence of its making."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import InternalError
from gpuinstall.lock.fetch import fetch_missing
from gpuinstall.lock.folder_request import FolderRequest
from gpuinstall.lock.inputs import digest, plain, spelled
from gpuinstall.lock.lock import is_unknown, parse, render, sealed
from gpuinstall.vendors import rules_for

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.lock.lock import Lock, LockedFile
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.target import Target
    from gpuinstall.request import Request
    from gpuinstall.session import Session


@dataclass(frozen=True)
class LockEvidence:
    """What the lock was made from and for. By the standard it may not steer an installation.

    ``files`` say what each requirements file among its inputs asked for, by its path from the lock's folder;
    ``revision`` how often the folder's request had changed by then; ``unhashed`` are the packages that come from
    folders and repositories, as somebody asked; ``apart`` those that could not have the version of the other targets.
    """

    inputs: tuple[str, ...]
    torch: str
    backend: str
    catalogue: str
    asked: str | None = None
    architectures: tuple[str, ...] = ()
    floors: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    revision: int = 0
    constraints: tuple[str, ...] = ()
    unhashed: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Write it for ``[tool.gpuinstall]``."""
        written: dict[str, Any] = {
            "inputs": list(self.inputs),
            "inputs-digest": digest(self.inputs),
            "torch": self.torch,
            "backend": self.backend,
            "catalogue": self.catalogue,
        }
        written |= {"constraints": list(self.constraints)} if self.constraints else {}
        written |= {"unhashed": list(self.unhashed)} if self.unhashed else {}
        written |= {"asked": self.asked} if self.asked else {}
        written |= {"architectures": list(self.architectures)} if self.architectures else {}
        written |= {"floors": dict(self.floors)} if self.floors else {}
        written |= {"apart": list(self.apart)} if self.apart else {}
        written |= {"request-revision": self.revision} if self.revision else {}
        return written | ({"requirements-files": dict(self.files)} if self.files else {})


def build_locks(
    resolutions: Sequence[Resolution],
    requests: Sequence[Request],
    session: Session,
    asked: FolderRequest | None = None,
    folder: Path | None = None,
    *,
    also: Mapping[LockedFile, int | None] | None = None,
) -> list[Lock]:
    """Fetch what has no hash, each file once, and make a lock of each resolution of what its request asked for.

    ``asked`` says which files the requests were read from; ``folder`` is where the locks will lie (the working folder),
    from which paths in them begin; ``also`` are further files to fetch at the same time, if any are, with their sizes.
    """
    folder = folder or Path.cwd()
    unhashed = reduce(or_, (resolution.hashes for resolution in resolutions))
    hashes = fetch_missing(unhashed, session, also or {})
    return [_build(*each, hashes, asked or FolderRequest(), folder) for each in zip(resolutions, requests, strict=True)]


def document(
    resolved: Mapping[str, Any],
    hashes: Mapping[str, str],
    target: Target,
    python: str,
    evidence: LockEvidence,
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
            "packages": [_package(package, hashes, folder) for package in resolved.get("packages", ())],
            "tool": {"gpuinstall": evidence.to_dict()},
        }
    )


def evidence(resolution: Resolution, request: Request) -> LockEvidence:
    """What a lock says of its making: inputs, build, architectures, floors."""
    build, wanted, target = resolution.choice.build, resolution.request, resolution.target
    rules = rules_for(wanted.machine, wanted.catalog, {build.backend.kind})
    return LockEvidence(
        inputs=spelled(request.requirements),
        torch=str(build.torch),
        backend=build.backend.tag,
        catalogue=wanted.catalog.date,
        asked=request.backend if wanted.builds_here or not request.is_for_gpus else None,
        architectures=build.code,
        constraints=plain(request.constraints),
        floors={**rules.floors(build), **({"glibc": target.glibc} if target.os == "linux" else {})},
    )


def _build(
    resolution: Resolution, request: Request, hashes: Mapping[str, str], asked: FolderRequest, folder: Path
) -> Lock:
    unhashed = tuple(each["name"] for each in resolution.document["packages"] if {"directory", "vcs"} & each.keys())
    made_from = replace(
        evidence(resolution, request),
        files=asked.files,
        revision=asked.revision,
        unhashed=unhashed,
        apart=tuple(sorted(resolution.apart)),
    )
    made = document(resolution.document, hashes, resolution.target, resolution.choice.python, made_from, folder=folder)
    return parse(resolution.target.filename, render(made))


def _package(package: Mapping[str, Any], hashes: Mapping[str, str], folder: Path) -> dict[str, Any]:
    """Write one package: its files with their hashes, or the folder or commit that no hash pins."""
    kept = {key: package[key] for key in ("name", "version", "marker") if key in package}
    if package.get("wheels"):
        return kept | {"wheels": [_file(entry, hashes, folder) for entry in package["wheels"]]}
    for kind in ("sdist", "archive"):
        if kind in package:
            return kept | {kind: _file(package[kind], hashes, folder)}
    if "directory" in package:
        return kept | {"directory": package["directory"] | _path(package["directory"]["path"], folder)}
    return kept | {"vcs": package["vcs"]}


def _file(entry: Mapping[str, Any], hashes: Mapping[str, str], folder: Path) -> dict[str, Any]:
    address = entry.get("url") or Path(entry["path"]).as_uri()
    sha256 = hashes.get(address)
    if sha256 is None or is_unknown(sha256):
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
