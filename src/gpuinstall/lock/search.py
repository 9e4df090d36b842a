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

from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, compress
from time import monotonic
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import marker_holds, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.lock.code_check import (
    FAULT_RULES,
    NO_CODE,
    WOULD_BE_COMPILED,
    CodeCheck,
)
from gpuinstall.lock.extensions import file_beside, openings
from gpuinstall.lock.programs import names_programs, torch_requirements
from gpuinstall.lock.proposal import resolve_programs
from gpuinstall.lock.request.lock_request import LockRequest, agree_on_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.uv_failure import BUILD_FAILED, Conflict, all_or_conflict
from gpuinstall.wheels.judging import judge_reading, loads_beside
from gpuinstall.wheels.learned.row import Depth
from gpuinstall.wheels.needs import name_for_cuda

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.code_check import Fault
    from gpuinstall.sources.session import Session
    from gpuinstall.wheels.judging import Judgement
    from gpuinstall.wheels.learned.row import LearnedRow

    Resolutions = list[Resolution]
    Answer = Resolutions | Conflict

SEARCH_S = 240
"""After how many seconds a search takes no further decision."""

AT_ONCE = 8
"""Of how many versions METADATA and the tables of a library are read side by side, some 0.3 MB each."""

_OLDER = "older-for-code"

_BEGINNINGS = (Depth.METADATA, Depth.TABLES, Depth.PART)

_DOES_WITHOUT = "what requires it is taken in a version that does without it"


def search_locks(
    requests: Sequence[LockRequest],
    session: Session,
) -> Answer:
    """Return one resolution for each target in which the rules find no fault: what was named at its newest, then torch.

    Args:
        requests: One for each target.
        session: The sources and the clients of the run.
    """
    deadline = monotonic() + SEARCH_S
    conflicts: list[Conflict] = []
    try:
        for opening in openings(requests, session):
            answer = _Search(opening.requests, session, deadline).run()
            if not isinstance(answer, Conflict):
                return [one.warned_of(opening.remarks) for one in answer]
            conflicts.append(answer)
    except (NoBuildError, MachineError) as error:
        conflicts.append(Conflict(error))
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
        self._usual_prereleases = frozenset[str]()
        """What was requested and is a pre-release before anything is decided: because it was requested, or has no other."""

    def run(self) -> Answer:
        """Propose and decide until nothing is wrong any more."""
        while monotonic() < self._deadline:
            proposal = self._propose()
            obstacle: Conflict | list[Decision]
            if isinstance(proposal, Conflict):
                obstacle = proposal
            else:
                checks = [CodeCheck(one, self._session) for one in proposal]
                obstacle = self._prerelease(checks) or self._faults(checks)
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

    def _prerelease(self, checks: Iterable[CodeCheck]) -> Conflict | None:
        """Return that a remedy failed, since a program came to a pre-release that it had not without remedies."""
        found = frozenset(chain.from_iterable(check.prereleases for check in checks))
        # What no decision has led to is what the request itself comes to.
        if not self._decisions:
            self._usual_prereleases = found
        names = found - self._usual_prereleases
        if not names:
            return None
        message = f"nothing but a pre-release of {some(sorted(names))} goes with it"
        return Conflict(NoBuildError("requirements-conflict", message))

    def _faults(self, checks: Sequence[CodeCheck]) -> list[Decision] | Conflict:
        """Return what the first rules find that is not decided; a conflict if a remedy has not done what it promised.

        Of dependencies nothing is decided before what was requested: another version of that requires others.
        """
        remedied = {(one.target, one.fault.key) for one in self._decisions}
        for rule in FAULT_RULES:
            found: dict[str, Decision] = {}
            for target, check in enumerate(checks):
                for fault in rule(check):
                    if (target, fault.key) not in remedied:
                        found.setdefault(fault.package, Decision(fault, target))
                    elif fault.is_certain:
                        return Conflict(NoBuildError(NO_CODE, fault.message))
            requested = [one for one in found.values() if one.fault.is_of_request]
            if found:
                return requested or list(found.values())
        return []

    def _decide(self, obstacle: list[Decision] | Conflict) -> Conflict | None:
        """Take the first remedy of each fault; if there is none, or on a conflict, the next of the last decision.

        Returns:
            What refuses the requests if no decision has a remedy left.
        """
        conflict = obstacle if isinstance(obstacle, Conflict) else None
        for decision in () if isinstance(obstacle, Conflict) else obstacle:
            if not self._take_next(decision):
                conflict = decision.refusal()
                break
            self._decisions.append(decision)
        if conflict is None:
            return None
        while self._decisions:
            if self._take_next(self._decisions[-1]):
                return None
            conflict = self._decisions.pop().refusal(conflict)
        return conflict

    def _take_next(self, decision: Decision) -> bool:
        """Choose the next remedy, and tell it; return whether there is one."""
        told = str(decision)
        has_taken = decision.take_next()
        if decision.chosen.code and str(decision) != told:
            self._session.reporter.step("Code", str(decision))
        return has_taken

    @property
    def _in_force(self) -> dict[Decision, str]:
        """The decisions that count, each with the fault to tell.

        An older version of a package takes back what was decided for newer ones.
        """
        in_force: dict[Decision, str] = {}
        for decision in self._decisions:
            message = decision.fault.message
            taken_back = []
            if decision.is_for_older_version:
                package = decision.fault.package
                taken_back = [one for one in in_force if one.fault.package == package]
            for other in taken_back:
                earlier = in_force.pop(other)
                # What is told of an older version is why the newest was not taken.
                if other.is_for_older_version:
                    message = earlier
            in_force[decision] = message
        return in_force

    @property
    def _narrowed_requests(self) -> list[LockRequest]:
        """The requests within what was decided."""
        requests = list(self._requests)
        for decision in self._in_force:
            chosen = decision.chosen
            if chosen.constraint:
                requests = [request.within(chosen.constraint) for request in requests]
            request = requests[decision.target]
            requests[decision.target] = chosen.of(request, decision.fault.package)
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
        found = "no versions that go together were found"
        if self._decisions:
            found = str(self._decisions[-1])
        error = NoBuildError(
            "search-ended",
            f"{found}; the search ended after {SEARCH_S} s",
            hint="Request versions that are known to go together",
        )
        return Conflict(error)


def propose(
    requests: Sequence[LockRequest],
    session: Session,
) -> Answer:
    """Choose and resolve: the family alone by the plan, programs and torch together; one version for all targets."""
    try:
        planned = agree_on_torch(requests)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    first = planned[0]
    # Which companions go with a torch that the catalogue does not know, METADATA alone tells.
    is_learned = any(one.choice.build.learned for one in planned)
    if not is_learned and not names_programs(first.request.requirements):
        resolve_one = partial(resolve, session=session)
        alone = side_by_side(resolve_one, planned, TARGETS_AT_ONCE)
        answer = all_or_conflict(alone)
    elif first.request.newest_per_target:
        apart = [resolve_programs([request], session) for request in planned]
        answers = all_or_conflict(apart)
        answer = answers if isinstance(answers, Conflict) else [*chain(*answers)]
    else:
        answer = resolve_programs(planned, session)
    if isinstance(answer, Conflict):
        return answer
    return _aligned(answer, first.catalog.family, session)


def _aligned(
    resolutions: Resolutions,
    family: Collection[str],
    session: Session,
) -> Resolutions:
    """Lower every package outside the family to the oldest version that a target has, as far as that goes together."""
    oldest = {
        name: min(versions, key=Version)
        for name, versions in _versions_by_name(resolutions, family).items()
    }
    near = partial(_resolved_near, versions=oldest, session=session)
    aligned = side_by_side(near, resolutions, TARGETS_AT_ONCE)
    # If each target has its own newest torch, the family differs too.
    has_one_torch = not resolutions[0].request.request.newest_per_target
    by_name = _versions_by_name(aligned, family if has_one_torch else ())
    apart = {name for name, versions in by_name.items() if len(versions) > 1}
    return [
        replace(one, apart=frozenset(apart & one.versions.keys())) for one in aligned
    ]


def _versions_by_name(
    resolutions: Resolutions,
    family: Collection[str],
) -> dict[str, set[str]]:
    """Return the versions of each package outside the family."""
    versions: dict[str, set[str]] = {}
    for resolution in resolutions:
        for name, version in resolution.versions.items():
            if name not in family:
                versions.setdefault(name, set()).add(version)
    return versions


def _resolved_near(
    resolution: Resolution,
    versions: Mapping[str, str],
    session: Session,
) -> Resolution:
    """Resolve again, near to ``versions``, if it has another of one."""
    own = resolution.versions
    if all(own.get(name, version) == version for name, version in versions.items()):
        return resolution
    request = resolution.request
    pins = replace(request.pins, preferred={**request.pins.preferred, **versions})
    answer = resolve(replace(request, pins=pins), session)
    if isinstance(answer, Conflict):
        return resolution
    return replace(answer, request=request)


@dataclass(frozen=True)
class Narrowing:
    """What one remedy leaves of the requests."""

    code: str = ""
    """That of its warning; empty: nothing is told of it."""

    sentence: str = ""
    """What is done, as a statement; empty if another build of torch is taken."""

    constraint: str = ""
    """The versions of the package that every target may take."""

    older: Version | None = None
    """The older version that is taken; it takes back what was done for newer ones of its package."""

    without_builds: frozenset[str] = frozenset()
    """The builds of torch, by name, that the target may not take."""

    libraries: tuple[str, ...] = ()
    """Packages to add."""

    file: Wheel | None = None
    """The one file that the target takes the package from."""

    def of(self, request: LockRequest, package: str) -> LockRequest:
        """Return what it leaves of the request of the target."""
        catalog = request.catalog.without(
            lambda build: build.name in self.without_builds,
            "without-code",
        )
        libraries = dict.fromkeys((*request.libraries, *self.libraries))
        files = dict(request.files)
        if self.file:
            files[package] = (self.file,)
        return replace(
            request,
            catalog=catalog,
            libraries=tuple(libraries),
            files=files,
        )


class Decision:
    """A fault, and the remedy that is tried: the next one once nothing goes with it."""

    def __init__(self, fault: Fault, target: int) -> None:
        self.fault = fault
        self.target = target
        """The position of the target that the fault is of."""
        self.chosen = Narrowing()
        self.older = OlderVersions(fault.check, fault.wheel) if fault.wheel else None
        self._options = self._remedies()

    def _remedies(self) -> Iterator[Narrowing]:
        for remedy in REMEDIES:
            yield from remedy(self)
        if not self.fault.is_certain:
            yield Narrowing()

    def take_next(self) -> bool:
        """Choose the next remedy; return whether there is one."""
        option = next(self._options, None)
        if option is not None:
            self.chosen = option
        return option is not None

    def refusal(self, conflict: Conflict | None = None) -> Conflict:
        """Return the fault as what refuses the requests.

        Args:
            conflict: What stands against the last remedy; None if there is none.
        """
        fault = self.fault
        by_itself = fault.refusal(
            fault.message, self.older.why_none if self.older else ""
        )
        if conflict is None:
            return by_itself
        # A fault that may be none refuses nothing, and other code that does not run says more than this.
        if not fault.is_certain or conflict.error.code == NO_CODE:
            return conflict
        if self.is_for_older_version:
            message = str(self) if self.chosen.older else fault.message
            return fault.refusal(message, conflict.why)
        return by_itself

    @property
    def is_for_older_version(self) -> bool:
        """Whether the version of its package gives way."""
        return self.chosen.code == _OLDER

    def reason(
        self,
        build: Build,
        versions: Mapping[str, str],
        fault: str,
    ) -> Reason:
        """Return what is told of it once a build of torch is chosen, and the version of every package."""
        package = self.fault.package
        version = versions.get(package)
        older = self.chosen.older
        sentence = self.chosen.sentence or f"{package} runs beside torch {build.name}"
        if older and version is None:
            sentence = _DOES_WITHOUT
        elif older and str(version).partition("+")[0] != older.public:
            sentence = (
                f"{package} {version} is the newest that the other versions go with"
            )
        return Reason(self.chosen.code, f"{fault}; {sentence}")

    def __str__(self) -> str:
        sentence = self.chosen.sentence or "other builds of torch are tried"
        return f"{self.fault.message}; {sentence}"


def prebuilt_file(decision: Decision) -> Iterator[Narrowing]:
    """Yield the prebuilt file of an extension that would be compiled; it never moves the torch that was chosen."""
    fault = decision.fault
    if fault.code == WOULD_BE_COMPILED:
        file = file_beside(fault.package, fault.check.resolution, fault.check.session)
        if file:
            yield Narrowing(file=file)


def other_build(decision: Decision) -> Iterator[Narrowing]:
    """Yield the builds of torch beside which a package runs: before an older package."""
    fault = decision.fault
    if fault.wheel is None or decision.older is None or not fault.is_certain:
        return
    serving = decision.older.serving(fault.wheel)
    if serving:
        runnable = {build.name for build in fault.check.resolution.plan.runnable}
        yield Narrowing(
            "other-build-for-code",
            constraint=f"{fault.package}>={fault.wheel.version.public}",
            without_builds=frozenset(runnable - {build.name for build in serving}),
        )


def added_library(decision: Decision) -> Iterator[Narrowing]:
    """Yield the libraries that a package opens by name and does nothing without."""
    fault, check = decision.fault, decision.fault.check
    if fault.wheel is None:
        return
    row, judgement = check.judgements[fault.wheel]
    libraries = check.missing_libraries(row)
    if libraries and not judgement.excluded:
        yield Narrowing(
            "library-added",
            f"{' and '.join(libraries)} provides the library that it loads",
            constraint=f"{fault.package}>={fault.wheel.version.public}",
            libraries=tuple(libraries),
        )


def older_version(decision: Decision) -> Iterator[Narrowing]:
    """Yield the newest older version that runs here, then every older one: the other packages may go with those alone."""
    fault, older = decision.fault, decision.older
    if older is None or not fault.is_certain:
        return
    package = fault.package
    is_requested = fault.is_of_request
    version = older.newest_running()
    if version is None:
        if not is_requested:
            sentence = f"{_DOES_WITHOUT}{older.other_name}"
            yield Narrowing(_OLDER, sentence, constraint=f"{package}<0")
        return
    sentence = f"{package} {version} runs here{older.unread_versions}"
    # Of a dependency, what requires it decides which older version can be had.
    operators = ("==", "<") if is_requested else ("<=",)
    for operator in operators:
        constraint = f"{package}{operator}{version.public}"
        yield Narrowing(_OLDER, sentence, constraint=constraint, older=version)


REMEDIES = (prebuilt_file, other_build, added_library, older_version)
"""In the order in which they are tried."""


class OlderVersions:
    """The versions of a package that are older than the one with a fault, and the builds of torch that each runs beside."""

    def __init__(self, check: CodeCheck, wheel: Wheel) -> None:
        self._wheel = wheel
        self._check = check
        self._runnable = check.resolution.plan.runnable
        self._unread: dict[Version, str] = {}

    def newest_running(self) -> Version | None:
        """Return the newest older version that is known to run here.

        What is cheap decides first: METADATA and the tables of a few libraries, then the beginning of the code. Only if
        one is known to run, what may run of the newer ones is read whole.
        """
        self._unread.clear()
        known = None
        doubtful = []
        for wheel in self._possible():
            if self._check.is_spent:
                self._unread[wheel.version] = "as much was read as is read for one lock"
            elif self.serving(wheel, _BEGINNINGS):
                known = wheel.version
                break
            elif wheel.version in self._unread:
                doubtful.append(wheel)
        return self._newest_of(doubtful) or known

    def _possible(self) -> Iterator[Wheel]:
        """Yield the older versions that METADATA and the tables of a few libraries do not exclude, the newest first."""
        wheels = self._wheels()
        for start in range(0, len(wheels), AT_ONCE):
            group = wheels[start : start + AT_ONCE]
            is_possible = side_by_side(self._is_possible, group, AT_ONCE)
            yield from compress(group, is_possible)

    def _newest_of(self, doubtful: Sequence[Wheel]) -> Version | None:
        """Return the newest of some versions that runs here once it is read whole, as far as may be read."""
        for wheel in doubtful:
            if self._check.is_spent:
                break
            del self._unread[wheel.version]
            if self.serving(wheel):
                return wheel.version
        return None

    def _wheels(self) -> list[Wheel]:
        """Return a wheel of each older version that was requested, the newest first."""
        newest = self._wheel
        requirements = map(
            parse_requirement, self._check.resolution.choice.requirements
        )
        limits = [one for one in requirements if one.name == newest.package]
        older = {}
        for wheel in self._check.usable_wheels(newest.package):
            version = wheel.version
            is_older = version < newest.version and not version.is_prerelease
            if is_older and all(limit.allows(version) for limit in limits):
                older[version] = wheel
        return [older[version] for version in sorted(older, reverse=True)]

    def _is_possible(self, wheel: Wheel) -> bool:
        """Whether a version may run here, by its METADATA and by the tables of one library."""
        # Why a wheel cannot be read is remembered, and said once it is read for its code.
        check = self._check
        with suppress(InstallationError):
            row = check.row(wheel, check.build.backend, Depth.TABLES)
            judgement = judge_reading(row, check.gpus)
            return any(
                self._runs_beside(row, judgement, build) for build in self._runnable
            )
        return True

    def serving(
        self,
        wheel: Wheel,
        depths: Sequence[Depth] = tuple(Depth),
    ) -> list[Build]:
        """Return the builds of torch that run here beside which a wheel runs too, the best first; none if unread."""
        # What should have libraries and has none is a placeholder.
        is_of_platform = all(tag.platform != "any" for tag in wheel.tags)
        newest, _ = self._check.judgements[self._wheel]
        needs_libraries = is_of_platform or newest.system == "windows"
        serving = []
        try:
            for build in self._runnable:
                row, judgement = self._settled(wheel, build, depths)
                is_complete = row.system is not None or not needs_libraries
                if is_complete and self._runs_beside(row, judgement, build):
                    serving.append(build)
        except InstallationError as error:
            self._unread[wheel.version] = error.message
            return []
        return serving

    def _settled(
        self,
        wheel: Wheel,
        build: Build,
        depths: Sequence[Depth],
    ) -> tuple[LearnedRow, Judgement]:
        """Return what a wheel says and means; a part of its code excludes nothing, and promises nothing.

        Raises:
            InstallationError: if no more of it may be read.
        """
        row, judgement = self._check.judged(wheel, build, depths)
        # Of the one that was resolved nothing is to be known: what is unknown refuses nothing.
        is_older = wheel != self._wheel
        is_known = bool(row.codes) or row.is_whole or bool(judgement.excluded)
        if is_older and (judgement.doubt or not is_known):
            raise InstallationError(
                "unread", "more of it would have to be read than may be"
            )
        return row, judgement

    def _runs_beside(
        self,
        row: LearnedRow,
        judgement: Judgement,
        build: Build,
    ) -> bool:
        check = self._check
        resolution = check.resolution
        machine, python = resolution.request.machine, resolution.choice.python
        for requirement in torch_requirements(row.requires):
            marker = requirement.marker
            is_needed = marker is None or marker_holds(marker, machine, python)
            if is_needed and not requirement.allows(build.torch):
                return False
        # Where this torch lacks a symbol, only one counts that is known to have it.
        chosen = check.build
        torch = judgement.torch
        lacks_here = (
            loads_beside(torch, chosen) is False and loads_beside(torch, build) is None
        )
        return not lacks_here and check.misfit(row, judgement, build) is None

    @property
    def why_none(self) -> str:
        """What was found of the older versions of a package that does not run here."""
        known = "is known to run" if self._unread else "runs"
        return f"no older version {known} here{self.unread_versions}{self.other_name}"

    @property
    def other_name(self) -> str:
        """The name, in words, of the package for the CUDA of torch, if its own is for another and there is one."""
        toolkit = self._check.build.toolkit
        if toolkit is None:
            return ""
        package = self._wheel.package
        name = name_for_cuda(package, toolkit[0])
        if name is None or name == package:
            return ""
        wheels = self._check.usable_wheels(name)
        if all(wheel.version.is_prerelease for wheel in wheels):
            return ""
        return f"; for CUDA {toolkit[0]} it is {name}"

    @property
    def unread_versions(self) -> str:
        """The versions that could not be read, with the last reason; empty without any."""
        if not self._unread:
            return ""
        versions = some([str(version) for version in self._unread])
        *_, last = self._unread.values()
        return f" (unread: {versions}: {last})"
