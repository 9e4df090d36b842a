"""Find the nearest satisfiable request with another torch version.

``--relax`` installs that version, and refusals suggest it. Pins are never changed silently.
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

NEAREST = "selects the nearest torch that runs here"
"""The effect of ``--relax``. Only a resolution finds that version."""

ChooseFor = Callable[[Request], object]
"""A function that returns a ``Plan`` if a request has a compatible build."""


class RelaxedRequest(Value):
    """A satisfiable request that replaces an unsatisfiable request."""

    request: Request
    torch: str
    """The torch version in the new request, such as ``2.7.1``."""

    dropped_requirements: tuple[Requirement, ...]
    """The requirements that the new request omits, torch first."""


def find_nearest_request(
    request: Request,
    catalog: Catalog,
    choose_for: ChooseFor,
) -> RelaxedRequest | None:
    """Return a request for the nearest compatible torch version.

    Args:
        request: A request without a compatible build.
        catalog: The catalog with the torch releases.
        choose_for: Plans another request for this machine or for all lock targets.

    Returns:
        The request, or None if the original request does not limit torch or if no
        torch version satisfies its other requirements.
    """
    limits = list_version_limits(request)
    of_torch = [limit for limit in limits if limit.name == "torch"]
    tied = [
        limit
        for limit in limits
        if limit not in of_torch and catalog.is_tied(limit.name)
    ]
    # Restore only limits on requested companions, because the catalog lists their compatible versions.
    known = PAIRED & requirement_names(request.requirements)

    def create_request(
        torch: Version, dropped: Collection[Requirement]
    ) -> Request | None:
        """Return a request for a torch version if it is satisfiable."""
        relaxed = _create_request_for_torch(request, torch, dropped, catalog.family)
        return relaxed if isinstance(choose_for(relaxed), Plan) else None

    for torch in list_nearest_torches(request, catalog):
        relaxed = create_request(torch, tied)
        if relaxed is None:
            continue
        dropped = tied
        # Restore each requirement for a companion that this torch version satisfies.
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


def list_nearest_torches(request: Request, catalog: Catalog) -> list[Version]:
    """Return torch releases by their distance from the requested versions.

    Returns:
        The releases, nearest first. Empty if the request does not limit torch.
    """
    paired = [one for one in list_version_limits(request) if one.name in PAIRED]
    if not paired:
        return []
    releases = catalog.releases
    nearest = sort_by_distance(releases, _find_requested_minors(releases, paired))
    of_torch = [one for one in paired if one.name == "torch"]
    # A torch that the request allows may run with other companions.
    return sorted(
        nearest, key=lambda torch: not all(one.allows(torch) for one in of_torch)
    )


def list_version_limits(request: Request) -> list[Requirement]:
    """Return requirements and constraints that have a version specifier."""
    requirements = (*request.requirements, *request.constraints)
    return [requirement for requirement in requirements if requirement.specifier]


def _create_request_for_torch(
    request: Request,
    torch: Version,
    dropped: Collection[Requirement],
    family: Collection[str],
) -> Request:
    """Replace the torch version in a request, and drop requirements.

    Dropped companions of torch remain requested, but without a version. Dropped dependencies of torch, such as
    nvidia-cublas-cu11, are omitted, because another torch may depend on packages with different names.

    Args:
        request: The request to change.
        torch: The torch version to request instead.
        dropped: The requirements to drop.
        family: The package names of torch and its companions.
    """
    requirements = []
    for requirement in request.requirements:
        if requirement.name == "torch" and not requirement.url:
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


def sort_by_distance(
    releases: Iterable[Version], minors: Collection[tuple[int, ...]]
) -> list[Version]:
    """Sort releases by their distance from the requested minor releases.

    Requested minor releases come first, then later ones, then earlier ones. Within a minor release, the latest patch
    release comes first, because it has the same API and fewer bugs.
    """
    if not minors:
        return []

    def compute_distance(release: Version) -> tuple[int, ...]:
        minor = release.release[:2]
        if minor < min(minors):
            return (2,)
        return (1, *minor) if minor > max(minors) else (0,)

    return sorted(sorted(releases, reverse=True), key=compute_distance)


def _find_requested_minors(
    releases: Mapping[Version, Release], limits: Sequence[Requirement]
) -> set[tuple[int, ...]]:
    """Return the minor releases of torch that a request allows or mentions."""
    minors = {
        torch.release[:2]
        for torch, release in releases.items()
        if _is_requested(release, limits)
    }
    if minors:
        return minors
    mentioned = find_mentioned_minors([one for one in limits if one.name == "torch"])
    # Ignore a version that is newer than all torch releases.
    return {minor for minor in mentioned if minor <= max(releases).release[:2]}


def find_mentioned_minors(limits: Iterable[Requirement]) -> set[tuple[int, ...]]:
    """Return the minor releases in the version specifiers of requirements."""
    return {
        version_key(part.version)[:2]
        for limit in limits
        for part in limit.specifier or ()
    } - {()}


def _is_requested(release: Release, limits: Sequence[Requirement]) -> bool:
    """Return whether a torch release satisfies the requested versions."""
    of_torch = [limit for limit in limits if limit.name == "torch"]
    versions = {"torch": (str(release.torch),), **release.companions}
    return all(
        any(map(limit.allows, versions.get(limit.name, ())))
        for limit in of_torch or limits
    )
