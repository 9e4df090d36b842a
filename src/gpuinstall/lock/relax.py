"""A request that cannot be met as it is written, met as near to its words as a machine can (rule 14 of the design).

torch moves first, and with it what its build decides (``gpuinstall.plan.relax``). Every other requirement stays, and if
one cannot, the fewest give way (``gpuinstall.lock.concessions``). What is not pinned is taken as of the date that the
pins speak of: the programs of that time were written for the packages of that time.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.errors import GpuInstallError, InstallationError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.requirement import ParsedRequirement, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.concessions import Concessions, fewest_concessions
from gpuinstall.lock.folder_project import read_folder_project
from gpuinstall.lock.live import live_requests
from gpuinstall.lock.pinned_pages import date_of_pins
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.uv_failure import BUILD_FAILED, Conflict, build_conflict
from gpuinstall.plan import Rejected
from gpuinstall.plan.relax import nearest_request, version_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.plan import Plan
    from gpuinstall.plan.relax import RelaxedRequest
    from gpuinstall.sources.session import Session

    Resolve = Callable[[Sequence[LockRequest], Session], "list[Resolution] | Conflict"]

_FAILURES_OF_A_VERSION = {BUILD_FAILED, "build-needs-torch"}
"""The codes of failures that another version of the package, one that has a wheel, may not have."""


def resolve_relaxed(
    requests: Sequence[LockRequest],
    refusal: GpuInstallError,
    session: Session,
    *,
    search: Resolve,
    resolve: Resolve,
) -> list[Resolution]:
    """Resolve what is nearest to requests that cannot be met as they are written.

    Args:
        requests: One for each target.
        refusal: What they were refused with.
        session: The sources and the clients of the run.
        search: Resolves requests within what the sources list.
        resolve: Does the same from the beginning, with the warnings about the sources.

    Raises:
        GpuInstallError: ``refusal`` if no torch that runs here serves the rest of the request, or what stands against
            the last trial.
    """
    requests = [_with_requirements_of_folders(request, session) for request in requests]
    silent = replace(session, reporter=SilentReporter())
    live, _ = live_requests(requests, silent)
    refusals = [one.outcome for one in live if isinstance(one.outcome, Rejected)]
    rejected = refusals[0] if refusals else None
    nearest = None
    if rejected:
        nearest = _nearest_request(live)
        if nearest is None:
            raise refusal
    live = _with_nearest_torch(live, nearest)
    terms = _read_terms(requests[0].request, nearest, live[0], session)
    undated = _goes_with_torch(live, silent, search)

    def trial(concessions: Concessions) -> list[Resolution] | Conflict:
        relaxed = terms.of(live, concessions)
        return _attempt(relaxed, terms.dated(silent, concessions), search)

    names = [pin.name for pin in terms.pins]
    concessions = fewest_concessions(names, trial, undated=undated)
    if isinstance(concessions, Conflict):
        raise concessions.error
    # Once more, with the warnings about the sources and about the packages' code.
    relaxed = terms.of(_with_nearest_torch(requests, nearest), concessions)
    answer = resolve(relaxed, terms.dated(session, concessions))
    if isinstance(answer, Conflict):
        raise answer.error
    why = rejected.reasons[0].message if rejected else ""
    return [_explained(resolution, terms, concessions, why) for resolution in answer]


def relaxed_again(
    request: LockRequest,
    packages: Collection[str],
    session: Session,
) -> LockRequest:
    """Return a request as it was relaxed for a lock, in which the versions of ``packages`` gave way."""
    request = _with_requirements_of_folders(request, session)
    return replace(request, request=_without_versions(request.request, packages))


def _with_requirements_of_folders(request: LockRequest, session: Session) -> LockRequest:
    """Request what the projects in folders require in their place: so it can give way."""
    requirements = dict.fromkeys(request.request.requirements)
    projects = []
    for text in request.request.requirements:
        project = read_folder_project(parse_requirement(text), session.folder)
        if project:
            projects.append(project)
            requirements.update(dict.fromkeys(project.requirements))
    own = replace(request.request, requirements=tuple(requirements))
    return replace(request, request=own, folder_projects=tuple(projects))


class _Terms(NamedTuple):
    """What is held to if a request is relaxed."""

    moved: tuple[ParsedRequirement, ...]
    """The requirements of torch, and of what goes with it, that are not held to."""

    pins: tuple[ParsedRequirement, ...]
    """The other requirements that limit versions."""

    date: str | None
    """The date for whatever is not pinned; None: no date."""

    has_own_date: bool
    """Whether the user's own date counts instead."""

    def of(self, requests: Iterable[LockRequest], concessions: Concessions) -> list[LockRequest]:
        """Return requests without what is given up."""
        relaxed = []
        for request in requests:
            own = _without_versions(request.request, concessions.dropped)
            relaxed.append(replace(request, request=own))
        return relaxed

    def dated(self, session: Session, concessions: Concessions) -> Session:
        """Return the session whose sources show what there was at the date."""
        if self.date is None:
            return session
        # The files of a pinned version may be newer: wheels for newer Pythons come later.
        pinned = {pin.name for pin in self.pins} - concessions.dropped
        moved = {requirement.name for requirement in self.moved}
        undated = concessions.undated | pinned | moved
        sources = replace(session.sources, exclude_newer=self.date, undated=undated)
        return replace(session, sources=sources)


def _read_terms(
    request: Request,
    nearest: RelaxedRequest | None,
    relaxed: LockRequest,
    session: Session,
) -> _Terms:
    """Return what is held to of a request, whose nearest is ``relaxed``."""
    moved = nearest.moved if nearest else ()
    family = relaxed.catalog.family
    pins = [limit for limit in version_limits(relaxed.request) if limit.name not in family]
    own_date = session.sources.exclude_newer
    date = None
    if own_date is None:
        date = date_of_pins(version_limits(request), session)
    return _Terms(
        moved=tuple(map(parse_requirement, moved)),
        pins=tuple(pins),
        date=date,
        has_own_date=own_date is not None,
    )


def _without_versions(request: Request, packages: Collection[str]) -> Request:
    """Return a request that leaves the versions of some packages open."""
    requirements = []
    for text in request.requirements:
        requirement = parse_requirement(text)
        if requirement.name in packages and not requirement.url:
            requirements.append(requirement.with_specifier(""))
        else:
            requirements.append(text)
    constraints = [
        text for text in request.constraints if parse_requirement(text).name not in packages
    ]
    return replace(
        request,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
    )


def _nearest_request(requests: Sequence[LockRequest]) -> RelaxedRequest | None:
    """Return the request with the nearest torch that every target can have."""

    def outcome(candidate: Request) -> Plan | Rejected | None:
        attempts = []
        for request in requests:
            own = replace(candidate, backend=request.request.backend)
            attempts.append(replace(request, request=own))
        with suppress(MachineError, NoBuildError):
            return agree_on_torch(attempts)[0].outcome
        return None

    return nearest_request(requests[0].request, requests[0].catalog, outcome)


def _with_nearest_torch(
    requests: Sequence[LockRequest],
    nearest: RelaxedRequest | None,
) -> list[LockRequest]:
    if nearest is None:
        return list(requests)
    relaxed = []
    for request in requests:
        own = replace(
            request.request,
            requirements=nearest.request.requirements,
            constraints=nearest.request.constraints,
        )
        relaxed.append(replace(request, request=own))
    return relaxed


def _goes_with_torch(
    requests: Sequence[LockRequest],
    session: Session,
    search: Resolve,
) -> frozenset[str]:
    """Return the packages whose versions torch decides, which no date can be held to: extensions are made for one."""
    catalog = requests[0].catalog
    requirements = requests[0].request.requirements
    family = [text for text in requirements if parse_requirement(text).name in catalog.family]
    alone = []
    for request in requests:
        own = replace(request.request, requirements=tuple(family), constraints=())
        alone.append(replace(request, request=own))
    answer = _attempt(alone, session, search)
    names = set(catalog.family.union(load_extensions().rows))
    for resolution in () if isinstance(answer, Conflict) else answer:
        names.update(filter(catalog.is_tied, resolution.versions))
    return frozenset(names)


def _attempt(
    requests: Sequence[LockRequest],
    session: Session,
    search: Resolve,
) -> list[Resolution] | Conflict:
    """Resolve; a package that cannot be built is a conflict too, for it may have wheels in another version."""
    within = []
    for request in requests:
        pins = request.pins.within(*request.request.constraints)
        within.append(replace(request, pins=pins))
    try:
        return search(within, session)
    except (NoBuildError, MachineError) as error:
        return Conflict(error)
    except InstallationError as error:
        if error.code in _FAILURES_OF_A_VERSION:
            return build_conflict(error)
        raise


def _explained(
    resolution: Resolution,
    terms: _Terms,
    concessions: Concessions,
    why_torch: str,
) -> Resolution:
    """Return a resolution that tells what has moved and why; its lock records it.

    Args:
        resolution: What the relaxed request came to.
        terms: What was held to.
        concessions: What gave way beside torch.
        why_torch: Why the torch that was requested does not run.
    """
    reasons = []
    relaxed = {}
    for requirement in terms.moved:
        why = f"it goes with torch {resolution.versions['torch']}"
        if requirement.name == "torch":
            why = why_torch
        reasons.append(_move(requirement, resolution, why))
        relaxed[requirement.name] = requirement.text
    for pin in terms.pins:
        if pin.name in concessions.dropped:
            reasons.append(_move(pin, resolution, concessions.why(pin.name)))
            relaxed[pin.name] = pin.text
    if terms.date:
        reasons.append(_as_of(terms.date, resolution, concessions))
    elif not terms.has_own_date:
        message = "packages without a version in the request are the newest: no source tells the date of the pins"
        reasons.append(Reason("no-date", message))
    return replace(resolution.warned_of(reasons), relaxed=relaxed)


def _move(requirement: ParsedRequirement, resolution: Resolution, why: str) -> Reason:
    name = requirement.name
    version = resolution.versions.get(name)
    now = f"{name} {version}" if version else f"no {name}"
    return Reason("relaxed", f"{now} in place of {requirement.text}: {why}")


def _as_of(date: str, resolution: Resolution, concessions: Concessions) -> Reason:
    catalog = resolution.request.catalog
    undated = concessions.undated.intersection(resolution.versions)
    exceptions = [name for name in sorted(undated) if not catalog.is_tied(name)]
    day = date.partition("T")[0]
    message = f"packages without a version in the request are as of {day}"
    if exceptions:
        message = f"{message}, except {some(exceptions)}"
    return Reason("as-of", message)
