"""What a planned lock resolves to: every file known and checked for where it comes from; the bytes come last.

PyTorch's packages are each bound to their source before anything is resolved. Where torch has a source of its own,
none of them is asked for at the default index, whoever demands it: what no source lists has an empty page. Only what
somebody asked for by its name may come from the default index, where no source of the family lists it, and as a wheel.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import authored
from gpuinstall.catalog.listing import family_wheels, index_names, own_names
from gpuinstall.errors import InstallationError
from gpuinstall.lock.fetch import known_hashes
from gpuinstall.lock.lock import LockedFile, is_unknown
from gpuinstall.lock.programs import list_programs, programs_first
from gpuinstall.lock.resolver import ResolverProject, resolve_project
from gpuinstall.lock.source_builds import build_tools, check_builds, source_builds, this_site
from gpuinstall.lock.uv_failure import ConflictError
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.build import Wheel
    from gpuinstall.lock.fetch import Hashes
    from gpuinstall.lock.request import PlannedLock, VersionPins
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session

TARGETS_AT_ONCE = 6
"""For how many targets uv resolves side by side."""

STRANGERS = 64
"""How many names that nobody knows are looked up on the torch index to see whether they are its own."""


@dataclass(frozen=True)
class Resolution:
    """A planned lock with what uv resolved for it; ``document`` is uv's own lock.

    ``apart`` says by package why it could not have the version that the other targets have.
    """

    planned: PlannedLock
    target: Target
    document: Mapping[str, Any]
    files: tuple[LockedFile, ...]
    hashes: Hashes
    apart: Mapping[str, str] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {package["name"]: package["version"] for package in self.document["packages"] if "version" in package}

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return {package["name"]: package.get("version", "") for package in self.document["packages"]}

    @property
    def builds_from_source(self) -> bool:
        """Say whether some package has no wheel for the target."""
        return any(not file.name.endswith(".whl") for file in self.files)


def resolve(planned: PlannedLock, target: Target, pins: VersionPins, session: Session) -> Resolution:
    """Resolve what was chosen for ``target``; raise InstallationError or ConflictError where uv cannot."""
    choice, catalog = planned.choice, planned.request.catalog
    tags = target.tags(choice.python)

    def wheels_of(package: str) -> tuple[Wheel, ...]:
        listed = family_wheels(session.sources, session.client, choice.build.backend.tag, package)
        return fitting(listed, target.backend, tags)

    backends = () if choice.index is None else (target.backend,)
    bound = bind(choice.requirements, backends, catalog, session)
    pages = bound.pages(wheels_of, session)
    programs = list_programs(choice.requirements, bound.names, target, choice.python, session)
    wheels_only = bound.names | {program.name for program in programs if program.needs_no_building}
    requirements = programs_first(choice.requirements, bound.names)
    project = ResolverProject(requirements, choice.python, target, pages, pins, session.folder, wheels_only)
    foreseen = foreseen_files(planned, pages)
    with ThreadPoolExecutor(1) as pool:  # their hosts are asked while uv resolves
        ahead = pool.submit(known_hashes, foreseen, _published, session)
        document = resolve_project(project, session)
        if tools := build_tools(document):
            document = resolve_project(replace(project, requirements=(*requirements, *tools)), session)
    check_unbuilt(document, bound.names)
    files = locked_files(document)
    check_provenance(files, pages)
    _check_family(document, planned)
    others = [file for file in files if file not in foreseen]
    hashes = ahead.result().of(files) | known_hashes(others, _published, session)
    return Resolution(planned, target, document, files, hashes)


def check_resolution(resolution: Resolution, session: Session) -> None:
    """Say what will be built from source; raise SourceBuildError where that cannot work on the machine that builds."""
    request = resolution.planned.request
    site = this_site(resolution.target.backend, resolution.versions, request.machine, session.environment)
    builds = source_builds(resolution.document)
    check_builds(builds, site, session.reporter, here=request.builds_here)


def resolve_for_here(planned: PlannedLock, pins: VersionPins, session: Session) -> Resolution | ConflictError:
    """Resolve what was chosen, or say why not.

    Where a package has wheels for newer systems alone, what this very machine's glibc can run is allowed.
    """

    def answer_for(target: Target) -> Resolution | ConflictError:
        try:
            return resolve(planned, target, pins, session)
        except ConflictError as conflict:
            return conflict

    target = planned.target
    answer = answer_for(target)
    newer = target.up_to(planned.request.machine.glibc)
    if newer == target or (isinstance(answer, Resolution) and not answer.builds_from_source):
        return answer
    again = answer_for(newer)
    return again if isinstance(again, Resolution) else answer


def foreseen_files(planned: PlannedLock, pages: Mapping[str, tuple[Wheel, ...]]) -> list[LockedFile]:
    """The files without a hash that uv will take because their versions are pinned, by the choice or by torch."""
    release = planned.request.catalog.releases.get(planned.choice.build.torch)
    pins = [*planned.choice.requirements, *([f"triton{release.triton}"] if release and release.triton else [])]
    foreseen = []
    for pin in map(parse_requirement, pins):
        wheels = [wheel for wheel in pages.get(pin.name, ()) if pin.allows(wheel.version)]
        foreseen += [LockedFile(pin.name, wheel.url) for wheel in wheels if len(wheels) == 1 and not wheel.sha256]
    return foreseen


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


def check_provenance(files: Iterable[LockedFile], pages: Mapping[str, tuple[Wheel, ...]]) -> None:
    """Refuse a file that its page does not have; ``pages`` are the packages that have a source of their own.

    Every other file came from the default index alone, the only one that uv was given; it may not be one that a page
    lists for another package.
    """
    listed = {package: {wheel.url for wheel in wheels} for package, wheels in pages.items()}
    for file in files:
        if "/" in file.name or "\\" in file.name or file.name in {"", ".", ".."}:
            raise _strayed(file, "its name leads out of its folder")
        owners = {package for package, urls in listed.items() if file.url in urls}
        if owners - {file.package} or (file.package in listed and not owners):
            raise _strayed(file, "it is not what the source of the PyTorch family lists")


def check_unbuilt(resolved: Mapping[str, Any], family: Collection[str]) -> None:
    """Refuse a member of the family that would come from an address, or be built."""
    for package in resolved.get("packages", ()):
        if package["name"] in family and not package.get("wheels"):
            raise InstallationError(
                "wrong-source",
                f"{package['name']} would not come from a wheel of its source",
                why="some requirement names it by an address, or no wheel fits",
                hint=f"ask for {package['name']} by its name, or for a version of it",
            )


def locked_files(resolved: Mapping[str, Any]) -> tuple[LockedFile, ...]:
    """The files of uv's lock that will be locked: wheels, and a source distribution only where there is no wheel."""
    return tuple(file for package in resolved.get("packages", ()) for file in _files(package))


@dataclass(frozen=True)
class Binding:
    """The names that are bound to the sources of some backends; where there is no backend, to the default index.

    ``listed`` are those that the torch index lists, ``asked`` the names that somebody asked for.
    """

    backends: frozenset[str]
    names: frozenset[str]
    listed: frozenset[str]
    asked: frozenset[str]

    def pages(self, wheels_of: Callable[[str], tuple[Wheel, ...]], session: Session) -> dict[str, tuple[Wheel, ...]]:
        """The wheels that each may come from; what may come from the default index is not among them."""
        if not self.backends:
            return {}
        there = self.names if session.sources.find_links or not self.listed else self.listed | self.asked
        tried = sorted(there & self.names | {"torch"})
        found = dict(zip(tried, side_by_side(wheels_of, tried), strict=True))
        open_ = self.asked - self.listed - {"torch"}
        return {name: found.get(name, ()) for name in sorted(self.names) if found.get(name) or name not in open_}


def bind(requirements: Iterable[str], backends: Iterable[str], catalog: Catalog, session: Session) -> Binding:
    """Bind the family, and whatever else the torch index has itself for these backends."""
    asked, tags = {parse_requirement(text).name for text in requirements}, frozenset(backends)
    look = partial(_names_listed, catalog=catalog, session=session)
    listed = frozenset[str]().union(*side_by_side(look, sorted(tags)))
    return Binding(tags, catalog.family | listed, listed, frozenset(asked))


def _check_family(document: Mapping[str, Any], planned: PlannedLock) -> None:
    """Raise ConflictError for a companion that does not load beside the build."""
    build, companions = planned.choice.build, planned.request.catalog.companions
    for package in document.get("packages", ()):
        name, version = package["name"], package.get("version", "").partition("+")[0]
        known = companions.get((name, version))
        if known and not known.loads_in(build):
            message = f"{name} {version} does not load beside torch {build.name}"
            raise ConflictError("no-companion", message, hint=f"ask for an older {name}, or leave it out")


def _files(package: Mapping[str, Any]) -> Iterator[LockedFile]:
    """The files of a package; a folder and a repository have none, and no hash."""
    entries = package.get("wheels") or [package[kind] for kind in ("sdist", "archive") if kind in package]
    for entry in entries:
        sha256 = entry.get("hashes", {}).get("sha256")
        url = entry.get("url") or Path(entry["path"]).as_uri()
        yield LockedFile(package["name"], url, None if sha256 and is_unknown(sha256) else sha256)


def _strayed(file: LockedFile, why: str) -> InstallationError:
    address = file.url.partition("?")[0]
    return InstallationError("wrong-source", f"{file.package} would come from {address}", why=why)


def _published() -> Mapping[str, str]:
    return {row["file"]: row["sha256"] for row in authored.read_data("hashes.toml")["wheels"]}


def _names_listed(backend: str, catalog: Catalog, session: Session) -> frozenset[str]:
    """What the torch index lists for a backend of the family, and what else it has itself."""
    named = index_names(session.sources, session.client, backend)
    strangers = [name for name in sorted(named - catalog.family) if not _is_copied(name, catalog)][:STRANGERS]
    own = own_names(session.sources, session.client, backend, strangers) if strangers else frozenset[str]()
    return named & catalog.family | own


def _is_copied(name: str, catalog: Catalog) -> bool:
    return any(name == known or (known.endswith("*") and name.startswith(known[:-1])) for known in catalog.copied)
