"""What one lock request resolves to: every file known and checked for where it comes from; the bytes come last."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import Catalog, Wheel, authored
from gpuinstall.catalog.listing import family_wheels
from gpuinstall.errors import NoBuildError
from gpuinstall.extensions.rows import load_extensions
from gpuinstall.lock.binding import bind, fitting
from gpuinstall.lock.fetch import Hashes, known_hashes
from gpuinstall.lock.lock import LockedFile
from gpuinstall.lock.origins import (
    check_addresses,
    check_provenance,
    check_unbuilt,
    locked_files,
    packages_of_indexes,
    requested_hashes,
    with_own_indexes,
    with_requested_files,
)
from gpuinstall.lock.programs import list_programs, programs_first
from gpuinstall.lock.resolver import ResolverProject, resolve_project
from gpuinstall.lock.source_builds import build_tools
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan.requirement import parse_requirement
from gpuinstall.plan.values import PROGRAM_REASONS, Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.finding import Reason
    from gpuinstall.lock.request import LockRequest, VersionPins
    from gpuinstall.lock.target import Target
    from gpuinstall.plan import Plan
    from gpuinstall.session import Session

TARGETS_AT_ONCE = 6
"""For how many targets uv resolves side by side: more of them only wait for the same cores."""


@dataclass(frozen=True)
class Resolution:
    """What uv resolved for a lock request, with the plan that serves it."""

    request: LockRequest
    plan: Plan
    target: Target
    document: Mapping[str, Any]
    """uv's own lock."""

    files: tuple[LockedFile, ...]
    hashes: Hashes
    apart: Mapping[str, str] = field(default_factory=dict)
    """Why a package could not have the version that the other targets have."""

    @property
    def choice(self) -> Choice:
        """The build that is chosen."""
        return self.plan.choice

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to say of its programs: who wants an older torch, and what could not be the newest."""
        return tuple(
            reason.message for reason in self.plan.reasons if reason.code in PROGRAM_REASONS
        )

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        return {
            package["name"]: package["version"]
            for package in self.document["packages"]
            if "version" in package
        }

    @property
    def editable_folders(self) -> dict[str, Path]:
        """The folder of each editable package."""
        folders = {
            package["name"]: package["directory"]
            for package in self.document["packages"]
            if "directory" in package
        }
        return {
            name: Path(folder["path"]).resolve()
            for name, folder in folders.items()
            if folder.get("editable")
        }

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return {
            package["name"]: package.get("version", "") for package in self.document["packages"]
        }

    def warned_of(self, reasons: Iterable[Reason]) -> Resolution:
        """Return the same with further warnings in its plan."""
        return replace(self, plan=replace(self.plan, warnings=(*self.plan.warnings, *reasons)))


def resolve(
    request: LockRequest, session: Session, bounds: Iterable[str] = ()
) -> Resolution | Conflict:
    """Resolve what was chosen, within ``bounds`` that are ours; raise InstallationError if uv cannot.

    If a package has wheels for newer systems alone, what this very machine's glibc can run is allowed.
    """
    oldest, pins = request.target, request.pins.within(*bounds)
    answer = _resolve_for(oldest, request, pins, session)
    newest = oldest.up_to(request.machine.glibc)
    has_wheels = isinstance(answer, Resolution) and all(
        file.name.endswith(".whl") for file in answer.files
    )
    if newest == oldest or has_wheels:
        return answer
    again = _resolve_for(newest, request, pins, session)
    return again if isinstance(again, Resolution) else answer


def _resolve_for(
    target: Target, request: LockRequest, pins: VersionPins, session: Session
) -> Resolution | Conflict:
    """Resolve for one target, and check what uv answered."""
    project, bound_names = _resolver_project(target, request, pins, session)
    # Before anything is asked for: what an index has of that name may run its code when it is resolved.
    by_name = [one.name for one in map(parse_requirement, project.requirements) if not one.url]
    check_addresses(dict.fromkeys(by_name, frozenset()), session.sources)
    foreseen = foreseen_files(request, project.pages)
    with ThreadPoolExecutor(1) as pool:  # their servers are asked while uv resolves
        ahead = pool.submit(known_hashes, foreseen, published_hashes, session)
        document = resolve_project(project, session)
        if not isinstance(document, Conflict) and (
            missing := _missing_packages(document, request.catalog)
        ):
            with_missing = replace(project, requirements=(*project.requirements, *missing))
            document = resolve_project(with_missing, session)
    if isinstance(document, Conflict):
        return document
    check_unbuilt(document, bound_names)
    document = with_own_indexes(document, project.pages, session)
    files = locked_files(document)
    check_provenance(files, project.pages)
    if conflict := _unloadable(document, request):
        return conflict
    others = [file for file in files if file not in foreseen]
    hashes = ahead.result().of(files) | known_hashes(others, published_hashes, session)
    check_addresses(packages_of_indexes(document), session.sources)
    if requested := requested_hashes(request.request.requirements, document, session.sources):
        document = with_requested_files(document, requested, hashes, session)
        files = locked_files(document)
        hashes = hashes.of(files)
    return Resolution(request, request.plan, target, document, files, hashes)


def _missing_packages(document: Mapping[str, Any], catalog: Catalog) -> tuple[str, ...]:
    """Return the packages that a resolution has to have and that nothing in it requires."""
    versions = {
        package["name"]: package.get("version", "") for package in document.get("packages", ())
    }
    return (*build_tools(document), *catalog.undeclared(versions))


def _resolver_project(
    target: Target, request: LockRequest, pins: VersionPins, session: Session
) -> tuple[ResolverProject, frozenset[str]]:
    """Return what uv is given, and the names that are bound to the source of the build."""
    choice = request.choice
    tags = target.tags(choice.python)

    def wheels_of(package: str) -> tuple[Wheel, ...]:
        listed = family_wheels(session.sources, session.client, choice.build.backend.tag, package)
        return fitting(listed, target.backend, tags)

    backends = () if choice.index is None else (target.backend,)
    bound = bind(choice.requirements, backends, request.catalog, session)
    extensions = {**load_extensions().unclaimed, **request.files}
    names = bound.names.union(extensions)
    programs = list_programs(choice.requirements, names, target, choice.python, session)
    wheels_only = names | {program.name for program in programs if program.needs_no_building}
    project = ResolverProject(
        (*programs_first(choice.requirements, bound.names), *request.libraries),
        choice.python,
        target,
        pages={**bound.pages(wheels_of, session), **extensions},
        pins=pins.within(*request.catalog.beside(choice.build.torch)),
        folder=session.folder,
        wheels_only=wheels_only | session.sources.only_binary - {":all:"},
        sources=session.sources,
    )
    return project, bound.names


def foreseen_files(
    request: LockRequest, pages: Mapping[str, tuple[Wheel, ...]]
) -> list[LockedFile]:
    """Return the files without a hash that uv will take: their versions are pinned, by the choice or by torch."""
    pins = list(request.choice.requirements)
    release = request.catalog.releases.get(request.choice.build.torch)
    if release and release.triton:
        pins.append(f"triton{release.triton}")
    foreseen = []
    for pin in map(parse_requirement, pins):
        wheels = [wheel for wheel in pages.get(pin.name, ()) if pin.allows(wheel.version)]
        if len(wheels) == 1 and not wheels[0].sha256:
            foreseen.append(LockedFile(pin.name, wheels[0].url))
    return foreseen


def _unloadable(document: Mapping[str, Any], request: LockRequest) -> Conflict | None:
    """Return the conflict of a companion that does not load beside the build, if there is one."""
    build = request.choice.build
    for package in document.get("packages", ()):
        name, version = package["name"], package.get("version", "").partition("+")[0]
        companion = request.catalog.companions.get((name, version))
        if companion and not companion.loads_in(build):
            message = f"{name} {version} is incompatible with torch {build.name}"
            return Conflict(
                NoBuildError(
                    "no-companion", message, hint=f"Request an older {name}, or leave it out"
                )
            )
    return None


def published_hashes() -> Mapping[str, str]:
    """Return the hashes of the official index's wheels by the names of the files, as far as they are catalogued."""
    return {row["file"]: row["sha256"] for row in authored.read_data("hashes.toml")["wheels"]}
