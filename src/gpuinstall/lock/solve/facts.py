"""What METADATA does not say: which builds of torch a version of a package runs beside, as its wheel tells.

What was requested, what the catalogue calls the core of programs, and what these are linked to, is read as far as it
takes (``wheels.judging``). Of another dependency the CUDA major alone counts, by its name and METADATA, so that nobody
waits for its wheel. What is certain becomes a fact, what is unknown warns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from posixpath import basename
from typing import NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import (
    Requirement,
    names_of,
)
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import COMPANIONS, PAIRED, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.file.target import best_by_tags
from gpuinstall.lock.solve.package_index import PackageIndex, requirements_of_metadata
from gpuinstall.plan.companions import Companions
from gpuinstall.wheels.judging import (
    Judgement,
    is_tied_by_name_alone,
    judge_reading,
    loads_beside,
    misfit_beside,
    missing_libraries,
    packages_apart,
)
from gpuinstall.wheels.learned.row import Depth, LearnedRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import (
    comes_apart,
    name_cuda,
    name_for_cuda,
)

AT_ONCE = 8
"""How many older versions of a package are read side by side at most."""

AHEAD = 8 << 20
"""How many bytes of older versions may be read in vain, since one that was read beside them runs."""

LOOKED_AT = 24
"""Of how many versions of a program that is behind METADATA is read, the newest first."""

WHEELS_AT_ONCE = 32
"""How many wheels of a lock are looked at side by side: of nearly all of them METADATA alone, a way to an index and back."""

_Rows = dict[str, tuple[LearnedRow, Judgement]]
"""What a wheel said and what that means, by the version of the build beside it."""


class Fact(Value):
    """What METADATA does not say of one version of a package."""

    package: str

    version: str
    """With its label."""

    why: str = ""
    """For people: ``vllm 0.33.0 is incompatible with torch 2.14.1+cu126: vllm/_C.abi3.so is built with CUDA 13``."""

    builds: frozenset[str] | None = None
    """The versions of torch's builds that it runs beside; empty: it runs nowhere here. None: beside all."""

    requires: tuple[str, ...] = ()
    """What it needs beside what METADATA requires."""

    wheel: Wheel | None = None
    """The file that tells METADATA."""

    unread: str = ""
    """Why it is not known whether it runs; empty if that is known."""

    @property
    def excludes(self) -> bool:
        """Whether this version does not run here."""
        return self.builds == frozenset()

    def speaks_against(self, torch: str) -> bool:
        """Whether this version does not run beside a build of torch."""
        return self.builds is not None and torch not in self.builds


class WheelReading(NamedTuple):
    """What a wheel said and what that means, beside every build of torch."""

    wheel: Wheel

    rows: _Rows
    """By the version of the build."""

    reasons: dict[str, str | None]
    """Why it does not run beside each build; None: it does."""

    allowed: frozenset[str]
    """The builds that its METADATA allows."""

    requires: tuple[str, ...] = ()
    """The packages that it opens by name and does nothing without, as no torch of its CUDA runs here."""

    why: str | None = None
    """Why these are needed."""

    @property
    def row(self) -> LearnedRow:
        """What it said beside the best build."""
        return next(iter(self.rows.values()))[0]

    @property
    def running(self) -> frozenset[str]:
        """The builds that it runs beside."""
        return frozenset(one for one, why in self.reasons.items() if why is None)

    def serves(self, builds: Iterable[str]) -> bool:
        """Whether it runs beside one of some builds, and its METADATA allows it."""
        usable = self.allowed & self.running
        return not usable.isdisjoint(builds)

    def fact(self, torch: str) -> Fact | None:
        """Return it as a fact; None if METADATA says it all.

        Args:
            torch: The build that it was met beside, of which the fact tells.
        """
        running = self.running
        runs_everywhere = len(running) == len(self.reasons)
        is_told = runs_everywhere or (self.allowed and self.allowed <= running)
        if is_told and not self.requires:
            return None
        reasons = [self.reasons.get(torch), *self.reasons.values()]
        if self.allowed and running.isdisjoint(self.allowed):
            # What METADATA allows does not run it, and what runs it METADATA does not allow.
            running = frozenset()
            allowed = [one for one in self.reasons if one in self.allowed]
            reasons = [*map(self.reasons.get, allowed), *reasons]
        why = next(filter(None, reasons), self.why)
        version = str(self.wheel.version)
        return Fact(
            self.wheel.package,
            version,
            f"{self.wheel.package} {version} {why}",
            None if runs_everywhere else running,
            self.requires,
            self.wheel,
        )


class Runs(Enum):
    """Whether an older version of a package runs here."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class Trial(NamedTuple):
    """What was found out about an older version of a package."""

    wheel: Wheel
    runs: Runs
    fact: Fact | None
    """What is learned of the version: if it is UNKNOWN whether it runs, that it is passed over."""


class Judge:
    """Judges what uv came to, for one problem."""

    def __init__(self, index: PackageIndex) -> None:
        self.index = index
        self.facts: dict[tuple[str, str], Fact] = {}
        """All that is known, by package and version; nothing is ever taken back."""
        self.readings: dict[Wheel, WheelReading] = {}
        """Of the wheels of what uv came to, at one time or another."""
        self.met: set[str] = set()
        """The packages that uv came to, at one time or another."""
        self.before_torch: list[str] = []
        """The dependencies of which uv decides the version before torch's: their older versions are for no newer CUDA."""
        self._came_first: set[str] = set()
        self._problem = index.problem
        self._versions: Mapping[str, str] = {}
        """What uv came to last."""
        self._of_extras: set[str] = set()
        self._linked: set[str] = set()
        """The dependencies that bring what the code of others is linked to."""
        self._needed: set[str] = set()
        """The libraries that these others are linked to."""
        # A lock for the CPU has nothing to judge, nor one of what torch's own build answers for.
        is_for_cpu = not self._problem.gpus and all(
            build.backend.kind != "cuda" for build in self._problem.builds
        )
        answered = {"torch"} if self._problem.builds[0].learned else PAIRED
        self._is_idle = is_for_cpu or self._problem.requested <= answered

    @property
    def requested(self) -> frozenset[str]:
        """The packages that were requested, with those that a requested extra brings."""
        return self._problem.requested | self._of_extras

    def newest(self, name: str) -> Version | None:
        """Return the newest version of a program that nothing known excludes, and that some torch here goes with."""
        listed = self.index.newest_releases[name]
        wheels = self.index.releases(name)
        # What exists as source alone tells nothing.
        if listed not in wheels and (name, str(listed)) not in self.facts:
            return listed
        facts = self.facts.values()
        excluded = {
            one.version for one in facts if one.package == name and one.excludes
        }
        newest = [version for version in wheels if str(version) not in excluded]
        for version in newest[:LOOKED_AT]:
            if self._allowed(self.index.metadata_requirements(wheels[version])):
                return version
        return next(iter(newest), listed)

    def speaks_against(self, torch: str) -> bool:
        """Whether something that uv came to last is known not to run beside a build."""
        for fact in map(self.facts.get, self._versions.items()):
            if fact and not fact.excludes and fact.speaks_against(torch):
                return True
        return False

    def unread(self, package: str, above: Version | None = None) -> str:
        """Return which versions of a package were passed over unread, and why the last; empty if none was."""
        versions = []
        why = ""
        for fact in self.facts.values():
            if fact.package != package or not fact.unread:
                continue
            if above is None or Version(fact.version) > above:
                versions.append(fact.version)
                why = fact.unread
        return f" (unread: {some(versions)}: {why})" if versions else ""

    def learn_from(
        self,
        wheels: Sequence[Wheel],
        versions: Mapping[str, str],
        built: Iterable[str],
    ) -> bool:
        """Learn what is wrong with what uv came to; return whether anything of it is new.

        Args:
            wheels: The files of it.
            versions: The version of each package in it.
            built: The packages in it that an index has as source alone.
        """
        before = dict(self.facts)
        self._versions = versions
        self.met.update(versions)
        for wheel in wheels:
            self._learn_of_companion(wheel)
        if not self._is_idle:
            self._learn_from_code(wheels)
            for package in built:
                self._learn_from_name(package)
        return self.facts != before

    @property
    def _torch(self) -> str:
        return self._versions["torch"]

    def _learn(self, fact: Fact | None) -> None:
        """Learn a fact, also of a version of which less was read beside another torch."""
        if fact:
            key = fact.package, fact.version
            known = self.facts.setdefault(key, fact)
            if fact.excludes and not known.excludes:
                self.facts[key] = fact

    def _learn_of_companion(self, wheel: Wheel) -> None:
        """Learn which builds a member of the family goes with, if it was met beside one that it does not go with."""
        if wheel.package == "torch" or self._torch in self._beside(wheel):
            return
        name = self.index.builds[self._torch].name
        for other in self.index.pages.get(wheel.package, ()):
            # uv would come to those with another label next.
            if other.version.public == wheel.version.public:
                version = str(other.version)
                why = f"{wheel.package} {version} is incompatible with torch {name}"
                builds = self._beside(other)
                self._learn(Fact(wheel.package, version, why, builds, wheel=other))

    def _beside(self, wheel: Wheel) -> frozenset[str]:
        """Return the builds that a package goes with by its label, and by what the catalogue pairs it with."""
        package = wheel.package
        builds = self.index.builds
        if package not in self.index.pages:
            return frozenset(builds)
        companions = Companions((), self._problem.catalog)
        running = set()
        for version, build in builds.items():
            loading = None
            if package in COMPANIONS:
                loading = companions.loading(build, Requirement.of(package))
            is_paired = loading is None or wheel.version.public in loading
            others = {*self.index.backends} - {build.backend.tag}
            if is_paired and wheel.version.local not in others:
                running.add(version)
        return frozenset(running)

    def _learn_from_code(self, wheels: Sequence[Wheel]) -> None:
        own = [wheel for wheel in wheels if wheel.package not in PAIRED]
        # A lock has several wheels of a package for newer glibcs, of which one is installed.
        deciding = best_by_tags(
            own, self._problem.tags, lambda wheel: (wheel.package, wheel.tags)
        )
        self._of_extras.update(self._brought_by_extras(deciding))
        new = [wheel for wheel in deciding if wheel not in self.readings]
        readings = side_by_side(self._look, new, WHEELS_AT_ONCE)
        for reading in filter(None, readings):
            self.readings[reading.wheel] = reading
            fact = reading.fact(self._torch)
            if fact is None or self.has_fallback(fact.package):
                continue
            self._learn(fact)
            # Of what was requested another torch comes before an older version.
            is_dependency = fact.package not in self.requested
            if fact.excludes:
                self._learn_of_older(reading)
            elif is_dependency and fact.speaks_against(self._torch):
                if self._may_come_first(reading):
                    self.before_torch.append(fact.package)
                else:
                    self._learn_of_older(reading)
        linked = {name for wheel in deciding for name in self._linked_to(wheel)}
        if not linked <= self._linked:
            self._linked |= linked
            for wheel in deciding:
                if wheel.package in linked:
                    # Its METADATA alone was read.
                    self.readings.pop(wheel, None)
            self._learn_from_code(wheels)

    def _brought_by_extras(self, wheels: Iterable[Wheel]) -> Iterator[str]:
        """Yield what requested extras bring."""
        with_extras = {one.name for one in self._problem.programs if one.extras}
        for wheel in wheels:
            if wheel.package in with_extras:
                for requirement in self.index.metadata_requirements(wheel):
                    if not self._problem.counts(requirement):
                        yield requirement.name

    def _learn_from_name(self, package: str) -> None:
        """Learn whether these GPUs run what is built here from its source, whose name alone may tell its CUDA."""
        cuda = name_cuda(package)
        if cuda is None or self.has_fallback(package):
            return
        version = self._versions[package]
        build = self.index.builds[self._torch]
        row = LearnedRow(
            package,
            version,
            backend=build.backend.tag,
            platform=f"{build.os}-{build.arch}",
            file="",
            url="",
            size=0,
            bytes=0,
            learned="",
            cuda=f"{cuda}.0",
        )
        why = judge_reading(row, self._problem.gpus).excluded
        if why:
            self._learn(
                Fact(package, version, f"{package} {version} {why}", frozenset())
            )

    def _linked_to(self, wheel: Wheel) -> Iterator[str]:
        """Yield the dependencies for a CUDA of a wheel that is linked to a library which does not come with torch.

        Also those of one for a CUDA that was requested and has no library of its own.
        """
        reading = self.readings.get(wheel)
        if reading is None:
            return
        is_empty = reading.row.system is None and wheel.package in self.requested
        is_for_cuda = is_empty and name_cuda(wheel.package)
        if not is_for_cuda and not any(map(comes_apart, reading.row.needs)):
            return
        self._needed.update(reading.row.needs)
        texts = reading.row.requires + reading.requires
        for requirement in requirements_of_metadata(texts):
            if name_cuda(requirement.name) and self._problem.counts(requirement):
                yield requirement.name

    def let_torch_come_first(self) -> bool:
        """Have torch decided before all dependencies again, for good; return whether it was not."""
        changes = bool(self.before_torch)
        self._came_first.update(self.before_torch)
        self.before_torch.clear()
        return changes

    def _may_come_first(self, reading: WheelReading) -> bool:
        """Whether a wheel is built with an older CUDA than torch's, nothing else speaks against it, and it never came first."""
        package = reading.wheel.package
        if package in self._came_first or package in self.before_torch:
            return False
        _, judgement = reading.rows[self._torch]
        build = self.index.builds[self._torch]
        fits = loads_beside(judgement.torch, build) is not False
        return fits and self._is_of_older_cuda(reading)

    def _is_of_older_cuda(self, reading: WheelReading) -> bool:
        """Whether a wheel is built with an older CUDA than the torch that it was met beside."""
        _, judgement = reading.rows[self._torch]
        build = self.index.builds[self._torch]
        if build.toolkit is None or judgement.cuda is None:
            return False
        return judgement.cuda < build.toolkit[0]

    def has_fallback(self, package: str) -> bool:
        """Whether what was requested is known to do without a package, or the one version that is allowed without a GPU."""
        pinned = [
            one.name
            for one in self._problem.wanted.request.requirements
            if one.is_exact
        ]
        members = load_members()
        if package in pinned and members.works_on_cpu.fullmatch(package):
            return True
        extension = load_extensions().rows.get(package)
        if extension is None or package in self.requested:
            return False
        return bool(extension.optional_for & {*self.requested, "*"})

    def _decides(self, package: str) -> bool:
        """Whether a package was requested, is what the catalogue calls the core of programs, or what these are linked to."""
        members = load_members()
        if members.names(package) or package in members.stated:
            return True
        return package in self.requested or package in self._linked

    def _look(self, wheel: Wheel) -> WheelReading | None:
        """Return what a wheel says; None if it has no code of its own, or cannot be read."""
        members = load_members()
        if members.for_cpu_alone.fullmatch(wheel.package):
            return None
        is_for_any = all(tag.platform == "any" for tag in wheel.tags)
        is_answered_for = members.with_torch.fullmatch(wheel.package)
        # The name of a file may say any platform, and have libraries for one.
        if (is_for_any or is_answered_for) and wheel.package not in self.requested:
            return None
        try:
            if not is_for_any or self.index.reader.may_have_code(wheel):
                return self._read(wheel, Depth.WHOLE, frozenset(self.index.builds))
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self.index.session.reporter.warn(message)
        return None

    def _read(
        self,
        wheel: Wheel,
        deepest: Depth,
        builds: frozenset[str],
    ) -> WheelReading:
        """Read a wheel until it is judged, or its tables tell that it runs beside none of some builds.

        Args:
            wheel: The wheel.
            deepest: How much of it may be read.
            builds: The builds that count, by the versions that stand for them.

        Raises:
            InstallationError: if it cannot be read.
        """
        if not self._decides(wheel.package):
            deepest = Depth.METADATA
        elif self.has_fallback(wheel.package):
            # What refuses nothing is read in part: that is enough for a warning.
            deepest = min(deepest, Depth.PART)
        for depth in Depth:
            reading = self._read_to(wheel, depth)
            is_settled = all(one.is_settled for _, one in reading.rows.values())
            is_ruled_out = depth >= Depth.TABLES and not reading.serves(builds)
            is_ruled_out &= not is_tied_by_name_alone(reading.row)
            if depth == deepest or is_settled or is_ruled_out:
                break
        return reading

    def _read_to(self, wheel: Wheel, depth: Depth) -> WheelReading:
        """Read a wheel to a depth and judge it beside every build."""
        rows = self._rows_beside(wheel, depth)
        reasons = {
            version: misfit_beside(*rows[version], build, self._versions)
            for version, build in self.index.builds.items()
        }
        [(row, judgement), *_] = rows.values()
        stated = requirements_of_metadata(row.requires)
        required = [*filter(self._problem.counts, stated)]
        allowed = self._allowed(required)
        reading = WheelReading(wheel, rows, reasons, allowed)
        opened = missing_libraries(row, self._versions)
        names_torch = any(one.name == "torch" for one in required)
        is_alone = not row.torch.is_linked and not names_torch
        is_let_be = bool(opened) or (is_alone and self._is_of_older_cuda(reading))
        if is_let_be and not judgement.excluded and not reading.running:
            # With no torch of its CUDA, it brings what it opens; what it is linked to the system has to have.
            return reading._replace(
                reasons=dict.fromkeys(reasons),
                requires=tuple(opened),
                why=next(filter(None, reasons.values())),
            )
        requires = left_out(row, self._linked)
        why = "is linked to what its METADATA leaves out" if requires else None
        return reading._replace(requires=requires, why=why)

    def _rows_beside(self, wheel: Wheel, depth: Depth) -> _Rows:
        """Return what a wheel says to a depth, and what that means, beside each build."""
        rows: _Rows = {}
        by_backend: _Rows = {}
        has_runtimes_apart = load_members().has_runtimes_apart(wheel.package)
        for version, build in self.index.builds.items():
            # But for what has a library for each CUDA, it says the same beside all.
            key = build.backend.tag if has_runtimes_apart else ""
            if key not in by_backend:
                row = self.index.row(wheel, build, depth)
                row = self._as_needed(row)
                by_backend[key] = row, judge_reading(row, self._problem.gpus)
            rows[version] = by_backend[key]
        return rows

    def _as_needed(self, row: LearnedRow) -> LearnedRow:
        """Return of a dependency only the code of those libraries that others are linked to, if it has them."""
        if row.package in self.requested:
            return row
        needed = [code for code in row.codes if basename(code.library) in self._needed]
        if not needed:
            return row
        return replace(row, codes=tuple(needed))

    def _allowed(self, requirements: Iterable[Requirement]) -> frozenset[str]:
        """Return the builds of torch that requirements of METADATA allow."""
        required = [one for one in requirements if one.name == "torch"]
        return frozenset(
            version
            for version, build in self.index.builds.items()
            if all(one.allows(build.torch) for one in required)
        )

    # Older versions.

    def _learn_of_older(self, newest: WheelReading) -> None:
        """Learn beside which builds the older versions of a package run, from the newest down to one that is known to run.

        The beginning of the code decides first. Only if a version is known to run, the newer versions that may run are
        read whole. No version is taken that is not known to run.
        """
        package = newest.wheel.package
        releases = self.index.releases(package).items()
        older = [wheel for version, wheel in releases if version < newest.wheel.version]
        try_version = partial(self._try, needs_libraries=newest.row.system == "windows")
        unknown: list[Trial] = []
        is_known = False
        for trial in self._trials(older, try_version):
            if trial.runs is Runs.UNKNOWN:
                unknown.append(trial)
                continue
            self._learn(trial.fact)
            if trial.runs is Runs.YES:
                is_known = True
                break
        for trial in unknown:
            last = trial
            if is_known and not self.index.reader.is_spent:
                last = try_version(trial.wheel, deepest=Depth.WHOLE)
            self._learn(last.fact)
            if last.runs is Runs.YES:
                return
        if not is_known:
            self._exclude_early(package)

    def _trials(
        self,
        wheels: Sequence[Wheel],
        try_version: Callable[[Wheel], Trial],
    ) -> Iterator[Trial]:
        """Yield the trial of each version; they are read side by side, for most of the time is the way to an index and back.

        First one version alone, then twice as many each time: what is read beyond the first that runs is read in vain.
        Of large versions fewer are read at once.
        """
        at_once = 1
        while wheels and not self.index.reader.is_spent:
            before = self.index.reader.bytes_read
            yield from side_by_side(try_version, wheels[:at_once])
            wheels = wheels[at_once:]
            size = (self.index.reader.bytes_read - before) // at_once
            ahead = AHEAD // max(1, size)
            at_once = max(1, min(2 * at_once, AT_ONCE, ahead))
        for wheel in wheels:
            why = "as much was read as is read for one lock"
            yield _passed_over(wheel, Runs.UNKNOWN, why)

    def _try(
        self,
        wheel: Wheel,
        deepest: Depth = Depth.PART,
        *,
        needs_libraries: bool,
    ) -> Trial:
        """Read an older version.

        Args:
            wheel: Its wheel.
            deepest: How much of it is read at most.
            needs_libraries: Whether a version without libraries is only a placeholder, whatever its name says.
        """
        # A dependency has to run beside the torch that uv came to; what is requested may run beside another.
        builds = frozenset([self._torch])
        if wheel.package in self.requested:
            builds = frozenset(self.index.builds)
        try:
            reading = self._read(wheel, deepest, builds)
        except InstallationError as error:
            return _passed_over(wheel, Runs.UNKNOWN, error.message)
        fact = reading.fact(self._torch)
        if not reading.serves(builds):
            return Trial(wheel, Runs.NO, fact)
        needs_libraries |= all(tag.platform != "any" for tag in wheel.tags)
        # Nor does it compile anything with what another package has (mslk-cuda 0.0.0 has no file but METADATA).
        needs_libraries |= not reading.row.requires
        for row, judgement in reading.rows.values():
            if not self._decides(wheel.package) or judgement.excluded:
                continue
            if row.system is None and needs_libraries:
                # What should have libraries and has none is a placeholder.
                return _passed_over(wheel, Runs.NO, "it has no library")
            # Of some the maker states what their files do not tell (warp-lang 1.17.0).
            is_told = row.codes or row.package in load_members().stated
            if not row.is_whole and (judgement.doubt or not is_told):
                return _passed_over(wheel, Runs.UNKNOWN, "only a part of it was read")
        return Trial(wheel, Runs.YES, fact)

    def _exclude_early(self, package: str) -> None:
        """Exclude the pre-releases of a package of which no release runs: uv would take one, and nobody requested it."""
        for limit in self.index.limits(package):
            if limit.specifier and limit.specifier.prereleases:
                return
        for wheel in self.index.wheels_of(package):
            if wheel.version.is_prerelease:
                self._learn(Fact(package, str(wheel.version), builds=frozenset()))


def _passed_over(wheel: Wheel, runs: Runs, why: str) -> Trial:
    """Return a trial after which a version is not taken, although nothing that was read speaks against it."""
    version = str(wheel.version)
    message = f"{wheel.package} {version} was passed over: {why}"
    unread = why if runs is Runs.UNKNOWN else ""
    fact = Fact(wheel.package, version, message, frozenset(), unread=unread)
    return Trial(wheel, runs, fact)


def left_out(row: LearnedRow, linked: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that a wheel is linked to and its METADATA leaves out, of those that other versions of it require.

    Args:
        row: What the wheel said.
        linked: What wheels of it and of others require that they are linked to, each for some CUDA.
    """
    names = {name_for_cuda(one, 0) for one in linked}
    packages = {one for one in packages_apart(row) if name_for_cuda(one, 0) in names}
    if packages:
        packages -= names_of(requirements_of_metadata(row.requires))
    # A set has another order in each run, and uv is told the same in every one.
    return tuple(sorted(packages))
