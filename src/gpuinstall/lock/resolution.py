"""What one lock request resolves to: every file known and checked for where it comes from; the bytes come last."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import dataclass
from gpuinstall.lock.binding import Binding
from gpuinstall.lock.fetch import Hashes, known_hashes
from gpuinstall.lock.lock import LockedFile
from gpuinstall.lock.origins import (
    check_addresses,
    check_default,
    check_provenance,
    check_unbuilt,
    locked_files,
    packages_of_indexes,
    requested_hashes,
    with_own_indexes,
    with_requested_files,
)
from gpuinstall.lock.resolver import ResolverProject, resolve_project, versions_in
from gpuinstall.lock.source_builds import build_tools
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.plan.values import PROGRAM_REASONS, Choice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuinstall.base.finding import Reason
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.target import Target
    from gpuinstall.plan import Plan
    from gpuinstall.sources.session import Session

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

    relaxed: Mapping[str, str] = field(default_factory=dict)
    """The requirements that it does not hold to, by package: rule 14."""

    @property
    def choice(self) -> Choice:
        """The build that is chosen."""
        return self.plan.choice

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to report of its programs: who wants an older torch, and what could not be the newest."""
        reasons = [reason for reason in self.plan.reasons if reason.code in PROGRAM_REASONS]
        return tuple(reason.message for reason in reasons)

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package."""
        versions = self.held.items()
        return {name: version for name, version in versions if version}

    @property
    def held(self) -> dict[str, str]:
        """The version of each package; empty for one out of a folder."""
        return versions_in(self.document)

    def warned_of(self, reasons: Iterable[Reason]) -> Resolution:
        """Return the same with further warnings in its plan."""
        return replace(
            self,
            plan=replace(
                self.plan,
                warnings=(*self.plan.warnings, *reasons),
            ),
        )


def resolve(
    request: LockRequest,
    session: Session,
    bounds: Iterable[str] = (),
) -> Resolution | Conflict:
    """Resolve what was chosen, within ``bounds`` that are ours, and check it; raise InstallationError if uv cannot."""
    choice = request.choice
    binding = Binding(choice.requirements, [choice.build], request, session)
    constraints = request.catalog.constraints(choice.build.torch)
    project, _ = binding.project(request.pins.within(*bounds, *constraints))
    # Before any request: what an index has of that name may run its code when it is resolved.
    requirements = map(parse_requirement, project.requirements)
    by_name = [requirement.name for requirement in requirements if not requirement.url]
    served = dict.fromkeys(by_name, ())
    check_addresses(served, session.sources)
    document = _resolve_complete(project, request.catalog, session)
    if isinstance(document, Conflict):
        return document
    check_unbuilt(document, binding.names)
    document = with_own_indexes(document, project.pages, session)
    files = locked_files(document)
    check_provenance(files, project.pages)
    check_default(files, request.catalog.family - project.pages.keys(), session)
    conflict = _unloadable(document, request)
    if conflict:
        return conflict
    hashes = known_hashes(files, session)
    check_addresses(packages_of_indexes(document), session.sources)
    requested = requested_hashes(
        request.request.requirements,
        document,
        session.sources,
    )
    if requested:
        document = with_requested_files(document, requested, hashes, session)
        files = locked_files(document)
        hashes = hashes.of(files)
    return Resolution(
        request=request,
        plan=request.plan,
        target=request.target,
        document=document,
        files=files,
        hashes=hashes,
    )


def _resolve_complete(
    project: ResolverProject,
    catalog: Catalog,
    session: Session,
) -> dict[str, Any] | Conflict:
    """Resolve with the packages that a resolution has to have and that nothing in it requires."""
    document = resolve_project(project, session)
    if isinstance(document, Conflict):
        return document
    undeclared = catalog.undeclared(versions_in(document))
    missing = (*build_tools(document), *undeclared)
    if not missing:
        return document
    requirements = (*project.requirements, *missing)
    project = replace(project, requirements=requirements)
    return resolve_project(project, session)


def _unloadable(document: Mapping[str, Any], request: LockRequest) -> Conflict | None:
    """Return the conflict of a companion that does not load beside the build, if there is one."""
    build = request.choice.build
    for package in document["packages"]:
        name = package["name"]
        version = package.get("version", "").partition("+")[0]
        key = (name, version)
        companion = request.catalog.companions.get(key)
        if companion and not companion.loads_in(build):
            error = NoBuildError(
                "no-companion",
                f"{name} {version} is incompatible with torch {build.name}",
                hint=f"Request an older {name}, or leave it out",
            )
            return Conflict(error)
    return None
