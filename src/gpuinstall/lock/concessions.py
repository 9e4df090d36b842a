"""A request that cannot be met as it is written, met as near to its words as a machine can.

torch moves first, and with it what its build decides (``gpuinstall.plan.relax``). Every other requirement stays, and if
one cannot, as few give way as go. What is not pinned is taken as of the date that the pins speak of: the programs of that
time were written for the packages of that time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
    MachineError,
    NoBuildError,
)
from gpuinstall.base.files import parse_json
from gpuinstall.base.finding import Reason
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.requirement import ParsedRequirement, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.live import live_requests
from gpuinstall.lock.programs import shortened
from gpuinstall.lock.request.lock_request import LockRequest, agree_on_torch
from gpuinstall.lock.request.project import read_folder_project
from gpuinstall.lock.search import search_locks
from gpuinstall.lock.uv_failure import BUILD_FAILED, Conflict, build_conflict
from gpuinstall.plan import Rejected
from gpuinstall.plan.relax import nearest_request, version_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuinstall.base.request import Request
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.plan import Plan
    from gpuinstall.plan.relax import RelaxedRequest
    from gpuinstall.sources.session import Session
    from gpuinstall.sources.web import Page

    Resolve = Callable[[Sequence[LockRequest], Session], "list[Resolution] | Conflict"]
    Trial = Callable[["Concessions"], "list[Resolution] | Conflict"]
    """Resolves a request with some of it given up."""

_FAILURES_OF_A_VERSION = {BUILD_FAILED, "build-needs-torch"}
"""The codes of failures that another version of the package, one that has a wheel, may not have."""

MOST_TRIALS = 60
"""How often something more may be given up until a request can be met: a trial takes a second or two."""


def resolve_relaxed(
    requests: Sequence[LockRequest],
    refusal: GpuInstallError,
    session: Session,
    *,
    resolve: Resolve,
) -> list[Resolution]:
    """Resolve what is nearest to requests that cannot be met as they are written.

    Args:
        requests: One for each target.
        refusal: What they were refused with.
        session: The sources and the clients of the run.
        resolve: Resolves requests from the beginning, with the warnings about the sources.

    Raises:
        GpuInstallError: ``refusal`` if no torch that runs here serves the rest of the request, or what stands against
            the last trial.
    """
    requests = [_with_requirements_of_folders(request, session) for request in requests]
    limits = version_limits(requests[0].request)
    silent = replace(session, reporter=Reporter())
    live, _ = live_requests(requests, silent)
    refusals = [one.outcome for one in live if isinstance(one.outcome, Rejected)]
    moved: list[ParsedRequirement] = []
    if refusals:
        nearest = _nearest_request(live)
        if nearest is None:
            raise refusal
        moved = list(map(parse_requirement, nearest.moved))
        changes = {
            "requirements": nearest.request.requirements,
            "constraints": nearest.request.constraints,
        }
        live = [one.asking(**changes) for one in live]
        requests = [one.asking(**changes) for one in requests]
    family = live[0].catalog.family
    pins = [one for one in version_limits(live[0].request) if one.name not in family]
    terms = _Terms(moved, pins)
    if session.sources.exclude_newer is None:
        terms = _Terms(moved, pins, date_of_pins(limits, session))

    def trial(concessions: Concessions) -> list[Resolution] | Conflict:
        relaxed = [_without_versions(request, concessions.dropped) for request in live]
        return _attempt(relaxed, terms.dated(silent, concessions))

    undated = _goes_with_torch(live, silent)
    concessions = fewest_concessions([pin.name for pin in pins], trial, undated=undated)
    if isinstance(concessions, Conflict):
        raise concessions.error
    # Once more, with the warnings about the sources and about the packages' code.
    relaxed = [_without_versions(request, concessions.dropped) for request in requests]
    answer = resolve(relaxed, terms.dated(session, concessions))
    if isinstance(answer, Conflict):
        raise answer.error
    why_torch = refusals[0].reasons[0].message if refusals else ""
    return [_explained(one, terms, concessions, why_torch) for one in answer]


def relaxed_again(
    request: LockRequest,
    packages: Collection[str],
    session: Session,
) -> LockRequest:
    """Return a request as it was relaxed for a lock, in which the versions of ``packages`` gave way."""
    request = _with_requirements_of_folders(request, session)
    return _without_versions(request, packages)


def _with_requirements_of_folders(
    request: LockRequest,
    session: Session,
) -> LockRequest:
    """Request what the projects in folders require in their place: so it can give way."""
    requirements = dict.fromkeys(request.request.requirements)
    projects = []
    for text in request.request.requirements:
        project = read_folder_project(parse_requirement(text), session.folder)
        if project:
            projects.append(project)
            requirements.update(dict.fromkeys(project.requirements))
    request = request.asking(requirements=tuple(requirements))
    return replace(request, folder_projects=tuple(projects))


class _Terms(NamedTuple):
    """What is held to if a request is relaxed."""

    moved: Sequence[ParsedRequirement]
    """The requirements of torch, and of what goes with it, that are not held to."""

    pins: Sequence[ParsedRequirement]
    """The other requirements that limit versions."""

    date: str | None = None
    """The date for whatever is not pinned; None: no date."""

    def dated(
        self,
        session: Session,
        concessions: Concessions,
    ) -> Session:
        """Return the session whose sources show what there was at the date."""
        if self.date is None:
            return session
        # The files of a pinned version may be newer: wheels for newer Pythons come later.
        pinned = {pin.name for pin in self.pins} - concessions.dropped
        moved = {requirement.name for requirement in self.moved}
        undated = concessions.undated | pinned | moved
        sources = replace(session.sources, exclude_newer=self.date, undated=undated)
        return replace(session, sources=sources)


def _without_versions(
    request: LockRequest,
    packages: Collection[str],
) -> LockRequest:
    """Return a request that leaves the versions of some packages open."""
    requirements = []
    for requirement in request.request.parsed:
        is_open = requirement.name in packages and not requirement.url
        requirements.append(
            requirement.with_specifier("") if is_open else requirement.text
        )
    constraints = request.request.constraints
    kept = [
        text for text in constraints if parse_requirement(text).name not in packages
    ]
    return request.asking(requirements=tuple(requirements), constraints=tuple(kept))


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


def _goes_with_torch(
    requests: Sequence[LockRequest],
    session: Session,
) -> frozenset[str]:
    """Return the packages whose versions torch decides, which no date can be held to: extensions are made for one."""
    catalog = requests[0].catalog
    requirements = requests[0].request.requirements
    family = [
        text for text in requirements if parse_requirement(text).name in catalog.family
    ]
    alone = [one.asking(requirements=tuple(family), constraints=()) for one in requests]
    answer = _attempt(alone, session)
    names = set(catalog.family.union(load_extensions().rows))
    for resolution in () if isinstance(answer, Conflict) else answer:
        names.update(filter(catalog.is_tied, resolution.versions))
    return frozenset(names)


def _attempt(
    requests: Sequence[LockRequest],
    session: Session,
) -> list[Resolution] | Conflict:
    """Resolve; a package that cannot be built is a conflict too, for it may have wheels in another version."""
    within = [request.within(*request.request.constraints) for request in requests]
    try:
        return search_locks(within, session)
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
    versions = resolution.versions
    causes = dict.fromkeys(terms.moved, f"it goes with torch {versions['torch']}")
    for requirement in terms.moved:
        if requirement.name == "torch":
            causes[requirement] = why_torch
    for pin in terms.pins:
        if pin.name in concessions.dropped:
            causes[pin] = shortened(concessions.causes[pin.name])
    reasons = []
    for requirement, why in causes.items():
        name = requirement.name
        now = f"{name} {versions[name]}" if name in versions else f"no {name}"
        message = f"{now} in place of {requirement.text}: {why}"
        reasons.append(Reason("relaxed", message))
    if terms.date:
        day = terms.date.partition("T")[0]
        message = f"packages without a version in the request are as of {day}"
        catalog = resolution.request.catalog
        undated = sorted(concessions.undated.intersection(versions))
        exceptions = [name for name in undated if not catalog.is_tied(name)]
        if exceptions:
            message = f"{message}, except {some(exceptions)}"
        reasons.append(Reason("as-of", message))
    relaxed = {requirement.name: requirement.text for requirement in causes}
    return replace(resolution.warned_of(reasons), relaxed=relaxed)


@dataclass(frozen=True)
class Concessions:
    """What of a request is not held to."""

    dropped: frozenset[str] = frozenset()
    """Packages whose version is open."""

    undated: frozenset[str] = frozenset()
    """Packages that may be newer than the date of the request."""

    causes: Mapping[str, str] = field(default_factory=dict, compare=False)
    """What stood against the version of each package that gave way, in uv's words."""

    def after(
        self,
        conflict: Conflict,
        pinned: frozenset[str],
    ) -> Concessions:
        """Return what to give up next; the same if nothing is left.

        Args:
            conflict: What stands against the request with these.
            pinned: The packages that are still held to their versions.
        """
        # The words of uv's account that can be names of packages.
        words = re.findall(r"[A-Za-z0-9][\w.-]*", conflict.why)
        names = {word.rstrip(".").lower() for word in words}
        newer = conflict.too_new | (self.dropped & names)
        if newer - pinned <= self.undated and pinned.isdisjoint(names):
            newer = self.dropped
        # A pinned version is what it is at any date.
        newer -= self.undated | pinned
        if newer:
            return replace(self, undated=self.undated | newer)
        dropped = pinned & names or pinned
        causes = dict.fromkeys(dropped, conflict.why)
        return replace(
            self, dropped=self.dropped | dropped, causes={**causes, **self.causes}
        )


def fewest_concessions(
    packages: Sequence[str],
    trial: Trial,
    *,
    undated: frozenset[str] = frozenset(),
) -> Concessions | Conflict:
    """Give up the pins that each conflict names until nothing stands against the rest; then pin again what can be.

    Args:
        packages: Those whose versions are pinned; of two that exclude each other the later one gives way.
        trial: Resolves the request with some of it given up.
        undated: Packages that are never held to the date of the request.

    Returns:
        The conflict of the last trial if nothing is left to give up.
    """
    concessions = Concessions(undated=undated)
    outcome = trial(concessions)
    for _ in range(MOST_TRIALS):
        if not isinstance(outcome, Conflict):
            break
        more = concessions.after(outcome, frozenset(packages) - concessions.dropped)
        if more == concessions:
            break
        concessions = more
        outcome = trial(concessions)
    if isinstance(outcome, Conflict):
        return outcome
    for package in filter(concessions.dropped.__contains__, packages):
        fewer = replace(concessions, dropped=concessions.dropped - {package})
        if not isinstance(trial(fewer), Conflict):
            concessions = fewer
    return concessions


def date_of_pins(
    limits: Sequence[ParsedRequirement],
    session: Session,
) -> str | None:
    """Return the day after the newest of the pinned versions came out, as uv reads a date.

    Args:
        limits: Requirements with specifiers.
        session: The sources and the clients of the run.

    Returns:
        None if nothing is pinned to one version, or no source tells when that came out.
    """
    pins = [limit for limit in limits if limit.is_exact]
    pages = side_by_side(session.known_page, [pin.name for pin in pins])
    days = [
        release_day(page, pin) for page, pin in zip(pages, pins, strict=True) if page
    ]
    newest = max(filter(None, days), default=None)
    if newest is None:
        return None
    day_after = newest + timedelta(days=1)
    return f"{day_after:%Y-%m-%d}T00:00:00Z"


def release_day(page: Page, pin: ParsedRequirement) -> datetime | None:
    """Return when the first file of a pinned version was uploaded, if the page tells it (PEP 700).

    Later files of a version are wheels for newer Pythons: their dates are not that of the version.
    """
    if "json" not in page.content_type:
        return None
    days = []
    for file in parse_json(page.text).get("files", ()):
        # Other files, and names or dates that are none, say nothing of the version.
        with suppress(ValueError, KeyError, TypeError):
            name = file["filename"]
            is_wheel = name.endswith(".whl")
            parse = parse_wheel_filename if is_wheel else parse_sdist_filename
            if pin.allows(parse(name)[1]):
                days.append(datetime.fromisoformat(file["upload-time"][:10]))
    return min(days, default=None)
