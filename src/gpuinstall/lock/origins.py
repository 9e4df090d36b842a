"""Where the files of a resolution come from: what uv answered is checked against sources, addresses and hashes."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.errors import InstallationError, UsageError
from gpuinstall.lock.fetch import Hashes, fetch_missing
from gpuinstall.lock.lock import LockedFile, is_unknown
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.provenance import Effect
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuinstall.catalog import Wheel
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources

_SOURCE_FILES = ("sdist", "archive")
"""The keys of a package's files that are no wheels."""


def locked_files(document: Mapping[str, Any]) -> tuple[LockedFile, ...]:
    """Return the files of uv's lock that will be locked: wheels, and a source distribution only if there is no wheel.

    A folder and a repository have no file, and no hash.
    """
    files = []
    for package in document.get("packages", ()):
        for entry in package.get("wheels") or _source_files(package).values():
            sha256 = entry.get("hashes", {}).get("sha256")
            if sha256 and is_unknown(sha256):
                sha256 = None
            files.append(LockedFile(package["name"], _address(entry), sha256))
    return tuple(files)


def packages_of_indexes(document: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the packages that indexes serve, with the addresses of their wheels."""
    served = dict[str, frozenset[str]]()
    for package in document["packages"]:
        if not {"vcs", "directory", "archive"} & package.keys():
            served[package["name"]] = frozenset(
                entry.get("url", "") for entry in package.get("wheels", ())
            )
    return served


def check_addresses(served: Mapping[str, Collection[str]], sources: Sources) -> None:
    """Raise UsageError if an index would serve a package that a file of the project takes from an address.

    Args:
        served: The packages that an index serves, with the addresses of their files.
        sources: What the files say.
    """
    addressed = {
        setting.package: setting for setting in sources.locked if setting.effect is Effect.ADDRESS
    }
    for name in sorted(served.keys() & addressed.keys()):
        setting = addressed[name]
        if setting.value in served[name]:
            continue
        raise UsageError(
            "source-setting",
            f"{name} would come from an index, and {setting.place} has it from a URL or a folder",
            why="an index may have another package of that name",
            hint=f"Request {name} by its URL: {name} @ https://…",
        )


def check_provenance(files: Iterable[LockedFile], pages: Mapping[str, tuple[Wheel, ...]]) -> None:
    """Raise InstallationError for a file that its page does not have.

    Every other file came from the default index alone, the only one that uv was given; it may not be one that a page
    lists for another package.

    Args:
        files: The files of a resolution.
        pages: The packages that have a source of their own, with its wheels.
    """
    listed = {package: {wheel.url for wheel in wheels} for package, wheels in pages.items()}
    for file in files:
        owners = {package for package, urls in listed.items() if file.url in urls}
        is_others = bool(owners - {file.package})
        is_unlisted = file.package in listed and not owners
        if "/" in file.name or "\\" in file.name or file.name in {"", ".", ".."}:
            why = "its name points outside its folder"
        elif is_others or is_unlisted:
            why = "the source of PyTorch packages does not list it"
        else:
            continue
        address = file.url.partition("?")[0]
        raise InstallationError(
            "wrong-source", f"{file.package} would come from {address}", why=why
        )


def check_unbuilt(document: Mapping[str, Any], family: Collection[str]) -> None:
    """Raise InstallationError for a member of the family that would come from an address, or be built."""
    for package in document.get("packages", ()):
        name = package["name"]
        if name not in family or package.get("wheels"):
            continue
        raise InstallationError(
            "wrong-source",
            f"{name} has no usable wheel on its index",
            why="a requirement gives a URL for it, or no wheel fits",
            hint=f"Request {name} by name, or by version",
        )


def with_own_indexes(
    document: dict[str, Any], others: Collection[str], session: Session
) -> dict[str, Any]:
    """Write the index of a package, by the standard's own key, if only the user's configuration names it.

    If another user makes the lock again without it, the default index has a package of that name too. uv does not say
    what it took a package from.

    Args:
        document: uv's lock.
        others: The packages with a source of their own.
        session: The run, whose sources have the user's configuration.
    """
    if not session.sources.own_indexes:
        return document
    names = [name for name in packages_of_indexes(document) if name not in others]
    indexes = dict(
        zip(names, side_by_side(partial(_own_index, session=session), names), strict=True)
    )
    packages = []
    for package in document["packages"]:
        index = indexes.get(package["name"])
        packages.append({**package, "index": index} if index else package)
    return {**document, "packages": packages}


def _own_index(package: str, session: Session) -> str | None:
    """Return the index of the user's own configuration that serves a package, if one does."""
    for index in session.sources.indexes_for(package, None):
        with suppress(InstallationError):  # uv had the package without it
            if session.client.page(f"{index}/{package}/"):
                return index if index in session.sources.own_indexes else None
    return None


def requested_hashes(
    requirements: Iterable[str], document: Mapping[str, Any], sources: Sources
) -> dict[str, frozenset[str]]:
    """Return the SHA-256 that files give for packages, in their own settings, in an address or in a tool's lock."""
    requested = dict[str, frozenset[str]]()
    for package in document.get("packages", ()):
        name = package["name"]
        hashes = sources.hashes.get(name)
        if hashes is None and not {"vcs", "directory"} & package.keys():
            hashes = sources.hashes.get(f"{name}=={package.get('version')}")
        if hashes:
            requested[name] = hashes
    for requirement in map(parse_requirement, requirements):
        sha256 = re.search(r"[#&]sha256=([0-9a-f]{64})\b", requirement.url or "")
        if sha256:
            requested[requirement.name] = requested.get(requirement.name, frozenset()) | {sha256[1]}
    return requested


def with_requested_files(
    document: Mapping[str, Any],
    requested: Mapping[str, frozenset[str]],
    hashes: Hashes,
    session: Session,
) -> dict[str, Any]:
    """Leave of each package the files whose hash was requested; raise UsageError if there is none.

    uv itself checks no hash when it resolves, not even that of an address. A file whose index gives no hash is
    downloaded once for it.
    """
    unhashed = [
        file
        for file in locked_files(document)
        if file.package in requested and file in hashes.missing
    ]
    known = fetch_missing(
        Hashes(hashes.known, {file: hashes.missing[file] for file in unhashed}), session
    )

    def is_requested(name: str, entry: Mapping[str, Any]) -> bool:
        sha256 = entry.get("hashes", {}).get("sha256", "")
        return known.get(_address(entry), sha256) in requested[name]

    packages = []
    for package in document.get("packages", ()):
        name = package["name"]
        if name not in requested:
            packages.append(package)
            continue
        wheels = [entry for entry in package.get("wheels", ()) if is_requested(name, entry)]
        sources = {
            kind: entry
            for kind, entry in _source_files(package).items()
            if is_requested(name, entry)
        }
        if not wheels and not sources:
            raise _not_requested(package, session)
        rest = {
            key: value for key, value in package.items() if key not in {"wheels", *_SOURCE_FILES}
        }
        packages.append({**rest, **({"wheels": wheels} if wheels else {}), **sources})
    return {**document, "packages": packages}


def _not_requested(package: Mapping[str, Any], session: Session) -> UsageError:
    name, version = package["name"], package.get("version", "")
    places = session.sources.hash_places
    place = places.get(name) or places.get(f"{name}=={version}", "its address")
    return UsageError(
        "hash-not-chosen",
        f"{place}: no file of {name} {version} for this machine has the hash that is given there",
        hint="the same again   # after removing the hash there",
    )


def _source_files(package: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the files of a package that are no wheels."""
    return {kind: package[kind] for kind in _SOURCE_FILES if kind in package}


def _address(entry: Mapping[str, Any]) -> str:
    """Return the address of a file of uv's lock, which writes a local one as a path."""
    return str(entry.get("url") or Path(entry["path"]).as_uri())
