"""The search for the versions, builds and files that go together: a stack of decisions.

uv knows versions and what METADATA says. The rules know what it cannot: what the bytes of a wheel need, and which file
of an extension loads.

* uv proposes, within what the decisions leave of the requests.
* What the rules find in the proposal becomes a decision each, first of what was requested: the first remedy is taken.
* If nothing goes together, the last decision takes its next remedy; one without any is taken back.
* It ends if the rules find nothing, if no decision is left to take back, or if its time is over.

Two packages: vllm 0.11 has no code for a V100, and 0.8 is the newest that has; that is decided. uv proposes 0.8, and with
it a kernel package for another CUDA than torch's: the second decision is another build of torch. Nothing goes with that,
so the kernel package is to be older; and if nothing goes with that either, vllm is to be older than 0.8.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import readable
from gpuinstall.lock.code_check import FAULT_RULES, NO_CODE, CodeCheck
from gpuinstall.lock.extensions import openings
from gpuinstall.lock.programs import names_programs, shortened
from gpuinstall.lock.proposal import resolve_programs
from gpuinstall.lock.remedies import Decision
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.uv_failure import BUILD_FAILED, Conflict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuinstall.sources.session import Session

    Resolutions = list[Resolution]
    Answer = Resolutions | Conflict

SEARCH_S = 240
"""After how many seconds a search takes no further decision."""

ALIGNMENTS = 3
"""How often the targets are lowered to each other: one that was lowered may lead the others on."""


def search_locks(
    requests: Sequence[LockRequest],
    session: Session,
) -> Answer:
    """Return one resolution for each target in which the rules find no fault, the best in the order of rule 10.

    Args:
        requests: One for each target.
        session: The clients of the run, which count the runs of uv.
    """
    deadline = monotonic() + SEARCH_S
    conflicts: list[Conflict] = []
    try:
        for opening in openings(requests, session):
            answer = _Search(opening.requests, session, deadline).run()
            if not isinstance(answer, Conflict):
                return [one.warned_of(opening.remarks) for one in answer]
            conflicts.append(answer)
    except NoBuildError as error:
        conflicts.append(Conflict(error))
    finally:
        if session.reading:
            session.reporter.detail("Read", _reading_text(session.reading))
    return conflicts[0]


class _Search:
    """The decisions of a search, of which the last may be taken back."""

    def __init__(
        self,
        requests: Sequence[LockRequest],
        session: Session,
        deadline: float,
    ) -> None:
        self._requests = requests
        self._session = session
        self._deadline = deadline
        self._decisions: list[Decision] = []

    def run(self) -> Answer:
        """Propose and decide until nothing is wrong any more."""
        session = self._session
        number = 0
        while monotonic() < self._deadline:
            number += 1
            first_run = len(session.uv_runs)
            proposal = self._propose()
            obstacle: Conflict | list[Decision]
            if isinstance(proposal, Conflict):
                what = "no versions go together"
                obstacle = proposal
            else:
                checks = [CodeCheck(resolution, session) for resolution in proposal]
                what = ", ".join(dict.fromkeys(f"torch {check.build.name}" for check in checks))
                obstacle = self._placeholder(checks) or self._faults(checks)
            runs = len(session.uv_runs) - first_run
            text = f"{number}: {what}: {_told(obstacle)} ({runs} run{'s'[: runs != 1]} of uv)"
            session.reporter.detail("Search", text)
            if not obstacle:
                return [self._warned(check) for check in checks]
            refusal = self._decide(obstacle)
            if refusal:
                return refusal
        return self._refused_by_time()

    def _propose(self) -> Answer:
        try:
            return propose(self._narrowed_requests, self._session)
        except InstallationError as error:
            # uv builds what old versions require, to see what that requires: they do not go with the request.
            if not self._decisions or error.code != BUILD_FAILED:
                raise
            return Conflict(error)

    def _placeholder(self, checks: Iterable[CodeCheck]) -> Conflict | None:
        """Return that a remedy failed, since a program came to a pre-release that nobody requested."""
        placeholder = next(filter(None, (check.placeholder() for check in checks)), None)
        if placeholder is None or not self._decisions:
            return None
        message = f"nothing but {placeholder} goes with it, a pre-release that was not requested"
        return Conflict(NoBuildError("requirements-conflict", message))

    def _faults(self, checks: Sequence[CodeCheck]) -> list[Decision] | Conflict:
        """Return what the first rules find that is not decided; a conflict if a remedy has not done what it promised.

        Of dependencies nothing is decided before what was requested: another version of that requires others.
        """
        remedied = [(decision.target, decision.fault) for decision in self._decisions]
        for rule in FAULT_RULES:
            found: dict[str, Decision] = {}
            for target, check in enumerate(checks):
                for fault in rule(check):
                    if not any(at == target and fault.is_like(other) for at, other in remedied):
                        found.setdefault(fault.package, Decision(fault, target))
                    elif fault.is_certain:
                        return Conflict(NoBuildError(NO_CODE, fault.message))
            if found:
                decisions = list(found.values())
                return [one for one in decisions if one.fault.is_of_request] or decisions
        return []

    def _decide(self, obstacle: list[Decision] | Conflict) -> Conflict | None:
        """Take the first remedy of each fault; if there is none, or on a conflict, the next of the last decision.

        Returns:
            What refuses the requests if no decision has a remedy left.
        """
        conflict = obstacle if isinstance(obstacle, Conflict) else None
        for decision in () if isinstance(obstacle, Conflict) else obstacle:
            if not self._has_next(decision):
                conflict = decision.refusal()
                break
            self._decisions.append(decision)
        if conflict is None:
            return None
        while self._decisions:
            if self._has_next(self._decisions[-1]):
                return None
            conflict = self._decisions.pop().refusal(conflict)
        return conflict

    def _has_next(self, decision: Decision) -> bool:
        """Choose the next remedy, and tell it; return whether there is one."""
        told = str(decision)
        has_next = decision.has_next()
        if decision.chosen.code and str(decision) != told:
            self._session.reporter.step("Code", str(decision))
        return has_next

    @property
    def _in_force(self) -> dict[Decision, str]:
        """The decisions, each with the fault to tell: an older version takes back what newer ones of its package had."""
        in_force: dict[Decision, str] = {}
        for decision in self._decisions:
            message = decision.fault.message
            if decision.is_for_older_version:
                for other in list(in_force):
                    if other.fault.package == decision.fault.package:
                        earlier = in_force.pop(other)
                        # It is told why the newest was not taken.
                        message = earlier if other.is_for_older_version else message
            in_force[decision] = message
        return in_force

    @property
    def _narrowed_requests(self) -> list[LockRequest]:
        """The requests within what was decided."""
        requests = list(self._requests)
        for decision in self._in_force:
            chosen = decision.chosen
            if chosen.constraint:
                for position, request in enumerate(requests):
                    pins = request.pins.within(chosen.constraint)
                    requests[position] = replace(request, pins=pins)
            request = requests[decision.target]
            files = dict(request.files)
            if chosen.file:
                files[decision.fault.package] = (chosen.file,)
            requests[decision.target] = replace(
                request,
                catalog=request.catalog.without(chosen.excludes, "without-code"),
                libraries=tuple(dict.fromkeys((*request.libraries, *chosen.libraries))),
                files=files,
            )
        return requests

    def _warned(self, check: CodeCheck) -> Resolution:
        """Return what was checked with warnings of what was decided for it, and of what is not known."""
        resolution = check.resolution
        decided = [
            decision.reason(check.build, resolution.versions, fault)
            for decision, fault in self._in_force.items()
            if decision.chosen.code
        ]
        return resolution.warned_of((*dict.fromkeys(decided), *check.remarks()))

    def _refused_by_time(self) -> Conflict:
        limit = f"{SEARCH_S} s"
        if self._decisions:
            decision = self._decisions[-1]
            return decision.fault.refusal(str(decision), f"the search ended after {limit}")
        error = NoBuildError(
            "search-ended",
            f"no versions that go together were found in {limit}",
            hint="Request versions that are known to go together",
        )
        return Conflict(error)


def _told(obstacle: list[Decision] | Conflict) -> str:
    if isinstance(obstacle, Conflict):
        return shortened(obstacle.why)
    faults = [decision.fault.message for decision in obstacle]
    return " · ".join(faults) or "nothing stands against it"


def propose(
    requests: Sequence[LockRequest],
    session: Session,
) -> Answer:
    """Choose and resolve: the family alone by the plan, programs and torch together; one version for all targets."""
    try:
        planned = agree_on_torch(requests)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    if names_programs(planned[0].request.requirements):
        apart = planned[0].request.newest_per_target
        groups = [[request] for request in planned] if apart else [planned]
        answers = [resolve_programs(group, session) for group in groups]
    else:
        alone = side_by_side(partial(resolve, session=session), planned, TARGETS_AT_ONCE)
        answers = [one if isinstance(one, Conflict) else [one] for one in alone]
    resolutions: Resolutions = []
    for answer in answers:
        if isinstance(answer, Conflict):
            return answer
        resolutions += answer
    return _aligned(resolutions, planned[0].catalog.family, session)


def _reading_text(reading: Mapping[str, int]) -> str:
    """Return what was read of wheels, of which eight come side by side."""
    amount = f"{readable(reading['bytes'])} in {reading['requests']} requests"
    return f"{reading['wheels']} wheels, {amount}, {reading['seconds']} s in all"


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
