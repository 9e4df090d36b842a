"""The search for the versions, builds and files that go together: propose, check, learn, propose again.

uv knows versions and what METADATA says. The checks know what it cannot: what the bytes of a wheel need, and which
file of an extension loads. What a check excludes is the only thing that the next proposal has more than the one before.

::

    start     extensions that are requested choose among prebuilt files, and with them the versions of torch
    propose   uv resolves: programs in the order of naming, torch over the builds that the plan ranks, the family last
    check     the code of every wheel, then files of extensions that came along
    learn     what a check excludes becomes a constraint, a build less, a library or a file more
    retreat   a conflict takes back the last choice that was ours
    end       no check excludes anything, no choice can be taken back, or the budget of runs of uv is spent
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import readable
from gpuinstall.lock.code_check import NO_CODE, CodeCheck, Exclusion, install_anyway
from gpuinstall.lock.obstacles import shortened
from gpuinstall.lock.prebuilt import (
    own_build,
    with_dependencies,
    with_own_builds,
    with_prebuilt,
    without_torch,
)
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.proposal import RejectedTorch, resolve_programs
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.uv_failure import Conflict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuinstall.base.finding import Reason
    from gpuinstall.sources.session import Session

    Resolutions = list[Resolution]
    Proposed = Resolutions | RejectedTorch | Conflict
    Ended = Resolutions | Conflict

BUILD_FAILED = "build-failed"

RUNS_PER_TARGET = 64
"""How many runs of uv a search may cost for each target: each takes 0.1 to 2 seconds."""

SEARCH_S = 240
"""After how many seconds a search begins no further round."""

EXTENSION_TORCHES = 3
"""How many versions of torch to try that requested extensions have files for."""

ALIGNMENTS = 3
"""How often the targets are lowered to each other: one that was lowered may lead the others on."""


def search_locks(
    requests: Sequence[LockRequest],
    session: Session,
    *,
    newest: bool = False,
) -> Ended:
    """Return one resolution for each target that passes every check, the best in the order of rule 10.

    Args:
        requests: One for each target.
        session: The clients of the run, which count the runs of uv.
        newest: Whether each target has its own newest torch.
    """
    search = _Search(requests, session, newest=newest)
    ended = search.begin() or search.run()
    if session.reading:
        session.reporter.detail("Read", _reading_text(session.reading))
    return ended


def resolve_unchecked(
    requests: Sequence[LockRequest],
    session: Session,
    *,
    newest: bool,
) -> Ended:
    """Resolve as the search does, with no extension chosen and nothing checked."""
    search = _Search(requests, session, newest=newest)
    while True:
        proposal = search.propose()
        if isinstance(proposal, Conflict):
            return search.top.rejection or proposal
        if not isinstance(proposal, RejectedTorch):
            return proposal
        search.reject(proposal)


class _Round(NamedTuple):
    """What may still be chosen once something was learned, and what that is."""

    requests: tuple[LockRequest, ...]
    """One for each target, without the torches that it cannot have with the programs."""

    exclusions: tuple[Exclusion, ...] = ()
    """What had to give way, and why; constraints hold for every target."""

    programs: frozenset[str] = frozenset()
    """Those, with their versions, for which this round took another build of torch, or added a library."""

    rejection: Conflict | None = None
    """Why a target cannot have the first torch that the programs wanted."""

    def without_rejections(self) -> _Round:
        """Return it with every torch to choose from again."""
        requests = [replace(one, rejected_torches=frozenset()) for one in self.requests]
        return self._replace(requests=tuple(requests), rejection=None)

    def without_torch(self, rejected: RejectedTorch) -> _Round:
        """Return it without a torch that a target cannot have with the programs."""
        requests = list(self.requests)
        for position, request in enumerate(requests):
            if rejected.target in {position, None}:
                torches = request.rejected_torches | {rejected.torch}
                requests[position] = replace(request, rejected_torches=torches)
        rejection = self.rejection or rejected.conflict
        return self._replace(requests=tuple(requests), rejection=rejection)

    def excluding(self, by_target: Sequence[Sequence[Exclusion]]) -> _Round:
        """Return the next one; an older version takes back what newer ones of its package needed."""
        found = []
        for position, exclusions in enumerate(by_target):
            found += [exclusion._replace(target=position) for exclusion in exclusions]
        older = dict[str, Exclusion]()
        # One version has to serve every target.
        for exclusion in found:
            other = older.get(exclusion.package, exclusion)
            if exclusion.older and other.older and exclusion.older <= other.older:
                older[exclusion.package] = exclusion
        kept = []
        for one in self.exclusions:
            if one.package not in older:
                kept.append(one)
            elif one.older:
                # It is told why the newest was not taken.
                older[one.package] = older[one.package]._replace(fault=one.fault)
        new = [one for one in found if one.package not in older]
        new += older.values()
        return self.without_rejections()._replace(
            exclusions=(*kept, *new),
            programs=frozenset(exclusion.program for exclusion in new) - {""},
        )

    def loosened(self, exact: Exclusion) -> _Round:
        """Return it with every version older than the one with which nothing goes."""
        exclusions = [one for one in self.exclusions if one.package != exact.package]
        loosened = (*exclusions, exact.loosened())
        return self.without_rejections()._replace(exclusions=loosened)

    @property
    def narrowed_requests(self) -> list[LockRequest]:
        """The requests within what was learned."""
        constraints = dict.fromkeys(exclusion.constraint for exclusion in self.exclusions)
        narrowed = []
        for position, request in enumerate(self.requests):
            own = [exclusion for exclusion in self.exclusions if exclusion.target == position]
            narrowed.append(_without(request, own, constraints))
        return narrowed if self.exclusions else list(self.requests)


class _Search:
    """The rounds of a search, of which the last may be taken back."""

    def __init__(
        self,
        requests: Sequence[LockRequest],
        session: Session,
        *,
        newest: bool,
    ) -> None:
        self._session = session
        self._newest = newest
        self._requested = list(requests)
        """Before requested extensions chose a torch."""
        self._rounds = [_Round(tuple(requests))]
        self._stuck = frozenset[str]()
        """Programs that go with no other build of torch, and no added library."""
        self._extension_torch: Version | None = None
        """The torch that requested extensions chose; None if they leave it open."""
        self._extension_attempts = 0
        self._remarks: tuple[Reason, ...] = ()
        """What to say of that choice."""
        self._conflict: Conflict | None = None
        """Why nothing goes with the first torch that extensions chose."""
        self._answer: Resolutions = []
        """What is taken if a round that would better it comes to nothing."""

    @property
    def top(self) -> _Round:
        """The round that is tried."""
        return self._rounds[-1]

    def begin(self) -> Conflict | None:
        """Choose a torch and the files of the extensions that were requested; return why there is none."""
        try:
            prebuilt = with_prebuilt(self._requested, self._session)
        except NoBuildError as error:
            return Conflict(error)
        first = with_own_builds(prebuilt.requests, self._session)
        self._rounds = [_Round(tuple(first))]
        self._stuck = frozenset()
        self._extension_torch = prebuilt.torch
        self._extension_attempts += 1
        self._remarks = prebuilt.remarks
        return None

    def run(self) -> Ended:
        """Propose and check until nothing is excluded any more."""
        session = self._session
        deadline = monotonic() + SEARCH_S
        last_run = len(session.uv_runs) + RUNS_PER_TARGET * len(self._requested)
        rounds = 0
        while True:
            rounds += 1
            runs = len(session.uv_runs)
            limit = ""
            if runs > last_run:
                limit = f"{RUNS_PER_TARGET} runs of uv for each target"
            elif monotonic() > deadline:
                limit = f"{SEARCH_S} s"
            if limit:
                session.reporter.detail("Search", f"ended after {limit}")
                return self._exhausted(limit)
            proposal = self._propose_or_fail()
            ended = self._judge(proposal)
            cost = len(session.uv_runs) - runs
            unit = "run" if cost == 1 else "runs"
            text = f"{rounds}: {self._text(proposal, ended)} ({cost} {unit} of uv)"
            session.reporter.detail("Search", text)
            if ended is not None:
                return ended

    def _propose_or_fail(self) -> Proposed:
        try:
            return self.propose()
        except InstallationError as error:
            # uv builds what old versions require, to see what that requires: they do not go with the request.
            if not self.top.exclusions or error.code != BUILD_FAILED:
                raise
            return self._without_code(error.message)

    def _judge(self, proposal: Proposed) -> Ended | None:
        """Return how the search ends; None if it goes on."""
        if isinstance(proposal, RejectedTorch):
            self.reject(proposal)
            return None
        if isinstance(proposal, Conflict):
            return self._retreat(proposal)
        return self._check(proposal)

    def propose(self) -> Proposed:
        """Choose and resolve: the family alone by the rules, programs and torch together."""
        session = self._session
        try:
            planned = agree_on_torch(self.top.narrowed_requests, newest=self._newest)
        except (MachineError, NoBuildError) as error:
            return Conflict(error)
        resolutions: Resolutions = []
        if not names_programs(planned[0].request.requirements):
            for alone in side_by_side(partial(resolve, session=session), planned, TARGETS_AT_ONCE):
                if isinstance(alone, Conflict):
                    return alone
                resolutions.append(alone)
        elif self._newest:
            for position, request in enumerate(planned):
                answer = resolve_programs([request], session)
                if isinstance(answer, Conflict):
                    return answer
                if isinstance(answer, RejectedTorch):
                    return answer._replace(target=position)
                resolutions += answer
        else:
            answer = resolve_programs(planned, session)
            if not isinstance(answer, list):
                return answer
            resolutions = answer
        return _aligned(resolutions, planned[0].catalog.family, session)

    def reject(self, rejected: RejectedTorch) -> None:
        """Go on without a torch that a target cannot have with the programs."""
        self._rounds[-1] = self.top.without_torch(rejected)

    def _check(self, resolutions: Resolutions) -> Ended | None:
        """Return the resolutions if no check excludes anything of them; else learn it."""
        session = self._session
        exclusions = self.top.exclusions
        checks = [CodeCheck(resolution, session) for resolution in resolutions]
        placeholders = filter(None, (check.placeholder() for check in checks))
        placeholder = next(placeholders, None) if exclusions else None
        if placeholder:
            why = f"nothing but {placeholder} goes with it, a pre-release that was not requested"
            return self._retreat(self._without_code(why))
        try:
            found = [
                self._own_builds(resolution, check) or check.exclusions(self._stuck)
                for resolution, check in zip(resolutions, checks, strict=True)
            ]
        except NoBuildError as error:
            return self._retreat(Conflict(error))
        if any(found):
            self._rounds.append(self.top.excluding(found))
            session.reporter.step("Code", str(self.top.exclusions[-1]))
            return None
        answer = []
        for resolution, check in zip(resolutions, checks, strict=True):
            build = resolution.choice.build
            reasons = [one.reason(build, resolution.versions) for one in exclusions]
            warnings = (*dict.fromkeys(reasons), *check.remarks(), *self._remarks)
            answer.append(resolution.warned_of(warnings))
        if self._answer:
            return answer
        requests = with_dependencies(self.top.requests, resolutions, session)
        if requests is None:
            return answer
        self._answer = answer
        self._rounds[-1] = self.top._replace(requests=tuple(requests))
        return None

    def _own_builds(self, resolution: Resolution, check: CodeCheck) -> list[Exclusion]:
        """Return which programs are taken from their makers' own index: the default one's need a newer driver."""
        exclusions = []
        request = resolution.request
        for rejected in check.refused_by_driver(self._stuck):
            wheel = rejected.candidate
            if wheel.package in request.files:
                continue
            own = own_build(
                wheel.package,
                wheel.version.public,
                request,
                self._session,
            )
            if own is None:
                continue
            exclusions.append(
                Exclusion(
                    wheel.package,
                    "own-index-for-code",
                    rejected.reason.message,
                    constraint=f"{wheel.package}>={wheel.version.public}",
                    remedy=f"{own.package} {own.version} of its makers' own index runs here",
                    program=f"{wheel.package} {wheel.version.public}",
                    file=own,
                )
            )
        return exclusions

    def _retreat(self, conflict: Conflict) -> Ended | None:
        """Take back the last choice that was ours; return the conflict if there is none."""
        if self._answer:
            return self._answer
        moved = self._last_moved()
        exact = [one for one in self.top.exclusions if one.is_exact]
        earlier = self._rounds[-2].exclusions if len(self._rounds) > 1 else ()
        if exact and (exact[-1] not in earlier or not moved):
            self._rounds[-1] = self.top.loosened(exact[-1])
            return None
        if moved:
            self._stuck |= self._rounds[moved].programs
            del self._rounds[moved:]
            return None
        conflict = self.top.rejection or conflict
        if self.top.exclusions and conflict.error.code != NO_CODE:
            conflict = self._without_code(conflict.why)
        self._conflict = self._conflict or conflict
        torch = self._extension_torch
        if torch is None or self._extension_attempts == EXTENSION_TORCHES:
            return self._conflict
        self._requested = [without_torch(request, torch) for request in self._requested]
        return self._conflict if self.begin() else None

    def _last_moved(self) -> int:
        """Return the place of the last round that a program may do without; 0 if there is none."""
        for place in range(len(self._rounds) - 1, 0, -1):
            if not self._rounds[place].programs <= self._stuck:
                return place
        return 0

    def _exhausted(self, limit: str) -> Ended:
        """Return what is left of a search whose budget is spent: so many runs of uv, or seconds."""
        if self._answer:
            return self._answer
        if self.top.exclusions:
            tried = "no older version that was tried is known to run here either"
            return self._without_code(f"{tried}, and the search ended after {limit}")
        error = NoBuildError(
            "search-ended",
            f"no versions that go together were found in {limit}",
            hint="Request versions that are known to go together",
        )
        return self._conflict or self.top.rejection or Conflict(error)

    def _without_code(self, why: str) -> Conflict:
        last = self.top.exclusions[-1]
        return Conflict(
            NoBuildError(
                NO_CODE,
                f"{last.fault}; {last.remedy}" if last.older else last.fault,
                why=why,
                hint=install_anyway(last.package),
            )
        )

    def _text(self, proposal: Proposed, ended: Ended | None) -> str:
        """Describe one round: what was proposed, and what came of it."""
        if isinstance(proposal, RejectedTorch):
            return f"without torch {proposal.torch}: {shortened(proposal.conflict.why)}"
        if isinstance(proposal, Conflict):
            return f"no versions go together: {shortened(proposal.why)}"
        names = [f"torch {resolution.choice.build.name}" for resolution in proposal]
        builds = ", ".join(dict.fromkeys(names))
        outcome = "the last choice is taken back, or bettered"
        if isinstance(ended, list):
            outcome = "nothing stands against it"
        elif ended:
            outcome = ended.error.message
        elif self.top.exclusions:
            outcome = str(self.top.exclusions[-1])
        return f"{builds}: {outcome}"


def _reading_text(reading: Mapping[str, int]) -> str:
    """Return what was read of wheels, of which eight come side by side."""
    amount = f"{readable(reading['bytes'])} in {reading['requests']} requests"
    return f"{reading['wheels']} wheels, {amount}, {reading['seconds']} s in all"


def _without(
    request: LockRequest,
    exclusions: Sequence[Exclusion],
    constraints: Iterable[str],
) -> LockRequest:
    """Return a request without builds of torch, within constraints and with the libraries that were missing."""
    builds = set[str]()
    libraries = dict.fromkeys(request.libraries)
    files = dict(request.files)
    for exclusion in exclusions:
        if exclusion.file:
            files[exclusion.package] = (exclusion.file,)
        builds |= exclusion.builds
        libraries |= dict.fromkeys(exclusion.libraries)
    return replace(
        request,
        catalog=request.catalog.without(lambda build: build.name in builds, "without-code"),
        pins=request.pins.within(*constraints),
        libraries=tuple(libraries),
        files=files,
    )


def _aligned(
    resolutions: Resolutions,
    family: Collection[str],
    session: Session,
) -> Resolutions:
    """Lower every package outside the family to the oldest version that a target has."""
    for _ in range(ALIGNMENTS):
        oldest: dict[str, str] = {}
        for resolution in resolutions:
            for name, version in resolution.versions.items():
                other = oldest.get(name, version)
                oldest[name] = min(version, other, key=Version)
        shared = {name: oldest[name] for name in sorted(oldest) if name not in family}
        if not any(_newer_packages(resolution, shared) for resolution in resolutions):
            break
        lower = partial(_lowered, versions=shared, session=session)
        resolutions = side_by_side(lower, resolutions, TARGETS_AT_ONCE)
    return resolutions


def _newer_packages(resolution: Resolution, versions: Mapping[str, str]) -> list[str]:
    """Return the packages that it has newer than ``versions``, although nothing stands against the older one."""
    newer = []
    for name, version in sorted(resolution.versions.items()):
        is_newer = version != versions.get(name, version)
        if is_newer and name not in resolution.apart:
            newer.append(name)
    return newer


def _lowered(
    resolution: Resolution,
    versions: Mapping[str, str],
    session: Session,
) -> Resolution:
    """Resolve again at ``versions`` or below; if they do not go together, with as many of them as can be kept."""
    newer = _newer_packages(resolution, versions)
    if not newer:
        return resolution
    request = resolution.request
    apart = dict(resolution.apart)
    bounds = {name: f"{name}<={version}" for name, version in versions.items() if name not in apart}
    answer = resolve(request, session, bounds.values())
    if isinstance(answer, Resolution):
        return replace(answer, apart=apart)
    accepted = [bound for name, bound in bounds.items() if name not in newer]
    for name in newer:
        bound = bounds[name]
        answer = resolve(request, session, [*accepted, bound])
        if isinstance(answer, Resolution):
            resolution = answer
            accepted.append(bound)
        else:
            apart[name] = answer.why
    return replace(resolution, apart=apart)
