"""Find the nearest satisfiable request, with another torch.

``--relax`` uses it, and a refusal suggests it. No pin is changed silently.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import version_key
from gpuinstall.catalog.catalog import PAIRED, Catalog, Release
from gpuinstall.plan.values import Plan

if TYPE_CHECKING:
    from packaging.version import Version

ChooseFor = Callable[[Request], object]
"""Return a Plan for a request, or another value if no build is compatible."""


class RelaxedRequest(Value):
    """Satisfiable request that replaces an unsatisfiable one."""

    request: Request
    torch: str
    """The torch version, such as ``2.7.1``."""

    dropped_requirements: tuple[Requirement, ...]
    """The requirements that were dropped, torch first."""


def find_nearest_request(
    request: Request,
    catalog: Catalog,
    choose_for: ChooseFor,
) -> RelaxedRequest | None:
    """Return the request for the nearest compatible torch.

    Args:
        request: A request without a compatible build.
        catalog: The releases of torch.
        choose_for: Plans another request for this machine, or for all targets of a lock.

    Returns:
        None if the request does not limit torch, or no torch satisfies the rest.
    """
    limits = list_version_limits(request)
    paired = [limit for limit in limits if limit.name in PAIRED]
    if not paired:
        return None
    of_torch = [limit for limit in limits if limit.name == "torch"]
    tied = [
        limit
        for limit in limits
        if limit not in of_torch and catalog.is_tied(limit.name)
    ]
    # Restore only limits of requested companions, whose compatible versions the catalog lists.
    known = PAIRED & requirement_names(request.requirements)

    def create_request(
        torch: Version, dropped: Collection[Requirement]
    ) -> Request | None:
        """Return a satisfiable request for a torch, if any."""
        relaxed = _create_request_for_torch(request, torch, dropped, catalog.family)
        return relaxed if isinstance(choose_for(relaxed), Plan) else None

    for torch in _sort_by_distance(
        catalog.releases, _find_requested_minors(catalog.releases, paired)
    ):
        relaxed = create_request(torch, tied)
        if relaxed is None:
            continue
        dropped = tied
        # Restore each tied requirement that this torch satisfies.
        for limit in tied:
            others = [other for other in dropped if other != limit]
            nearer = create_request(torch, others) if limit.name in known else None
            if nearer:
                relaxed = nearer
                dropped = others
        dropped_requirements = [
            limit for limit in of_torch if not limit.allows(torch)
        ] + dropped
        return RelaxedRequest(
            relaxed, torch=str(torch), dropped_requirements=tuple(dropped_requirements)
        )
    return None


def list_version_limits(request: Request) -> list[Requirement]:
    """Return the requirements and constraints that limit a version."""
    requirements = (*request.requirements, *request.constraints)
    return [requirement for requirement in requirements if requirement.specifier]


def _create_request_for_torch(
    request: Request,
    torch: Version,
    dropped: Collection[Requirement],
    family: Collection[str],
) -> Request:
    """Replace the version of torch in a request, and drop requirements.

    Packages of the family remain requested by name. Dependencies of torch, such as nvidia-cublas-cu11, do not, because
    they have other names for another torch.

    Args:
        request: The request.
        torch: The release to request instead.
        dropped: The requirements to drop.
        family: The names of the torch family.
    """
    requirements = []
    for requirement in request.requirements:
        if requirement.name == "torch" and requirement.specifier:
            requirements.append(requirement.with_specifier(f"=={torch}"))
        elif requirement not in dropped:
            requirements.append(requirement)
        elif requirement.name in family:
            requirements.append(requirement.with_specifier(""))
    # If only torchvision is requested, torch must be added.
    if "torch" not in requirement_names(requirements):
        requirements.append(Requirement.of("torch", f"=={torch}"))
    constraints = [
        constraint
        for constraint in request.constraints
        if constraint.name != "torch" and constraint not in dropped
    ]
    return replace(
        request, requirements=tuple(requirements), constraints=tuple(constraints)
    )


def _sort_by_distance(
    releases: Iterable[Version], minors: Collection[tuple[int, ...]]
) -> list[Version]:
    """Sort releases by distance: requested minors, later ones, earlier ones.

    The latest patch release of each minor comes first, because it has the same API and fewer bugs.
    """
    if not minors:
        return []

    def compute_distance(torch: Version) -> tuple[int, ...]:
        minor = torch.release[:2]
        if minor < min(minors):
            return (2,)
        return (1, *minor) if minor > max(minors) else (0,)

    return sorted(sorted(releases, reverse=True), key=compute_distance)


def _find_requested_minors(
    releases: Mapping[Version, Release], limits: Sequence[Requirement]
) -> set[tuple[int, ...]]:
    """Return the requested minor releases, or the mentioned ones if none."""
    minors = {
        torch.release[:2]
        for torch, release in releases.items()
        if _is_requested(release, limits)
    }
    if minors:
        return minors
    newest = max(releases).release
    for limit in limits:
        if limit.name == "torch":
            for part in limit.specifier or ():
                version = version_key(part.version)
                # Ignore a version that is newer than all releases.
                if () < version < newest:
                    minors.add(version[:2])
    return minors


def _is_requested(release: Release, limits: Sequence[Requirement]) -> bool:
    """Return whether a torch satisfies the limits on it or on companions."""
    of_torch = [limit for limit in limits if limit.name == "torch"]
    if of_torch:
        return all(limit.allows(release.torch) for limit in of_torch)
    versions = release.companions
    return all(any(map(limit.allows, versions.get(limit.name, ()))) for limit in limits)
