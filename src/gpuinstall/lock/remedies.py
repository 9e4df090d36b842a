"""What can be done about a fault of a resolution: each remedy yields what it would leave of the requests."""

from __future__ import annotations

from contextlib import suppress
from itertools import compress
from typing import TYPE_CHECKING

from gpuinstall.base.errors import InstallationError, UsageError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import marker_holds, parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.extensions import program_source
from gpuinstall.lock.code_check import (
    NO_CODE,
    WOULD_BE_COMPILED,
    certainly_against,
    has_symbols,
    is_for_single_chips,
    lacking,
)
from gpuinstall.lock.extensions import file_beside, own_build
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.row import Depth, misfit, refused_by_driver, without_code
from gpuinstall.wheels.needs import name_for_cuda

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from packaging.version import Version

    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.code_check import CodeCheck, Fault
    from gpuinstall.lock.uv_failure import Conflict
    from gpuinstall.wheels.learned.row import LearnedRow

AT_ONCE = 8
"""Of how many versions METADATA and the tables of a library are read side by side, some 0.3 MB each."""


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

    def excludes(self, build: Build) -> bool:
        """Whether it leaves a build of torch out."""
        return build.name in self.without_builds


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

    def has_next(self) -> bool:
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
        if conflict and (not fault.is_certain or conflict.error.code == NO_CODE):
            return conflict
        if conflict and self.is_for_older_version:
            message = str(self) if self.chosen.older else fault.message
            return fault.refusal(message, conflict.why)
        return fault.refusal(fault.lasting_cause, self.older.why_none if self.older else "")

    @property
    def is_for_older_version(self) -> bool:
        """Whether the version of its package gives way."""
        return self.chosen.code == _OLDER

    def reason(self, build: Build, versions: Mapping[str, str], fault: str) -> Reason:
        """Return what is told of it once a build of torch is chosen, and the version of every package."""
        package = self.fault.package
        version = versions.get(package)
        older = self.chosen.older
        sentence = self.chosen.sentence or f"{package} runs beside torch {build.name}"
        if older and version is None:
            sentence = _DOES_WITHOUT
        elif older and str(version).partition("+")[0] != older.public:
            sentence = f"{package} {version} is the newest that the other versions go with"
        return Reason(self.chosen.code, f"{fault}; {sentence}")

    def __str__(self) -> str:
        sentence = self.chosen.sentence or "other builds of torch are tried"
        return f"{self.fault.message}; {sentence}"


def makers_file(decision: Decision) -> Iterator[Narrowing]:
    """Yield the file of a program that its makers have of the same version for another CUDA."""
    fault, check = decision.fault, decision.fault.check
    request = check.resolution.request
    is_open = fault.is_of_request and fault.package not in request.files
    if fault.wheel is None or not is_open or not fault.is_certain:
        return
    if not check.is_for_another_cuda(fault.wheel):
        return
    version = fault.wheel.version.public
    file = own_build(fault.package, version, request, check.session)
    if file:
        yield Narrowing(
            "own-index-for-code",
            f"{file.package} {file.version} of its makers' own index runs here",
            constraint=f"{fault.package}>={version}",
            file=file,
        )


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
    """Yield the libraries that a package is linked to, or opens and does nothing without."""
    fault, check = decision.fault, decision.fault.check
    if fault.wheel is None:
        return
    row = check.rows[fault.wheel]
    if misfit(row, check.build, check.around.gpus):
        return
    if fault.is_certain:
        opens = fault.package in load_members().must_open
        libraries = lacking(row, check.around) if opens else ()
        what = "the library that it loads"
    else:
        libraries = check.missing_libraries(fault.wheel)
        what = "them"
    if libraries:
        provide = "provide" if len(libraries) > 1 else "provides"
        yield Narrowing(
            "library-added",
            f"{' and '.join(libraries)} {provide} {what}",
            constraint=f"{fault.package}>={fault.wheel.version.public}",
            libraries=libraries,
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
    unread = older.unread_versions
    is_newest = not unread and fault.check.resolution.request.machine.glibc
    runs = "is the newest that runs here" if is_newest else f"runs here{unread}"
    sentence = f"{package} {version} {runs}"
    # Of a dependency, what requires it decides which older version can be had.
    operators = ("==", "<") if is_requested else ("<=",)
    for operator in operators:
        constraint = f"{package}{operator}{version.public}"
        yield Narrowing(_OLDER, sentence, constraint=constraint, older=version)


_OLDER = "older-for-code"
_DOES_WITHOUT = "what requires it is taken in a version that does without it"
REMEDIES = (makers_file, prebuilt_file, other_build, added_library, older_version)
"""In the order in which they are tried."""


class OlderVersions:
    """The versions of a package that are older than the one with a fault, and the builds of torch that each runs beside."""

    def __init__(self, check: CodeCheck, wheel: Wheel) -> None:
        self._wheel = wheel
        self._check = check
        self._runnable = check.resolution.plan.runnable
        self._unread: dict[Version, str] = {}

    def newest_running(self) -> Version | None:
        """Return the newest older version that runs here.

        What is cheap decides first: METADATA, then the tables of one library. Only the wheels that pass both are read
        for their code, one after the other.
        """
        code = self._check.code
        self._unread.clear()
        self._note_silent_index()
        wheels = self._wheels
        for start in range(0, len(wheels), AT_ONCE):
            group = wheels[start : start + AT_ONCE]
            is_possible = [True] * len(group)
            if not code.is_spent:
                is_possible = side_by_side(self._is_possible, group, AT_ONCE)
            for wheel in compress(group, is_possible):
                if code.is_spent:
                    self._unread[wheel.version] = "as much was read as is read for one lock"
                elif self.serving(wheel):
                    return wheel.version
        return None

    @property
    def _wheels(self) -> list[Wheel]:
        """A wheel of each older version that was requested, the newest first."""
        newest = self._wheel
        requirements = map(parse_requirement, self._check.resolution.choice.requirements)
        limits = [one for one in requirements if one.name == newest.package]
        older = {}
        for wheel in self._check.code.usable_wheels(newest.package):
            version = wheel.version
            if version >= newest.version or version.is_prerelease:
                continue
            if all(limit.allows(version) for limit in limits):
                older[version] = wheel
        return [older[version] for version in sorted(older, reverse=True)]

    def _is_possible(self, wheel: Wheel) -> bool:
        """Whether a version may run here, by its METADATA and by the tables of one library."""
        code = self._check.code
        depths = [Depth.METADATA] if wheel.metadata else []
        if code.decides(wheel.package):
            depths.append(Depth.TABLES)
        for depth in depths:
            row = None
            # Why a wheel cannot be read is remembered, and said once it is read for its code.
            with suppress(InstallationError):
                row = code.row(wheel, depth=depth)
            if row and not any(self._runs_beside(row, build) for build in self._runnable):
                return False
        return True

    def _note_silent_index(self) -> None:
        """Note that the makers of a program may have the same version for another CUDA, if their index is silent."""
        session, wheel = self._check.session, self._wheel
        source = program_source(wheel.package, wheel.version.public, session.environment)
        silent = session.client.unreachable(source.url) if source and source.url else None
        if silent:
            message = f"{silent.host}, which has it for another CUDA, is unreachable"
            self._unread[wheel.version] = message

    def serving(self, wheel: Wheel) -> list[Build]:
        """Return the builds of torch that run here beside which a wheel runs too, the best first; none if unread."""
        # In the place of a wheel with libraries for another system, one without any is nothing.
        is_for_another = self._check.rows[self._wheel].system == "windows"
        serving = []
        try:
            for build in self._runnable:
                row = self._check.code.row(wheel, build.backend)
                if not refused_by_driver(row, build, self._check.around.gpus):
                    row = self._settled(row, wheel, build)
                is_complete = row.system is not None or not is_for_another
                if is_complete and self._runs_beside(row, build):
                    serving.append(build)
        except InstallationError as error:
            self._unread[wheel.version] = error.message
            return []
        return serving

    def _settled(self, row: LearnedRow, wheel: Wheel, build: Build) -> LearnedRow:
        """Return a row that tells whether a wheel has code for the GPUs; a part of its code excludes nothing.

        Raises:
            InstallationError: if no more of the wheel may be read.
        """
        is_lacking = bool(without_code(row, build, self._check.around.gpus))
        if not row.is_whole and is_lacking:
            row = self._check.code.row(wheel, build.backend, Depth.WHOLE)
        if row.is_whole or (row.architectures and not is_lacking):
            return row
        raise InstallationError("unread", "more of it would have to be read than may be")

    def _runs_beside(self, row: LearnedRow, build: Build) -> bool:
        around = self._check.around
        return (
            self._allows_torch(row, build)
            and self._has_symbols(row, build)
            and not certainly_against(row, build, around)
            and (is_for_single_chips(row) or not misfit(row, build, around.gpus))
        )

    def _allows_torch(self, row: LearnedRow, build: Build) -> bool:
        """Whether the METADATA of a package allows the torch of a build."""
        resolution = self._check.resolution
        for text in row.requires:
            with suppress(UsageError):
                requirement = parse_requirement(text)
                if requirement.name != "torch" or requirement.allows(build.torch):
                    continue
                marker = requirement.marker
                machine = resolution.request.machine
                if marker is None or marker_holds(marker, machine, resolution.choice.python):
                    return False
        return True

    def _has_symbols(self, row: LearnedRow, build: Build) -> bool:
        """Whether a torch is known to have the symbols that this one lacks; no matter if this one lacks none."""
        needs = row.of_torch
        return (
            has_symbols(needs, self._check.build) is not False or has_symbols(needs, build) is True
        )

    @property
    def why_none(self) -> str:
        """What was found of the older versions of a package that does not run here."""
        older = len(self._wheels)
        unread = self.unread_versions
        if not older:
            python = self._check.resolution.choice.python
            return f"no older version has a wheel for Python {python} here{unread}{self.other_name}"
        runs = "is known to run here" if unread else "runs here either"
        which = f"none of {older} older versions" if older > 1 else "not even the older version"
        return f"{which} {runs}{unread}{self.other_name}"

    @property
    def other_name(self) -> str:
        """The name, in words, of the package for the CUDA of torch, if its own is for another and there is one."""
        toolkit = self._check.build.toolkit
        if toolkit is None:
            return ""
        package = self._wheel.package
        name = name_for_cuda(package, toolkit[0])
        if name in {None, package} or not self._check.code.has_release(str(name)):
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
