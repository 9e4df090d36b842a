"""What one lock request resolves to: every file known and checked for where it comes from; the bytes come last."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.text import shorten
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.listing import read_listing
from gpuinstall.lock.file.fetch import Hashes, fetch_missing, known_hashes
from gpuinstall.lock.file.lock import LockedFile, is_placeholder, leads_out
from gpuinstall.lock.file.target import Target
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.lock_sources import strange_hosts
from gpuinstall.lock.uv.builds import Packages
from gpuinstall.lock.uv.project import Pages, versions_in
from gpuinstall.plan import Plan
from gpuinstall.plan.values import NEWEST_BUT, REMARKS, Choice
from gpuinstall.sources import Sources
from gpuinstall.sources.session import Session
from gpuinstall.sources.sources import links_url

_SOURCE_FILES = ("sdist", "archive")
"""The keys of a package's files that are no wheels."""
_FILES = {"wheels", *_SOURCE_FILES}
_TREES = {"vcs", "directory", "archive"}
"""The keys of what comes from no index."""


class Resolution(Value):
    """What uv resolved for a lock request, with the plan that serves it."""

    request: LockRequest
    plan: Plan
    target: Target
    packages: Packages
    """Those of uv's own lock."""

    hashes: Hashes
    prebuilt: Mapping[str, tuple[Wheel, ...]]
    """The file of each extension."""

    apart: frozenset[str] = frozenset()
    """The packages that could not have one version for all targets."""

    relaxed: Mapping[str, Requirement] = {}
    """The requirements that it does not hold to, by package, as ``--relax`` asks for."""

    @property
    def choice(self) -> Choice:
        """The build that is chosen."""
        return self.plan.choice

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to report of it: what could not be the newest, torch or a program, and why."""
        return tuple(
            reason.message
            for reason in self.plan.reasons
            if reason.code in REMARKS or reason.code.startswith(NEWEST_BUT)
        )

    @property
    def unhashed_wheels(self) -> list[LockedFile]:
        """The wheels whose index gives no hash: uv fetches them for an installation, and it is taken on the way."""
        with_wheels = {one["name"] for one in self.packages if one.get("wheels")}
        return [file for file in self.hashes.missing if file.package in with_wheels]

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return versions_in(self.packages)

    @property
    def all_versions(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return {one["name"]: one.get("version", "") for one in self.packages}

    def warned_of(
        self, warnings: Iterable[Reason], reasons: Iterable[Reason] = ()
    ) -> Resolution:
        """Return the same with further warnings and reasons in its plan."""
        plan = self.plan
        warnings = (*plan.warnings, *warnings)
        reasons = (*plan.reasons, *reasons)
        plan = replace(plan, warnings=warnings, reasons=reasons)
        return replace(self, plan=plan)


def checked(
    packages: Packages,
    request: LockRequest,
    plan: Plan,
    *,
    family: Collection[str],
    pages: Pages,
    prebuilt: Mapping[str, tuple[Wheel, ...]],
    locked: Mapping[str, str],
    session: Session,
) -> Resolution:
    """Return what uv resolved, its files checked for where they come from.

    Args:
        packages: Those of uv's own lock, without ours.
        request: What it was resolved for.
        plan: The choice that serves it.
        family: The names that are bound to the sources of torch.
        pages: The packages that have a source of their own, with its files.
        prebuilt: The file of each extension.
        locked: The sha256 of files that were locked before, by address: no server is asked for them.
        session: The sources and the clients of the run.

    Raises:
        InstallationError: if a file comes from a source that is not its own.
        UsageError: if a file of the project has a package, or its hash, from elsewhere.
    """
    sources = session.sources
    check_subdirectories(packages)
    check_addresses(packages_of_indexes(packages), sources)
    name_addresses(packages, session)
    check_unbuilt(packages, family)
    packages = with_files_of_pages(packages, pages)
    check_provenance(locked_files(packages), pages)
    check_indexes(packages, pages, plan.choice.build.backend.tag, session)
    packages = with_own_indexes(packages, pages, session)
    requested = requested_hashes(request.request.requirements, packages, sources)
    if requested:
        packages = with_requested_files(packages, requested, session)
    files = [
        replace(file, sha256=file.sha256 or locked.get(file.url))
        for file in locked_files(packages)
    ]
    return Resolution(
        request=request,
        plan=plan,
        target=request.target(plan.choice.build),
        packages=packages,
        hashes=known_hashes(files, session),
        prebuilt=prebuilt,
    )


def locked_files(packages: Packages) -> tuple[LockedFile, ...]:
    """Return the files of uv's lock that will be locked: wheels, and a source distribution only if there is no wheel.

    A folder and a repository have no file, and no hash.
    """
    files = []
    for package in packages:
        others = [package[kind] for kind in _SOURCE_FILES if kind in package]
        for entry in package.get("wheels") or others:
            sha256 = entry.get("hashes", {}).get("sha256")
            # Our own pages have this in place of a hash that is not known.
            if sha256 and is_placeholder(sha256):
                sha256 = None
            files.append(LockedFile(package["name"], _address(entry), sha256))
    return tuple(files)


def packages_of_indexes(packages: Packages) -> dict[str, list[str]]:
    """Return the packages that indexes serve, with the addresses of their wheels."""
    addresses = {}
    for package in packages:
        if package.keys().isdisjoint(_TREES):
            wheels = package.get("wheels", ())
            addresses[package["name"]] = [wheel.get("url", "") for wheel in wheels]
    return addresses


def check_addresses(
    served: Mapping[str, Collection[str]],
    sources: Sources,
) -> None:
    """Raise UsageError if an index would serve a package that a file of the project takes from an address.

    Args:
        served: The packages that an index serves, with the addresses of their files.
        sources: What the files say.
    """
    for name, setting in sorted(sources.demanded.items()):
        if name in served and setting.value not in served[name]:
            raise UsageError(
                "source-setting",
                f"{name} would come from an index, and {setting.place} has it from a URL or a folder",
                why="an index may have another package of that name",
                hint=f"Request {name} by its URL",
            )


def name_addresses(packages: Packages, session: Session) -> None:
    """Name the addresses that only the METADATA of a package from an address has.

    Raises:
        InstallationError: One has a variable.
    """
    for package in packages:
        place = package.get("archive") or package.get("vcs") or {}
        address = place.get("url", "")
        if not address or session.sources.has_address(address):
            continue
        name = package["name"]
        if "${" in unquote(address):
            message = f"{name} would come from {address}"
            why = "a package that requires it puts a variable into the address"
            raise InstallationError("wrong-source", message, why=why)
        role = f"the source of {name}, as a package that requires it says"
        session.reporter.notice("Index", f"{address}: {role}")


def with_files_of_pages(packages: Packages, pages: Pages) -> Packages:
    """Take each wheel from the page of the build that was chosen: uv was given one of every version, the best build's.

    Args:
        packages: Those of uv's lock.
        pages: The packages that have a source of their own, with the files that it has beside the chosen build.
    """
    files = chain.from_iterable(pages.values())
    wheels = [file for file in files if isinstance(file, Wheel)]
    own = {(wheel.package, str(wheel.version)): wheel for wheel in wheels}
    from_pages = []
    for package in packages:
        key = package["name"], package.get("version", "")
        wheel = own.get(key)
        own_wheels = {}
        if wheel and wheel.url not in map(_address, package.get("wheels", ())):
            hashes = {"sha256": wheel.sha256} if wheel.sha256 else {}
            own_wheels = {"wheels": [{"url": wheel.url, "hashes": hashes}]}
        from_pages.append({**package, **own_wheels})
    return from_pages


def check_provenance(files: Iterable[LockedFile], pages: Pages) -> None:
    """Raise InstallationError for a file that its page does not have.

    Every other file came from the default index alone, the only one that uv was given; it may not be one that a page
    lists for another package.

    Args:
        files: The files of a resolution.
        pages: The packages that have a source of their own, with its wheels.
    """
    owners = defaultdict[str, set[str]](set)
    for package, wheels in pages.items():
        for wheel in wheels:
            owners[wheel.url].add(package)
    for file in files:
        own = {file.package} & pages.keys()
        if file.name in {"", ".", ".."} or "/" in file.name or "\\" in file.name:
            why = "its name points outside its folder"
        elif owners[file.url] != own:
            why = "the source of PyTorch packages does not list it"
        else:
            continue
        address = file.url.partition("?")[0]
        message = f"{file.package} would come from {address}"
        raise InstallationError("wrong-source", message, why=why)


def check_indexes(
    packages: Packages,
    pages: Collection[str],
    backend: str,
    session: Session,
) -> None:
    """Raise InstallationError for a file that no index here lists: uv obeys the sources of a tree that it fetches.

    It does not say what it took from where.

    Args:
        packages: Those of uv's lock.
        pages: The packages that have a source of their own.
        backend: The tag of torch's backend.
        session: The run.
    """
    has_trees = any(_TREES & package.keys() for package in packages)
    if not has_trees or session.environment.get("UV_OFFLINE"):
        return
    served = packages_of_indexes(packages).keys() - set(pages)
    files = [file for file in locked_files(packages) if file.package in served]
    for host, strange in strange_hosts(files, backend, session).items():
        # uv has the page in its cache.
        if session.client.unreachable(session.default_index or ""):
            return
        raise InstallationError(
            "wrong-source",
            f"{', '.join(strange)} would come from {host}",
            why="the pyproject.toml of a source tree chooses it, and no index here lists it there",
            hint="Set UV_INDEX to the URL of the index that has it, if you trust it",
        )


def check_subdirectories(packages: Packages) -> None:
    """Raise InstallationError if a subdirectory is outside its tree.

    uv writes a path in the pyproject.toml of a repository as one.
    """
    for package in packages:
        for tree in filter(None, map(package.get, sorted(_TREES))):
            inside = tree.get("subdirectory", "")
            if leads_out(inside):
                message = f"{package['name']} would come from {shorten(inside)}"
                why = "a path in a repository or archive leads out of it"
                raise InstallationError("wrong-source", message, why=why)


def check_unbuilt(packages: Packages, family: Collection[str]) -> None:
    """Raise InstallationError for a member of the family that would come from an address, or be built."""
    for package in packages:
        name = package["name"]
        if name in family and not package.get("wheels"):
            raise InstallationError(
                "wrong-source",
                f"{name} has no usable wheel on its index",
                why="a requirement gives a URL for it, or no wheel fits",
                hint=f"Request {name} by name, or by version",
            )


def with_own_indexes(
    packages: Packages,
    others: Collection[str],
    session: Session,
) -> Packages:
    """Write the index of a package, by the standard's own key, if only the user's configuration names it.

    If another user makes the lock again without it, the default index has a package of that name too. uv does not say
    what it took a package from.

    Args:
        packages: Those of uv's lock.
        others: The packages with a source of their own.
        session: The run, whose sources have the user's configuration.
    """
    sources = session.sources
    # Nearly nobody has one, and each package would cost a page.
    if not sources.own_indexes:
        return packages

    def first_index(package: str) -> str | None:
        for index in sources.indexes_for(package, None):
            with suppress(InstallationError):  # uv had the package without it
                if session.client.page(f"{index}/{package}/"):
                    return index
        return links.get(package)

    names = [name for name in packages_of_indexes(packages) if name not in others]
    listed = read_listing(sources, session.client, (), names).wheels
    # Of several that list a package the first has it.
    links = {
        wheel.package: links_url(wheel.source)
        for wheel in reversed(listed)
        if isinstance(wheel.source, str)
    }
    first_indexes = side_by_side(first_index, names)
    indexes = dict(zip(names, first_indexes, strict=True))
    from_indexes = []
    for package in packages:
        index = indexes.get(package["name"])
        own_index = {"index": index} if index in sources.own_indexes else {}
        from_indexes.append({**package, **own_index})
    return from_indexes


def requested_hashes(
    requirements: Iterable[Requirement],
    packages: Packages,
    sources: Sources,
) -> dict[str, frozenset[str]]:
    """Return the SHA-256 that a package's file has to have one of, by package.

    Args:
        requirements: The request's, of which an address may give one.
        packages: Those of uv's lock.
        sources: What files say: a line with ``--hash``, or a tool's lock, whose hashes count at its version alone.
    """
    requested = dict[str, frozenset[str]]()
    for package in packages:
        name = package["name"]
        hashes = sources.hashes.get(name)
        if hashes is None and package.keys().isdisjoint({"vcs", "directory"}):
            hashes = sources.hashes.get(f"{name}=={package.get('version')}")
        if hashes:
            requested[name] = hashes
    for requirement in requirements:
        sha256 = re.search(r"[#&]sha256=([0-9a-f]{64})\b", requirement.url or "")
        if sha256:
            known = requested.get(requirement.name, frozenset())
            requested[requirement.name] = known | {sha256[1]}
    return requested


def with_requested_files(
    packages: Packages,
    requested: Mapping[str, frozenset[str]],
    session: Session,
) -> Packages:
    """Leave of each package the files whose hash was requested; raise UsageError if there is none.

    uv itself checks no hash when it resolves, not even that of an address.

    Args:
        packages: Those of uv's lock.
        requested: The hashes by package.
        session: The run. It fetches once each of these files whose index gives no hash.
    """
    files = [file for file in locked_files(packages) if file.package in requested]
    hashes = known_hashes(files, session)
    fetched = fetch_missing(hashes.missing, session)
    known = {**hashes.known, **fetched}
    as_requested = []
    for package in packages:
        name = package["name"]
        if name not in requested:
            as_requested.append(package)
            continue
        kept = {key: value for key, value in package.items() if key not in _FILES}
        entries = [("wheels", wheel) for wheel in package.get("wheels", ())]
        entries += [(kind, package[kind]) for kind in _SOURCE_FILES if kind in package]
        for kind, entry in entries:
            listed = entry.get("hashes", {}).get("sha256")
            sha256 = known.get(_address(entry), listed)
            if sha256 in requested[name]:
                file = {**entry, "hashes": {"sha256": sha256}}
                if kind == "wheels":
                    kept.setdefault(kind, []).append(file)
                else:
                    kept[kind] = file
        if kept.keys().isdisjoint(_FILES):
            version = package.get("version", "")
            places = session.sources.hash_places
            place = places.get(f"{name}=={version}") or places.get(name, "its address")
            raise UsageError(
                "hash-not-chosen",
                f"{place}: no file of {name} {version} for this machine has the hash that is given there",
                hint="Run it again after removing the hash there",
            )
        as_requested.append(kept)
    return as_requested


def _address(entry: Mapping[str, Any]) -> str:
    """Return the address of a file of uv's lock, which writes a local one as a path."""
    if "url" in entry:
        return str(entry["url"])
    return Path(entry["path"]).as_uri()
