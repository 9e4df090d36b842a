"""What one lock request resolves to: every file known and checked for where it comes from; the bytes come last.

Where torch has a source of its own, none of the family is asked for at the default index, whoever demands it: what no
source lists has an empty page. Only what somebody asked for by its name may come from the default index, where no
source of the family lists it.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.catalog import Catalog, Wheel, authored
from gpuinstall.catalog.listing import family_wheels, index_names, own_names
from gpuinstall.errors import InstallationError, NoBuildError, UsageError
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.finding import Reason
from gpuinstall.lock.fetch import Hashes, fetch_missing, known_hashes
from gpuinstall.lock.lock import LockedFile, is_unknown
from gpuinstall.lock.programs import list_programs, programs_first
from gpuinstall.lock.resolver import ResolverProject, resolve_project
from gpuinstall.lock.source_builds import build_tools
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan.requirement import parse_requirement, requirement_names
from gpuinstall.plan.values import PROGRAM_REASONS, Choice
from gpuinstall.provenance import Effect
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.lock.request import LockRequest, VersionPins
    from gpuinstall.lock.target import Target
    from gpuinstall.plan import Plan
    from gpuinstall.session import Session
    from gpuinstall.sources import Sources


STRANGERS = 64
"""How many names that nobody knows are looked up on the torch index to see whether they are its own."""


class Binding(NamedTuple):
    """The names that are bound to the sources of some backends; where there is no backend, to the default index.

    ``listed`` are those that the torch index lists, ``requested`` the names that somebody asked for.
    """

    backends: frozenset[str]
    names: frozenset[str]
    listed: frozenset[str]
    requested: frozenset[str]

    def pages(self, wheels_of: Callable[[str], tuple[Wheel, ...]], session: Session) -> dict[str, tuple[Wheel, ...]]:
        """The wheels that each may come from; what may come from the default index is not among them."""
        if not self.backends:
            return {}
        there = self.names if session.sources.find_links or not self.listed else self.listed | self.requested
        tried = sorted(there & self.names | {"torch"})
        pages = dict(zip(tried, side_by_side(wheels_of, tried), strict=True))
        unlisted = self.requested - self.listed - {"torch"}
        return {name: pages.get(name, ()) for name in sorted(self.names) if pages.get(name) or name not in unlisted}


def bind(requirements: Iterable[str], backends: Iterable[str], catalog: Catalog, session: Session) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    requested = requirement_names(requirements)
    tags = frozenset(backends)

    def is_copied(name: str) -> bool:
        return any(name == row or (row.endswith("*") and name.startswith(row[:-1])) for row in catalog.copied)

    def names_of(backend: str) -> frozenset[str]:
        named = index_names(session.sources, session.client, backend)
        strangers = [name for name in sorted(named - catalog.family) if not is_copied(name)][:STRANGERS]
        own = own_names(session.sources, session.client, backend, strangers) if strangers else frozenset[str]()
        return named & catalog.family | own

    listed = frozenset[str]().union(*side_by_side(names_of, sorted(tags)))
    return Binding(tags, catalog.family | listed, listed, requested)


def fitting(wheels: Sequence[Wheel], backend: str, tags: Sequence[Tag]) -> tuple[Wheel, ...]:
    """Of each version the wheel of ``backend`` that fits best; earlier sources come first."""
    rank = {tag: position for position, tag in enumerate(tags)}
    best: dict[str, tuple[int, Wheel]] = {}
    for wheel in wheels:
        ranks = [rank[tag] for tag in wheel.tags if tag in rank]
        if not ranks or wheel.backend not in {backend, None}:
            continue
        key = str(wheel.version)
        if key not in best or min(ranks) < best[key][0]:
            best[key] = min(ranks), wheel
    return tuple(wheel for _, wheel in best.values())


TARGETS_AT_ONCE = 6
"""For how many targets uv resolves side by side: more of them only wait for the same cores."""


@dataclass(frozen=True)
class Resolution:
    """A lock request with the plan that serves it and what uv resolved for it; ``document`` is uv's own lock.

    ``apart`` says by package why it could not have the version that the other targets have.
    """

    request: LockRequest
    plan: Plan
    target: Target
    document: Mapping[str, Any]
    files: tuple[LockedFile, ...]
    hashes: Hashes
    apart: Mapping[str, str] = field(default_factory=dict)

    @property
    def choice(self) -> Choice:
        """The build that is chosen."""
        return self.plan.choice

    def warned_of(self, reasons: Iterable[Reason]) -> Resolution:
        """The same with further warnings in its plan."""
        return replace(self, plan=replace(self.plan, warnings=(*self.plan.warnings, *reasons)))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said of its programs: who wants an older torch, and what could not be the newest."""
        return tuple(reason.message for reason in self.plan.reasons if reason.code in PROGRAM_REASONS)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {package["name"]: package["version"] for package in self.document["packages"] if "version" in package}

    @property
    def editable_folders(self) -> dict[str, Path]:
        """The folder of each editable package."""
        folders = {
            package["name"]: package["directory"] for package in self.document["packages"] if "directory" in package
        }
        return {name: Path(folder["path"]).resolve() for name, folder in folders.items() if folder.get("editable")}

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return {package["name"]: package.get("version", "") for package in self.document["packages"]}


def resolve(request: LockRequest, session: Session, bounds: Iterable[str] = ()) -> Resolution | Conflict:
    """Resolve what was chosen, within ``bounds`` that are ours; raise InstallationError where uv cannot.

    Where a package has wheels for newer systems alone, what this very machine's glibc can run is allowed.
    """
    oldest, pins = request.target, request.pins.within(*bounds)
    answer = _resolve_for(oldest, request, pins, session)
    newest = oldest.up_to(request.machine.glibc)
    has_wheels = isinstance(answer, Resolution) and all(file.name.endswith(".whl") for file in answer.files)
    if newest == oldest or has_wheels:
        return answer
    again = _resolve_for(newest, request, pins, session)
    return again if isinstance(again, Resolution) else answer


def _resolve_for(target: Target, request: LockRequest, pins: VersionPins, session: Session) -> Resolution | Conflict:
    choice, tags = request.choice, target.tags(request.choice.python)
    pins = pins.within(*request.catalog.beside(choice.build.torch))

    def wheels_of(package: str) -> tuple[Wheel, ...]:
        listed = family_wheels(session.sources, session.client, choice.build.backend.tag, package)
        return fitting(listed, target.backend, tags)

    bound = bind(choice.requirements, () if choice.index is None else (target.backend,), request.catalog, session)
    extensions = {**load_extensions().unclaimed, **request.files}
    pages = {**bound.pages(wheels_of, session), **extensions}
    names = bound.names.union(extensions)
    programs = list_programs(choice.requirements, names, target, choice.python, session)
    wheels_only = names | {program.name for program in programs if program.needs_no_building}
    wheels_only |= session.sources.only_binary - {":all:"}
    requirements = (*programs_first(choice.requirements, bound.names), *request.libraries)
    # Before anything is asked for: what an index has of that name may run its code when it is resolved.
    by_name = (one.name for one in map(parse_requirement, requirements) if not one.url)
    check_addresses(dict.fromkeys(by_name, frozenset()), session.sources)
    project = ResolverProject(
        requirements, choice.python, target, pages, pins, session.folder, wheels_only, session.sources
    )
    foreseen = foreseen_files(request, pages)
    with ThreadPoolExecutor(1) as pool:  # their hosts are asked while uv resolves
        ahead = pool.submit(known_hashes, foreseen, published_hashes, session)
        document = resolve_project(project, session)
        if not isinstance(document, Conflict) and (tools := build_tools(document)):
            document = resolve_project(replace(project, requirements=(*requirements, *tools)), session)
    if isinstance(document, Conflict):
        return document
    check_unbuilt(document, bound.names)
    document = with_own_indexes(document, pages, session)
    files = locked_files(document)
    check_provenance(files, pages)
    if conflict := _unloadable(document, request):
        return conflict
    others = [file for file in files if file not in foreseen]
    hashes = ahead.result().of(files) | known_hashes(others, published_hashes, session)
    check_addresses(_from_indexes(document), session.sources)
    if requested := requested_hashes(request.request.requirements, document, session.sources):
        document = with_requested_files(document, requested, hashes, session)
        files = locked_files(document)
        hashes = hashes.of(files)
    return Resolution(request, request.plan, target, document, files, hashes)


def with_own_indexes(document: dict[str, Any], others: Collection[str], session: Session) -> dict[str, Any]:
    """Write the index of a package, by the standard's own key, if only the user's configuration names it.

    Where another user makes the lock again without it, the default index has a package of that name too. ``others``
    are the packages with a source of their own. uv does not say what it took a package from.
    """
    if not session.sources.own_indexes:
        return document
    names = [name for name in _from_indexes(document) if name not in others]
    indexes = dict(zip(names, side_by_side(partial(_own_index, session=session), names), strict=True))
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


def check_addresses(served: Mapping[str, Collection[str]], sources: Sources) -> None:
    """Raise UsageError if an index would serve a package that a file of the project takes from an address.

    Args:
        served: The packages that an index serves, with the addresses of their files.
        sources: What the files say.
    """
    addressed = {setting.package: setting for setting in sources.locked if setting.effect is Effect.ADDRESS}
    for name in served.keys() & addressed.keys():
        setting = addressed[name]
        if setting.value not in served[name]:
            message = f"{name} would come from an index, and {setting.place} has it from a URL or a folder"
            why = "an index may have another package of that name"
            raise UsageError("source-setting", message, why=why, hint=f"Request {name} by its URL: {name} @ https://…")


def _from_indexes(document: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """Return the packages that indexes serve, with the addresses of their files."""
    by_index = [each for each in document["packages"] if not {"vcs", "directory", "archive"} & each.keys()]
    return {each["name"]: frozenset(entry.get("url", "") for entry in each.get("wheels", ())) for each in by_index}


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
    for asked in map(parse_requirement, requirements):
        if sha256 := re.search(r"[#&]sha256=([0-9a-f]{64})\b", asked.url or ""):
            requested[asked.name] = requested.get(asked.name, frozenset()) | {sha256[1]}
    return requested


def with_requested_files(
    document: Mapping[str, Any], requested: Mapping[str, frozenset[str]], hashes: Hashes, session: Session
) -> dict[str, Any]:
    """Leave of each package the files whose hash was requested; raise UsageError if there is none.

    uv itself checks no hash when it resolves, not even that of an address. A file whose index gives no hash is
    downloaded once for it.
    """
    files = [file for file in locked_files(document) if file.package in requested and file in hashes.missing]
    known = fetch_missing(Hashes(hashes.known, {file: hashes.missing[file] for file in files}), session)

    def is_requested(name: str, entry: Mapping[str, Any]) -> bool:
        sha256 = entry.get("hashes", {}).get("sha256", "")
        url = entry.get("url") or Path(entry["path"]).as_uri()
        return known.get(url, sha256) in requested[name]

    packages = []
    for package in document.get("packages", ()):
        name = package["name"]
        if name not in requested:
            packages.append(package)
            continue
        kinds = {kind: package[kind] for kind in ("sdist", "archive") if kind in package}
        wheels = [entry for entry in package.get("wheels", ()) if is_requested(name, entry)]
        kinds = {kind: entry for kind, entry in kinds.items() if is_requested(name, entry)}
        if not wheels and not kinds:
            raise _not_requested(package, session)
        rest = {key: value for key, value in package.items() if key not in {"wheels", "sdist", "archive"}}
        packages.append(rest | ({"wheels": wheels} if wheels else {}) | kinds)
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


def foreseen_files(request: LockRequest, pages: Mapping[str, tuple[Wheel, ...]]) -> list[LockedFile]:
    """The files without a hash that uv will take because their versions are pinned, by the choice or by torch."""
    release = request.catalog.releases.get(request.choice.build.torch)
    pins = [*request.choice.requirements, *([f"triton{release.triton}"] if release and release.triton else [])]
    foreseen = []
    for pin in map(parse_requirement, pins):
        wheels = [wheel for wheel in pages.get(pin.name, ()) if pin.allows(wheel.version)]
        foreseen += [LockedFile(pin.name, wheel.url) for wheel in wheels if len(wheels) == 1 and not wheel.sha256]
    return foreseen


def check_provenance(files: Iterable[LockedFile], pages: Mapping[str, tuple[Wheel, ...]]) -> None:
    """Refuse a file that its page does not have; ``pages`` are the packages that have a source of their own.

    Every other file came from the default index alone, the only one that uv was given; it may not be one that a page
    lists for another package.
    """
    listed = {package: {wheel.url for wheel in wheels} for package, wheels in pages.items()}
    for file in files:
        owners = {package for package, urls in listed.items() if file.url in urls}
        why = None
        if "/" in file.name or "\\" in file.name or file.name in {"", ".", ".."}:
            why = "its name points outside its folder"
        elif owners - {file.package} or (file.package in listed and not owners):
            why = "the source of PyTorch packages does not list it"
        if why:
            address = file.url.partition("?")[0]
            raise InstallationError("wrong-source", f"{file.package} would come from {address}", why=why)


def check_unbuilt(resolved: Mapping[str, Any], family: Collection[str]) -> None:
    """Refuse a member of the family that would come from an address, or be built."""
    for package in resolved.get("packages", ()):
        if package["name"] in family and not package.get("wheels"):
            name, why = package["name"], "a requirement gives a URL for it, or no wheel fits"
            hint = f"Request {name} by name, or by version"
            raise InstallationError("wrong-source", f"{name} has no usable wheel on its index", why=why, hint=hint)


def locked_files(resolved: Mapping[str, Any]) -> tuple[LockedFile, ...]:
    """The files of uv's lock that will be locked: wheels, and a source distribution only where there is no wheel."""
    files = []
    for package in resolved.get("packages", ()):  # a folder and a repository have no file, and no hash
        for entry in package.get("wheels") or [package[kind] for kind in ("sdist", "archive") if kind in package]:
            sha256 = entry.get("hashes", {}).get("sha256")
            url = entry.get("url") or Path(entry["path"]).as_uri()
            files.append(LockedFile(package["name"], url, None if sha256 and is_unknown(sha256) else sha256))
    return tuple(files)


def _unloadable(document: Mapping[str, Any], request: LockRequest) -> Conflict | None:
    build, companions = request.choice.build, request.catalog.companions
    for package in document.get("packages", ()):
        name, version = package["name"], package.get("version", "").partition("+")[0]
        companion = companions.get((name, version))
        if companion and not companion.loads_in(build):
            message = f"{name} {version} is incompatible with torch {build.name}"
            return Conflict(NoBuildError("no-companion", message, hint=f"Request an older {name}, or leave it out"))
    return None


def published_hashes() -> Mapping[str, str]:
    """Return the hashes of the official index's wheels by the names of the files, as far as they are catalogued."""
    return {row["file"]: row["sha256"] for row in authored.read_data("hashes.toml")["wheels"]}
