"""The request nearest to one that cannot be met: another torch, and with it what its build decides.

A pin is never exchanged silently: this is what ``--relax`` asks for, and what a refusal offers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement, names_of
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import numbers
from gpuinstall.catalog.catalog import PAIRED, Catalog, Release
from gpuinstall.plan.values import Plan

if TYPE_CHECKING:
    from packaging.version import Version

ChooseFor = Callable[[Request], object]
"""What a request comes to: a Plan, or something else if no build serves it."""


class RelaxedRequest(Value):
    """A request that can be met in place of one that cannot."""

    request: Request
    torch: str
    """Its torch, ``2.7.1``."""

    moved: tuple[Requirement, ...]
    """The requirements that it does not satisfy, torch's first."""


def nearest_request(
    request: Request,
    catalog: Catalog,
    choose_for: ChooseFor,
) -> RelaxedRequest | None:
    """Return the request with the nearest torch that runs, without the requirements that it excludes.

    Args:
        request: A request that no build serves.
        catalog: The releases of torch.
        choose_for: What another request would come to on this machine, or on all that a lock is for.

    Returns:
        None if the request says nothing of torch, or no torch serves the rest of it.
    """
    limits = version_limits(request)
    paired = [limit for limit in limits if limit.name in PAIRED]
    if not paired:
        return None
    tied = [
        limit
        for limit in limits
        if limit.name != "torch" and catalog.is_tied(limit.name)
    ]
    # The catalogue knows what goes with a torch of those that are requested beside it.
    known = PAIRED & names_of(request.requirements)

    def served(
        torch: Version,
        excluded: Collection[Requirement],
    ) -> Request | None:
        """Return the request for a torch without the versions of some requirements; None if no build serves it."""
        relaxed = _for_torch(request, torch, excluded, catalog.family)
        if isinstance(choose_for(relaxed), Plan):
            return relaxed
        return None

    for torch in _by_distance(catalog.releases, paired):
        relaxed = served(torch, tied)
        if relaxed is None:
            continue
        # All of them were left out to find the torch: now each is tried beside it again.
        excluded = tied
        for limit in tied:
            # What goes with this torch beside what is kept already is kept too.
            others = [other for other in excluded if other != limit]
            nearer = served(torch, others) if limit.name in known else None
            if nearer:
                relaxed = nearer
                excluded = others
        of_torch = [limit for limit in limits if limit.name == "torch"]
        moved = [limit for limit in of_torch if not limit.allows(torch)] + excluded
        return RelaxedRequest(relaxed, torch=str(torch), moved=tuple(moved))
    return None


def version_limits(request: Request) -> list[Requirement]:
    """Return the requirements and constraints that limit a version."""
    requirements = (*request.requirements, *request.constraints)
    return [requirement for requirement in requirements if requirement.specifier]


def _for_torch(
    request: Request,
    torch: Version,
    excluded: Iterable[Requirement],
    family: Collection[str],
) -> Request:
    """Return the request for a torch, without the versions of some requirements.

    What is PyTorch's own stays requested by its name. What torch brings with it (nvidia-cublas-cu11) does not: another
    torch has it under another name.

    Args:
        request: The request.
        torch: The release to request in place of its own.
        excluded: The requirements that it no longer holds to.
        family: The names of the packages that are chosen together with torch.
    """
    texts = {limit.text for limit in excluded}
    requirements = []
    for requirement in request.requirements:
        if requirement.name == "torch" and requirement.specifier:
            requirements.append(requirement.with_specifier(f"=={torch}"))
        elif requirement.text not in texts:
            requirements.append(requirement)
        elif requirement.name in family:
            requirements.append(requirement.with_specifier(""))
    # A request may name torchvision alone, which would leave torch open.
    if "torch" not in names_of(requirements):
        requirements.append(Requirement.of("torch", f"=={torch}"))
    constraints = [
        constraint
        for constraint in request.constraints
        if constraint.name != "torch" and constraint.text not in texts
    ]
    return replace(
        request,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
    )


def _by_distance(
    releases: Mapping[Version, Release],
    limits: Sequence[Requirement],
) -> list[Version]:
    """Sort the releases of torch: the minors that were requested, then those above, then those below.

    Within a minor the newest patch comes first: it has the same interface, and fewer faults.
    """
    minors = _requested_minors(releases, limits)
    if not minors:
        return []
    newest_first = sorted(releases, reverse=True)
    below = []
    between = []
    above = []
    for torch in newest_first:
        minor = torch.release[:2]
        if minor < min(minors):
            below.append(torch)
        elif minor > max(minors):
            above.append(torch)
        else:
            between.append(torch)
    # The patches of a minor keep their order.
    above.sort(key=lambda torch: torch.release[:2])
    return between + above + below


def _requested_minors(
    releases: Mapping[Version, Release],
    limits: Sequence[Requirement],
) -> set[tuple[int, ...]]:
    """Return the ``X.Y`` of torch that a request allows, or if none is in the catalogue, those in its text."""
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
                version = numbers(part.version)
                # One that is newer than every release does not exist.
                if () < version < newest:
                    minors.add(version[:2])
    return minors


def _is_requested(release: Release, limits: Sequence[Requirement]) -> bool:
    """Whether a release of torch satisfies the limits of torch, or without any those of its companions."""
    of_torch = [limit for limit in limits if limit.name == "torch"]
    if of_torch:
        return all(limit.allows(release.torch) for limit in of_torch)
    versions = release.companions
    return all(any(map(limit.allows, versions.get(limit.name, ()))) for limit in limits)
