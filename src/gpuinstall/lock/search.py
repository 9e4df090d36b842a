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
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.units import readable
from gpuinstall.base.values import dataclass
from gpuinstall.lock.code_check import NO_CODE, CodeCheck, Exclusion, install_anyway
from gpuinstall.lock.obstacles import shortened
from gpuinstall.lock.prebuilt import with_dependencies, with_prebuilt, without_torch
from gpuinstall.lock.programs import list_programs, names_programs
from gpuinstall.lock.proposal import RejectedTorch, resolve_programs
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.uv_failure import Conflict

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

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

NEWEST_GLIBC = "2.40"
"""The glibc up to which wheels are looked for that this machine may be able to load, too."""

ALIGNMENTS = 3
"""How often the targets are lowered to each other: one that was lowered may lead the others on."""


@dataclass(frozen=True)
class SearchState:
    """What may still be chosen, and what led there."""

    requests: tuple[LockRequest, ...]
    """One for each target, within everything that was learned."""

    without_extensions: tuple[LockRequest, ...] = ()
    """The same before requested extensions chose a torch."""

    extension_torch: Version | None = None
    """That torch; None if they leave it open."""

    extension_attempts: int = 1
    """How many versions of torch were chosen for them."""

    remarks: tuple[Reason, ...] = ()
    """What to say of that choice."""

    exclusions: tuple[Exclusion, ...] = ()
    """What had to give way, and why; constraints hold for every target."""

    moved_programs: frozenset[str] = frozenset()
    """Programs, with their versions, for which the last exclusion took another build of torch."""

    fixed_programs: frozenset[str] = frozenset()
    """Programs that go with no other build of torch."""

    before: SearchState | None = None
    """The state before the last exclusion."""

    rejection: Conflict | None = None
    """Why a target cannot have the first torch that the programs wanted."""

    conflict: Conflict | None = None
    """Why nothing goes with the first torch that extensions chose."""

    answer: tuple[Resolution, ...] = ()
    """What is taken if this state, which would better it, comes to nothing."""

    def excluding(self, by_target: Sequence[Sequence[Exclusion]]) -> SearchState:
        """Return the state that has learned what must give way; an older version takes back what newer ones needed."""
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
            if one.package in older and one.older:
                # It is told why the newest was not taken.
                older[one.package] = older[one.package]._replace(fault=one.fault)
            elif one.package not in older:
                kept.append(one)
        new = [one for one in found if one.package not in older]
        new += older.values()
        requests = [replace(one, rejected_torches=frozenset()) for one in self.requests]
        return replace(
            self,
            requests=tuple(requests),
            exclusions=(*kept, *new),
            moved_programs=frozenset(exclusion.program for exclusion in new) - {""},
            before=self,
            rejection=None,
        )

    def loosened(self, exact: Exclusion) -> SearchState:
        """Return the state that allows every version older than the one with which nothing goes."""
        exclusions = [one for one in self.exclusions if one.package != exact.package]
        requests = [replace(one, rejected_torches=frozenset()) for one in self.requests]
        return replace(
            self,
            requests=tuple(requests),
            exclusions=(*exclusions, exact.loosened()),
            rejection=None,
        )

    @property
    def narrowed_requests(self) -> list[LockRequest]:
        """The requests within what was learned."""
        if not self.exclusions:
            return list(self.requests)
        constraints = dict.fromkeys(exclusion.constraint for exclusion in self.exclusions)
        narrowed = []
        for position, request in enumerate(self.requests):
            own = [exclusion for exclusion in self.exclusions if exclusion.target == position]
            narrowed.append(_without(request, own, constraints))
        return narrowed

    def rejecting(self, rejected: RejectedTorch) -> SearchState:
        """Return the state without a torch that a target cannot have with the programs."""
        requests = list(self.requests)
        for position, request in enumerate(self.requests):
            if rejected.target in {position, None}:
                torches = request.rejected_torches | {rejected.torch}
                requests[position] = replace(request, rejected_torches=torches)
        return replace(
            self, requests=tuple(requests), rejection=self.rejection or rejected.conflict
        )


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
    deadline = monotonic() + SEARCH_S
    last_run = len(session.uv_runs) + RUNS_PER_TARGET * len(requests)
    state: SearchState | Ended = _start(requests, session)
    rounds = 0
    while isinstance(state, SearchState):
        rounds += 1
        runs = len(session.uv_runs)
        limit = ""
        if runs > last_run:
            limit = f"{RUNS_PER_TARGET} runs of uv for each target"
        elif monotonic() > deadline:
            limit = f"{SEARCH_S} s"
        if limit:
            session.reporter.detail("Search", f"ended after {limit}")
            return _exhausted(state, limit)
        try:
            proposal = _propose(state, session, newest=newest)
        except InstallationError as error:
            # uv builds what old versions require, to see what that requires: they do not go with the request.
            if not state.exclusions or error.code != BUILD_FAILED:
                raise
            proposal = _without_code(state, error.message)
        if isinstance(proposal, RejectedTorch):
            state = state.rejecting(proposal)
        elif isinstance(proposal, Conflict):
            state = _retreat(state, proposal, session)
        else:
            state = _check(state, proposal, session)
        cost = len(session.uv_runs) - runs
        unit = "run" if cost == 1 else "runs"
        text = f"{rounds}: {_round_text(proposal, state)} ({cost} {unit} of uv)"
        session.reporter.detail("Search", text)
    if session.reading:
        session.reporter.detail("Read", _reading_text(session.reading))
    return state


def _reading_text(reading: Mapping[str, int]) -> str:
    """Return what was read of wheels, of which eight come side by side."""
    amount = f"{readable(reading['bytes'])} in {reading['requests']} requests"
    return f"{reading['wheels']} wheels, {amount}, {reading['seconds']} s in all"


def _round_text(proposal: Proposed, state: SearchState | Ended) -> str:
    """Describe one round of the search: what was proposed, and what came of it."""
    if isinstance(proposal, RejectedTorch):
        return f"without torch {proposal.torch}: {shortened(proposal.conflict.why)}"
    if isinstance(proposal, Conflict):
        following = "the search ends"
        if isinstance(state, SearchState):
            following = "the last choice is taken back"
        return f"no versions go together: {shortened(proposal.why)}; {following}"
    names = [f"torch {resolution.choice.build.name}" for resolution in proposal]
    builds = ", ".join(dict.fromkeys(names))
    if isinstance(state, list):
        return f"{builds}: nothing stands against it"
    if isinstance(state, Conflict):
        return f"{builds}: {state.error.message}"
    if not state.answer:
        return f"{builds}: {state.exclusions[-1]}"
    return f"{builds}: once more with the files of extensions that came along"


def resolve_unchecked(
    requests: Sequence[LockRequest],
    session: Session,
    *,
    newest: bool,
) -> Ended:
    """Resolve as the search does, with no extension chosen and nothing checked."""
    state = SearchState(tuple(requests))
    while True:
        proposal = _propose(state, session, newest=newest)
        if isinstance(proposal, Conflict):
            return state.rejection or proposal
        if not isinstance(proposal, RejectedTorch):
            return proposal
        state = state.rejecting(proposal)


def _start(requests: Sequence[LockRequest], session: Session) -> SearchState | Conflict:
    """Return the requests within a torch and the files of the extensions that were requested."""
    try:
        prebuilt = with_prebuilt(requests, session)
    except NoBuildError as error:
        return Conflict(error)
    return SearchState(
        tuple(prebuilt.requests),
        without_extensions=tuple(requests),
        extension_torch=prebuilt.torch,
        remarks=prebuilt.remarks,
    )


def _propose(
    state: SearchState,
    session: Session,
    *,
    newest: bool,
) -> Proposed:
    """Choose and resolve: the family alone by the rules, programs and torch together."""
    try:
        planned = agree_on_torch(state.narrowed_requests, newest=newest)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    resolutions: Resolutions = []
    if not names_programs(planned[0].request.requirements):
        for alone in side_by_side(partial(resolve, session=session), planned, TARGETS_AT_ONCE):
            if isinstance(alone, Conflict):
                return alone
            resolutions.append(alone)
    elif newest:
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


def _check(
    state: SearchState,
    resolutions: Resolutions,
    session: Session,
) -> SearchState | Ended:
    """Return the resolutions if no check excludes anything of them; else what the search has learned."""
    checks = [CodeCheck(resolution, session) for resolution in resolutions]
    placeholders = filter(None, (check.placeholder() for check in checks))
    placeholder = next(placeholders, None) if state.exclusions else None
    if placeholder:
        why = f"nothing but {placeholder} goes with it, a pre-release that was not requested"
        return _retreat(state, _without_code(state, why), session)
    try:
        exclusions = [check.exclusions(state.fixed_programs) for check in checks]
    except NoBuildError as error:
        return _retreat(state, Conflict(error), session)
    if any(exclusions):
        following = state.excluding(exclusions)
        session.reporter.step("Code", str(following.exclusions[-1]))
        return following
    answer = []
    for resolution, check in zip(resolutions, checks, strict=True):
        build = resolution.choice.build
        reasons = [one.reason(build, resolution.versions) for one in state.exclusions]
        warnings = (*dict.fromkeys(reasons), *check.remarks(), *state.remarks)
        answer.append(resolution.warned_of(warnings))
    if state.answer:
        return answer
    requests = with_dependencies(state.requests, resolutions, session)
    if requests is None:
        return answer
    return replace(state, requests=tuple(requests), answer=tuple(answer))


def _retreat(
    state: SearchState,
    conflict: Conflict,
    session: Session,
) -> SearchState | Ended:
    """Take back the last choice that was ours; return the conflict if there is none."""
    if state.answer:
        return list(state.answer)
    earlier = state.before.exclusions if state.before else ()
    exact = [one for one in state.exclusions if one.is_exact]
    moved = _last_moved(state)
    if exact and (exact[-1] not in earlier or moved is None):
        return state.loosened(exact[-1])
    if moved and moved.before:
        return replace(
            moved.before,
            fixed_programs=state.fixed_programs | moved.moved_programs,
        )
    conflict = state.rejection or conflict
    if state.exclusions and conflict.error.code != NO_CODE:
        conflict = _without_code(state, conflict.why)
    conflict = state.conflict or conflict
    if state.extension_torch is None or state.extension_attempts == EXTENSION_TORCHES:
        return conflict
    older = [without_torch(request, state.extension_torch) for request in state.without_extensions]
    start = _start(older, session)
    if isinstance(start, Conflict):
        return conflict
    return replace(
        start,
        extension_attempts=state.extension_attempts + 1,
        conflict=conflict,
    )


def _last_moved(state: SearchState) -> SearchState | None:
    """Return the last state in which a program took another build of torch that it may do without."""
    step: SearchState | None = state
    while step and step.moved_programs <= state.fixed_programs:
        step = step.before
    return step


def _exhausted(state: SearchState, limit: str) -> Ended:
    """Return what is left of a search whose budget is spent: so many runs of uv, or seconds."""
    if state.answer:
        return list(state.answer)
    if state.exclusions:
        tried = "no older version that was tried is known to run here either"
        return _without_code(state, f"{tried}, and the search ended after {limit}")
    conflict = state.conflict or state.rejection
    if conflict:
        return conflict
    error = NoBuildError(
        "search-ended",
        f"no versions that go together were found in {limit}",
        hint="Request versions that are known to go together",
    )
    return Conflict(error)


def _without_code(state: SearchState, why: str) -> Conflict:
    last = state.exclusions[-1]
    return Conflict(
        NoBuildError(
            NO_CODE,
            f"{last.fault}; {last.remedy}" if last.older else last.fault,
            why=why,
            hint=install_anyway(last.package),
        )
    )


def _without(
    request: LockRequest,
    exclusions: Sequence[Exclusion],
    constraints: Iterable[str],
) -> LockRequest:
    """Return a request without builds of torch, within constraints and with the libraries that were missing."""
    builds = set[str]()
    libraries = dict.fromkeys(request.libraries)
    for exclusion in exclusions:
        builds |= exclusion.builds
        libraries |= dict.fromkeys(exclusion.libraries)
    return replace(
        request,
        catalog=request.catalog.without(lambda build: build.name in builds, "without-code"),
        pins=request.pins.within(*constraints),
        libraries=tuple(libraries),
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


def glibc_notes(resolutions: Resolutions, session: Session) -> list[Reason]:
    """Return which programs would be newer on a machine with a newer glibc, if the machine does not say its own.

    A second proposal shows it.
    """
    resolution = resolutions[0]
    request = resolution.request
    requirements = request.request.requirements
    is_glibc_open = resolution.target.os == "linux" and not request.machine.glibc
    if len(resolutions) > 1 or not is_glibc_open or not names_programs(requirements):
        return []
    listed = partial(
        list_programs,
        requirements,
        request.catalog.family.union(request.files),
        python=request.choice.python,
        session=session,
        constraints=request.pins.constraints,
    )
    assumed = listed(target=request.target)
    newest = listed(target=request.target.up_to(NEWEST_GLIBC))
    if [program.wheel for program in assumed] == [program.wheel for program in newest]:
        return []
    machine = replace(request.machine, glibc=NEWEST_GLIBC)
    elsewhere = replace(request, machine=machine, program_constraints=None)
    proposal = resolve_unchecked([elsewhere], session, newest=False)
    if isinstance(proposal, Conflict):
        return []
    why = f"glibc {request.target.glibc} is assumed; --glibc names the machine's own"
    notes = []
    for program in newest:
        name = program.name
        version = resolution.versions.get(name, "0")
        newer = proposal[0].versions.get(name, "0")
        if Version(newer) > Version(version):
            message = f"{name} is {version}; {newer} requires a newer glibc: {why}"
            notes.append(Reason("glibc-unknown", message))
    return notes
