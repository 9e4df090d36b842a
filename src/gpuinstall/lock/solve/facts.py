"""What METADATA does not say: which builds of torch a version of a package runs beside, as its wheel tells.

What was requested, what the catalogue calls the core of programs, and what these are linked to, is read as far as it
takes (``wheels.inspector``). Of another dependency the CUDA major alone counts, by its name and METADATA, so that nobody
waits for its wheel. What is certain becomes a fact, what is unknown warns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.requirement import (
    Requirement,
)
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import Value
from gpuinstall.catalog import COMPANIONS, PAIRED, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.file.target import best_by_tags
from gpuinstall.lock.solve.package_index import PackageIndex
from gpuinstall.plan.companions import Companions
from gpuinstall.wheels.compatibility import (
    Compatibility,
    gpu_verdict,
    loads_with,
    missing_compiled_code,
    needs_older_cuda,
)
from gpuinstall.wheels.inspector import (
    Context,
    Inspector,
    deepest_for,
    is_required_by_torch,
)
from gpuinstall.wheels.learned.row import Depth, LearnedRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import comes_apart, name_cuda

AT_ONCE = 8
"""How many older versions of a package are read side by side at most."""

AHEAD = 8 << 20
"""How many bytes of older versions may be read in vain, since one that was read beside them runs."""

LOOKED_AT = 24
"""Of how many versions of a program that is behind METADATA is read, the newest first."""

WHEELS_AT_ONCE = 32
"""How many wheels of a lock are looked at side by side: of nearly all of them METADATA alone, a way to an index and back."""


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


def fact_of(found: Compatibility, torch: str) -> Fact | None:
    """Return what METADATA of a wheel does not declare, if anything.

    Args:
        found: The compatibility of the wheel.
        torch: The selected build.
    """
    running = found.running
    runs_everywhere = len(running) == len(found.verdicts)
    is_declared = runs_everywhere or (found.allowed and found.allowed <= running)
    if is_declared and not found.adds:
        return None
    if found.allowed and running.isdisjoint(found.allowed):
        running = frozenset()
    why = found.reason(torch) or found.why_adds
    version = str(found.wheel.version)
    return Fact(
        found.wheel.package,
        version,
        f"{found.wheel.package} {version} {why.message if why else None}",
        None if runs_everywhere else running,
        found.adds,
        found.wheel,
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
        self.readings: dict[Wheel, Compatibility] = {}
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
        # A lock for the CPU has nothing to judge, nor one of what torch's own build answers for.
        is_for_cpu = not self._problem.gpus and all(
            build.backend.kind != "cuda" for build in self._problem.builds
        )
        answered = {"torch"} if self._problem.builds[0].learned else PAIRED
        self._is_idle = is_for_cpu or self._problem.requested <= answered
        self._inspector = Inspector(
            index.builds, self._problem.gpus, self._problem.counts
        )

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
            if self._inspector.allowed(
                self.index.metadata_requirements(wheels[version])
            ):
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
        of_torch = [
            requirement
            for wheel in wheels
            if wheel.package == "torch"
            for requirement in self.index.metadata_requirements(wheel)
        ]
        new = [
            wheel
            for wheel in deciding
            if wheel not in self.readings and not is_required_by_torch(wheel, of_torch)
        ]
        readings = side_by_side(self._look, new, WHEELS_AT_ONCE)
        for reading in filter(None, readings):
            self.readings[reading.wheel] = reading
            fact = fact_of(reading, self._torch)
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
        for wheel in deciding:
            self._linked.update(self._linked_to(wheel))

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
        why = gpu_verdict(row, self._problem.gpus).rejection
        if why:
            message = f"{package} {version} {why.message}"
            self._learn(Fact(package, version, message, frozenset()))

    def _linked_to(self, wheel: Wheel) -> Iterator[str]:
        """Yield the CUDA dependencies of a wheel that links to others."""
        reading = self.readings.get(wheel)
        if reading is None or not any(map(comes_apart, reading.row.needs)):
            return
        added = map(Requirement.of, reading.adds)
        for requirement in (*reading.row.requirements(), *added):
            if name_cuda(requirement.name) and self._problem.counts(requirement):
                yield requirement.name

    def let_torch_come_first(self) -> bool:
        """Have torch decided before all dependencies again, for good; return whether it was not."""
        changes = bool(self.before_torch)
        self._came_first.update(self.before_torch)
        self.before_torch.clear()
        return changes

    def _may_come_first(self, reading: Compatibility) -> bool:
        """Whether a wheel is built with an older CUDA than torch's, nothing else speaks against it, and it never came first."""
        package = reading.wheel.package
        if package in self._came_first or package in self.before_torch:
            return False
        build = self.index.builds[self._torch]
        row = reading.verdicts[self._torch].row
        return loads_with(row.torch, build) is not False and needs_older_cuda(
            row, build
        )

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

    def _deepest_for(self, package: str) -> Depth:
        """Return how much of a package may be read."""
        is_requested = package in self._problem.requested
        deepest = deepest_for(package, is_requested=is_requested)
        # A part is enough for a warning.
        if self.has_fallback(package):
            return min(deepest, Depth.PART)
        return deepest

    def _look(self, wheel: Wheel) -> Compatibility | None:
        """Return what a wheel says; None if it has no code of its own, or cannot be read."""
        members = load_members()
        if members.for_cpu_alone.fullmatch(wheel.package):
            return None
        is_for_any = all(tag.platform == "any" for tag in wheel.tags)
        is_answered_for = bool(members.with_torch.fullmatch(wheel.package))
        is_answered_for &= members.lowest_chip(wheel.package, wheel.version) is None
        # The name of a file may say any platform, and have libraries for one.
        if (is_for_any or is_answered_for) and wheel.package not in self.requested:
            return None
        try:
            if not is_for_any or self.index.reader.may_have_code(wheel):
                return self._read(wheel, Depth.WHOLE)
        except InstallationError as error:
            package = f"{wheel.package} {wheel.version}"
            message = f"could not read whether {package} has code for these GPUs: {error.message}"
            self.index.session.reporter.warn(message)
        return None

    def _read(
        self, wheel: Wheel, deepest: Depth, builds: frozenset[str] = frozenset()
    ) -> Compatibility:
        """Read a wheel until it is certain whether it runs."""
        return self._inspector.inspect(
            wheel,
            partial(self.index.reader.readings, wheel),
            Context(self._versions, builds, self._linked),
            min(deepest, self._deepest_for(wheel.package)),
        )

    # Older versions.

    def _learn_of_older(self, newest: Compatibility) -> None:
        """Learn beside which builds the older versions of a package run, from the newest down to one that is known to run.

        The beginning of the code decides first. Only if a version is known to run, the newer versions that may run are
        read whole. No version is taken that is not known to run.
        """
        package = newest.wheel.package
        releases = self.index.releases(package).items()
        older = [wheel for version, wheel in releases if version < newest.wheel.version]
        try_version = partial(self._try, newest=newest)
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
        newest: Compatibility,
    ) -> Trial:
        """Read an older version.

        Args:
            wheel: Its wheel.
            deepest: How much of it is read at most.
            newest: The newest version, which does not run.
        """
        # A dependency has to run beside the torch that uv came to; what is requested may run beside another.
        builds = frozenset([self._torch])
        if wheel.package in self.requested:
            builds = frozenset(self.index.builds)
        try:
            found = self._read(wheel, deepest, builds)
        except InstallationError as error:
            return _passed_over(wheel, Runs.UNKNOWN, error.message)
        fact = fact_of(found, self._torch)
        if not found.runs_with(builds):
            return Trial(wheel, Runs.NO, fact)
        if found.unusable or not self._deepest_for(wheel.package):
            return Trial(wheel, Runs.YES, fact)
        why = missing_compiled_code(found, newest)
        if why:
            return _passed_over(wheel, Runs.NO, why.message)
        for row, _, warning in found.verdicts.values():
            # Of some the maker states what their files do not tell (warp-lang 1.17.0).
            is_told = row.codes or row.package in load_members().stated
            if not row.is_whole and (warning or not is_told):
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
