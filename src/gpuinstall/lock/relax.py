"""A request that cannot be met as it is written, met as near to its words as a machine can (rule 14 of the design).

torch moves first, and with it what its build decides (``gpuinstall.plan.relax``). Every other requirement stays, and if
one cannot, the fewest give way. What is not pinned is taken as of the date that the pins speak of: the programs of that
time were written for the packages of that time.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import field, replace
from datetime import datetime, timedelta
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from gpuinstall.base.errors import GpuInstallError, InstallationError, MachineError, NoBuildError
from gpuinstall.base.files import parse_json
from gpuinstall.base.finding import Reason
from gpuinstall.base.reporter import SilentReporter
from gpuinstall.base.requirement import ParsedRequirement, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.folder_project import read_folder_project
from gpuinstall.lock.live import live_requests
from gpuinstall.lock.programs import shortened
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.search import search_locks
from gpuinstall.lock.uv_failure import BUILD_FAILED, Conflict, build_conflict
from gpuinstall.plan import Rejected
from gpuinstall.plan.relax import nearest_request, version_limits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from packaging.version import Version

    from gpuinstall.base.request import Request
    from gpuinstall.base.requirement import ParsedRequirement
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
"""How often a request may be resolved until it can be met: a trial takes a second or two."""


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
    undated = _goes_with_torch(live, silent)

    def trial(concessions: Concessions) -> list[Resolution] | Conflict:
        relaxed = terms.of(live, concessions)
        return _attempt(relaxed, terms.dated(silent, concessions))

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
    return _without_versions(request, packages)


def _with_requirements_of_folders(request: LockRequest, session: Session) -> LockRequest:
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
        return [_without_versions(request, concessions.dropped) for request in requests]

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


def _without_versions(request: LockRequest, packages: Collection[str]) -> LockRequest:
    """Return a request that leaves the versions of some packages open."""
    requirements = []
    for requirement in request.request.parsed:
        is_open = requirement.name in packages and not requirement.url
        requirements.append(requirement.with_specifier("") if is_open else requirement.text)
    constraints = request.request.constraints
    kept = [text for text in constraints if parse_requirement(text).name not in packages]
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


def _with_nearest_torch(
    requests: Sequence[LockRequest],
    nearest: RelaxedRequest | None,
) -> list[LockRequest]:
    if nearest is None:
        return list(requests)
    nearest_requirements = nearest.request.requirements
    constraints = nearest.request.constraints
    return [
        request.asking(requirements=nearest_requirements, constraints=constraints)
        for request in requests
    ]


def _goes_with_torch(requests: Sequence[LockRequest], session: Session) -> frozenset[str]:
    """Return the packages whose versions torch decides, which no date can be held to: extensions are made for one."""
    catalog = requests[0].catalog
    requirements = requests[0].request.requirements
    family = [text for text in requirements if parse_requirement(text).name in catalog.family]
    alone = [one.asking(requirements=tuple(family), constraints=()) for one in requests]
    answer = _attempt(alone, session)
    names = set(catalog.family.union(load_extensions().rows))
    for resolution in () if isinstance(answer, Conflict) else answer:
        names.update(filter(catalog.is_tied, resolution.versions))
    return frozenset(names)


def _attempt(requests: Sequence[LockRequest], session: Session) -> list[Resolution] | Conflict:
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


class Obstacle(NamedTuple):
    """Packages of which one at least has to give way, and why."""

    packages: frozenset[str]
    why: str
    """uv's account."""


@dataclass(frozen=True)
class Concessions:
    """What of a request is not held to."""

    dropped: frozenset[str] = frozenset()
    """Packages whose version is open."""

    undated: frozenset[str] = frozenset()
    """Packages that may be newer than the date of the request."""

    obstacles: tuple[Obstacle, ...] = field(default=(), compare=False)
    """What stood against the request as it was written."""

    def why(self, package: str) -> str:
        """Return what stood against the version of a package that gave way."""
        accounts = [obstacle.why for obstacle in self.obstacles if package in obstacle.packages]
        return shortened(accounts[0]) if accounts else "it goes with what gave way"


def fewest_concessions(
    packages: Sequence[str],
    trial: Trial,
    *,
    undated: frozenset[str] = frozenset(),
) -> Concessions | Conflict:
    """Find the fewest packages that have to give way.

    An obstacle is met if one of its packages gives way, whatever else does. So the smallest set that meets all known
    obstacles is tried. Either it succeeds, and no smaller one can, or it shows another obstacle.

    Args:
        packages: Those whose versions are pinned.
        trial: Resolves the request with some of it given up.
        undated: Packages that are never held to the date of the request.

    Returns:
        The conflict of the last trial if nothing is left to give up.
    """
    concessions = Concessions(undated=undated)
    outcome = trial(concessions)
    for _ in range(MOST_TRIALS):
        if not isinstance(outcome, Conflict):
            return _without_needless(concessions, trial)
        pinned = frozenset(packages) - concessions.dropped
        newer = _newly_undated(outcome, concessions, pinned)
        names = _names_in(outcome.why)
        obstacles = concessions.obstacles
        if newer:
            # What stood against older versions of these may be no obstacle any more.
            obstacles = tuple(each for each in obstacles if newer.isdisjoint(_names_in(each.why)))
        elif pinned:
            obstacles = (*obstacles, Obstacle(pinned & names or pinned, outcome.why))
        else:
            break
        concessions = Concessions(
            _smallest_cover([obstacle.packages for obstacle in obstacles], packages),
            concessions.undated | newer,
            obstacles,
        )
        outcome = trial(concessions)
    return outcome if isinstance(outcome, Conflict) else concessions


def _newly_undated(
    conflict: Conflict,
    concessions: Concessions,
    pinned: frozenset[str],
) -> frozenset[str]:
    """Return the packages that may have to be newer than the date, before anything else gives way."""
    names = _names_in(conflict.why)
    newer = conflict.too_new | (concessions.dropped & names)
    if newer - pinned <= concessions.undated and pinned.isdisjoint(names):
        newer = concessions.dropped
    # A pinned version is what it is at any date.
    return newer - concessions.undated - pinned


def _smallest_cover(groups: Sequence[frozenset[str]], packages: Sequence[str]) -> frozenset[str]:
    """Return the fewest packages of which every group has one; of equals, those that were requested last."""
    involved = frozenset[str]().union(*groups)
    candidates = [package for package in reversed(packages) if package in involved]
    for size in range(len(candidates)):
        for chosen in combinations(candidates, size):
            if all(group.intersection(chosen) for group in groups):
                return frozenset(chosen)
    return involved


def _without_needless(concessions: Concessions, trial: Trial) -> Concessions:
    """Pin each package again with which the request can be met after all: uv may name more than it has to."""
    for package in sorted(concessions.dropped):
        fewer = replace(concessions, dropped=concessions.dropped - {package})
        if not isinstance(trial(fewer), Conflict):
            concessions = fewer
    return concessions


def _names_in(text: str) -> frozenset[str]:
    """Return the words of uv's account that can be names of packages."""
    words = re.findall(r"[A-Za-z0-9][\w.-]*", text)
    return frozenset(word.rstrip(".").lower() for word in words)


def date_of_pins(limits: Sequence[ParsedRequirement], session: Session) -> str | None:
    """Return the day after the newest of the pinned versions came out, as uv reads a date.

    Args:
        limits: Requirements with specifiers.
        session: The sources and the clients of the run.

    Returns:
        None if nothing is pinned to one version, or no source tells when that came out.
    """
    pins = [limit for limit in limits if limit.is_exact]
    pages = side_by_side(session.known_page, [pin.name for pin in pins])
    days = [release_day(page, pin) for page, pin in zip(pages, pins, strict=True) if page]
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
        version = _version_of(file.get("filename", ""))
        uploaded = file.get("upload-time")
        if version is None or not pin.allows(version):
            continue
        if isinstance(uploaded, str):
            with suppress(ValueError):
                days.append(datetime.fromisoformat(uploaded[:10]))
    return min(days, default=None)


def _version_of(filename: str) -> Version | None:
    with suppress(ValueError):
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    return None
