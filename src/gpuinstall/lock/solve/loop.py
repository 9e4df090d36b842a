"""The loop: uv solves, the wheels that decide are read, what they say goes back to uv, until nothing new is told.

uv is given every build of torch that runs, and three kinds of packages of ours, which leave the lock:

- ``gpuinstall-build`` has a version for each build, the best the highest, and pins torch to it. What runs beside some
  builds alone excludes the other versions.
- ``gpuinstall-code`` has no version: what does not run requires it.
- ``gpuinstall-pin-NAME`` has two: 1 keeps a pin, 0 lets it give way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any

from packaging.version import Version

from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.request import ANY_TORCH
from gpuinstall.base.requirement import (
    Constraint,
    Requirement,
    lenient_requirement,
)
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import COMPANIONS, DEFAULT_INDEX, PAIRED, Build, Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.catalog.pages import PageFile, wheels_of
from gpuinstall.lock.request.project import nested_requirements
from gpuinstall.lock.solve.extensions import choose_prebuilt, extension_row
from gpuinstall.lock.solve.facts import Fact, Judge
from gpuinstall.lock.solve.package_index import PackageIndex
from gpuinstall.lock.solve.problem import Problem, public
from gpuinstall.lock.uv.builds import SDIST, Packages, build_tools, source_builds
from gpuinstall.lock.uv.errors import (
    BUILD_FAILED,
    FAMILY_UNLISTED,
    Conflict,
    failed_package,
)
from gpuinstall.lock.uv.project import (
    MISSING_EXTRAS,
    Pages,
    ResolverProject,
    metadata_row,
    placeholder_wheel,
    versions_in,
)
from gpuinstall.lock.uv.resolution import check_addresses, locked_files
from gpuinstall.sources.session import Session
from gpuinstall.wheels.members import load_members

BUILD = "gpuinstall-build"
_BUILD = Requirement(BUILD, BUILD)
"""A package that is made up for uv: each version requires one torch, and a program rules out torches by its versions."""

NOWHERE = "gpuinstall-code"
"""One that has no version: what requires it is never taken."""

PIN = "gpuinstall-pin-"
"""One for each pin that may give way: version 1 requires what it says, version 0 the package alone."""

TURNS = 12
"""How often what was read is told to uv, for one question; each turn reads a new file."""

RUNS = 6
"""After how many runs of uv nothing newer is looked for any more."""


class Answer(Value):
    """What uv came to."""

    packages: Packages
    """Those of its own lock, without ours."""

    missing_extras: Sequence[tuple[str, str, str]]
    """What it says of extras: packages with versions, and the names."""

    build: Build
    torch: str
    """The version of torch that stands for the build."""

    given_way: frozenset[str]
    """The packages whose pins gave way."""

    @property
    def versions(self) -> dict[str, str]:
        """The version of each package that has one."""
        return versions_in(self.packages)

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """Its files that are wheels."""
        files = locked_files(self.packages)
        links = [PageFile(file.url, file.name, file.sha256) for file in files]
        return wheels_of(links, None, DEFAULT_INDEX)


class Loop:
    """The questions of one problem, and what is known for it."""

    def __init__(self, problem: Problem, session: Session) -> None:
        self.problem = problem
        self.session = session
        self.index = PackageIndex(problem, session)
        self.judge = Judge(self.index)
        self.accounts: dict[str, str] = {}
        """uv's account of why a program cannot be newer."""
        self._runs = 0
        self.prebuilt = dict(problem.files)
        """The file of each extension, also of those that nobody requested."""
        nested = nested_requirements(problem.requirements, session.folder)
        self._added = dict.fromkeys(nested)
        """What a lock has to have: what projects in folders require by their paths, and what nothing in it requires."""
        self._unbuildable = set[str]()
        """Packages with a failed build that uv alone would not have made."""
        self._beside_torch: dict[Version, list[str]] = defaultdict(list)
        """What releases of torch need beside them and their METADATA leaves out."""
        # Before any request: what an index has of that name may run its code when it is resolved.
        markers = problem.target.environment(problem.python)
        counting = [one for one in problem.requirements if one.counts(markers)]
        by_name = {one.name: () for one in counting if not one.url}
        check_addresses(by_name, session.sources)

    def run(self) -> Answer | Conflict:
        """Return the answer in which nothing is wrong, and of what was requested the newest.

        Raises:
            InstallationError: if uv fails for another reason than what is requested.
        """
        answer = self.settle(self.problem.requirements)
        if isinstance(answer, Conflict):
            return answer
        return self._improved(answer)

    def pages(self, chosen: Build | None = None) -> Pages:
        """Return the files that each name may come from, if that is not the default index; beside a build, if it is chosen."""
        family = self.index.pages_beside(chosen) if chosen else self.index.pages
        return {**self.index.pages_of_sources, **family, **self.prebuilt}

    # One question.

    def settle(
        self, requirements: Sequence[Requirement], *bounds: Constraint
    ) -> Answer | Conflict:
        """Ask until nothing new is told about what uv comes to.

        Args:
            requirements: The request, in one order.
            bounds: Further constraints.
        """
        for _ in range(TURNS):
            answer = self._ask(requirements, *bounds)
            if isinstance(answer, Conflict):
                # What was to come first is required then, and not every version of a program needs it.
                if self.judge.let_torch_come_first():
                    continue
                return answer
            if not self._learn(answer):
                return answer
        message = "no versions that go together were found: too many of them need another CUDA or have no code"
        return Conflict(
            NoBuildError(
                "search-ended",
                message,
                hint="Request versions that are known to go together",
            )
        )

    def ask_plainly(self) -> Mapping[str, Any] | Conflict:
        """Have uv resolve the request without what we know, so that its account has its own words alone."""
        requirements = self.problem.requirements

        def plain() -> ResolverProject:
            return replace(
                self._project(requirements),
                requirements=(*requirements, ANY_TORCH),
                metadata=self.problem.near.metadata,
                wheels_only=self._wheels_only,
            )

        return self.index.resolve(plain)

    def _learn(self, answer: Answer) -> bool:
        """Learn what is wrong with an answer; return whether that is new."""
        # A folder or a repository that the user names is their own, whatever its name says.
        built = [
            build.package
            for build in source_builds(answer.packages)
            if build.origin == SDIST
        ]
        is_new = self.judge.learn_from(answer.wheels, answer.versions, built)
        torch = answer.build.torch
        known = self._beside_torch[torch]
        for constraint in self.problem.catalog.constraints(torch):
            text = constraint.text
            version = answer.versions.get(constraint.name)
            # The user may override it.
            if version and not constraint.allows(version) and text not in known:
                known.append(text)
                is_new = True
        if is_new or self._take_prebuilt(built, answer.build):
            return True
        before = len(self._added)
        undeclared = self.problem.catalog.undeclared(answer.versions)
        further = (*build_tools(answer.packages), *undeclared)
        self._added.update(dict.fromkeys(map(Requirement.of, further)))
        return len(self._added) > before

    def _take_prebuilt(self, names: Iterable[str], build: Build) -> bool:
        """Take prebuilt files of those of some packages that are extensions; return whether one is new.

        Args:
            names: What others require and would be compiled.
            build: The torch beside it.
        """
        before = len(self.prebuilt)
        beside = self.problem.with_builds([build])
        for name in sorted(load_extensions().rows.keys() & names):
            row = extension_row(name, self.session)
            requirement = Requirement.of(name)
            fit = choose_prebuilt(row, beside, self.session, requirement).fit
            if fit:
                self.prebuilt[name] = (fit.wheel,)
        return len(self.prebuilt) > before

    def _ask(
        self, requirements: Sequence[Requirement], *bounds: Constraint
    ) -> Answer | Conflict:
        """Have uv resolve requirements with what is known."""
        self._runs += 1
        project = partial(self._project, requirements, *bounds)
        try:
            document = self.index.resolve(project)
        except InstallationError as error:
            is_constrained = any(self._beside_torch.values())
            is_steered = self.judge.facts or is_constrained or bounds
            if error.code != BUILD_FAILED or not is_steered:
                raise
            # uv builds what old versions require, to see what that requires.
            name = failed_package(error)
            if name in {"", *self._unbuildable}:
                return Conflict(error)
            self._unbuildable.add(name)
            return self._ask(requirements, *bounds)
        if isinstance(document, Conflict):
            return document
        return self._answer(document)

    def _answer(self, document: Mapping[str, Any]) -> Answer:
        """Return what uv came to, with our packages taken out."""
        packages = []
        given_way = set()
        torch = ""
        for package in document["packages"]:
            name = package["name"]
            if name == BUILD:
                torch = self._ranked[int(package["version"])]
            elif name.startswith(PIN):
                if package["version"] == "0":
                    given_way.add(name.removeprefix(PIN))
            else:
                packages.append(package)
        return Answer(
            packages,
            document[MISSING_EXTRAS],
            self.index.builds[torch],
            torch,
            frozenset(given_way),
        )

    @cached_property
    def _ranked(self) -> list[str]:
        """The torch of each version of gpuinstall-build, which are 0, 1, …: uv takes that of the best first."""
        builds = list(self.index.builds)
        if not self.session.sources.takes_lowest:
            builds.reverse()
        return builds

    def _project(
        self, request: Sequence[Requirement], *bounds: Constraint
    ) -> ResolverProject:
        problem, session = self.problem, self.session
        yielding = {
            pin.text: Requirement.of(f"{PIN}{pin.name}")
            for pin in problem.near.yielding
        }
        requirements = [yielding.get(one.text, one) for one in request]
        # A pin that was a constraint is one of what turns up.
        requirements += [name for name in yielding.values() if name not in requirements]
        requirements += self._added
        if session.sources.takes_lowest:
            # Torch has its best version: it is decided before what has the lowest.
            requirements.insert(0, _BUILD)
        else:
            requirements.append(_BUILD)
            # Only an old torch, or one of another CUDA, goes with the newest of what a torch pins.
            requirements.sort(key=self._comes_with_torch)
            of_torch = map(self._decides_torch, requirements)
            place = [*of_torch].index(True)
            first = map(Requirement.of, self.judge.before_torch)
            requirements[place:place] = first
        # What does not run in one version is not built in another, whose code nobody has read.
        facts = self.judge.facts.values()
        excluded = {fact.package for fact in facts if fact.excludes or fact.requires}
        return ResolverProject(
            requirements=tuple(requirements),
            python=problem.python,
            target=problem.target,
            pages={**self.pages(), **self._own_pages()},
            constraints=(*self._constraints(), *bounds),
            preferred=self._preferred(),
            metadata=(*problem.near.metadata, *self._rows()),
            folder=session.folder,
            wheels_only=self._wheels_only | excluded,
            sources=session.sources,
            unread=self.index.unread - self.prebuilt.keys(),
        )

    @property
    def _wheels_only(self) -> frozenset[str]:
        """The packages that are built in no version, whatever is known of them."""
        extensions = load_extensions().unclaimed
        index = self.index
        names = index.names.union(index.unread, extensions, self.problem.files)
        by_request = self.session.sources.only_binary - {":all:"}
        return names | by_request | self._unbuildable

    def _decides_torch(self, requirement: Requirement) -> bool:
        """Whether a requirement is of the family, or ties torch to a build."""
        return requirement.name in {BUILD, *self.index.names}

    def _comes_with_torch(self, requirement: Requirement) -> bool:
        """Whether a requirement is of what torch's own build brings."""
        name = requirement.name
        return name not in PAIRED and bool(load_members().with_torch.fullmatch(name))

    def _constraints(self) -> Iterator[Constraint]:
        yielding = {pin.text for pin in self.problem.near.yielding}
        for constraint in self.problem.constraints:
            if constraint.text not in yielding:
                yield constraint
        if "torch" not in self.index.pages:
            # The default index lists those too that do not run.
            torches = self.problem.torches
            others = {build.torch for build in self.problem.catalog.builds} - torches
            excluded = [f"!={torch}" for torch in sorted(others)]
            limits = [f">={min(torches)}", f"<={max(torches)}", *excluded]
            yield Constraint.of("torch", ",".join(limits))

    def _preferred(self) -> dict[str, list[str]]:
        """Return the versions that come first: those that stay, and of the others the best label of each."""
        # A label that does not go with what uv came to would not be taken, and the highest in its place.
        running = {
            version: build
            for version, build in self.index.builds.items()
            if not self.judge.speaks_against(version)
        }
        labels = self.index.preferred_labels(running)
        stays = self.problem.near.versions
        preferred = {name: [version] for name, version in stays.items()}
        # A label of another machine's lock is none that could stay.
        preferred |= {
            name: versions
            for name, versions in labels.items()
            if stays.get(name) not in versions
        }
        torch = stays.get("torch", "")
        if torch in self._ranked and preferred["torch"] == [torch]:
            preferred[BUILD] = [str(self._ranked.index(torch))]
        return preferred

    def _own_pages(self) -> dict[str, tuple[Wheel, ...]]:
        numbers = range(len(self._ranked))
        builds = tuple(placeholder_wheel(BUILD, number) for number in numbers)
        pages = {BUILD: builds, NOWHERE: ()}
        for pin in self.problem.near.yielding:
            name = f"{PIN}{pin.name}"
            pages[name] = (placeholder_wheel(name, 0), placeholder_wheel(name, 1))
        return pages

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yield what stands in place of METADATA: of our packages, and of every version of which there is a fact."""
        for number, version in enumerate(self._ranked):
            further = self._beside_torch[self.index.builds[version].torch]
            yield metadata_row(BUILD, str(number), [f"torch==={version}", *further])
        yielding = self.problem.near.yielding
        for pin in yielding:
            # Of two rows uv takes the first: it has every pin of the package.
            texts = [one.text for one in yielding if one.name == pin.name]
            yield metadata_row(f"{PIN}{pin.name}", "1", texts)
            yield metadata_row(f"{PIN}{pin.name}", "0", [pin.with_specifier("").text])
        for fact in self.judge.facts.values():
            if fact.excludes:
                yield metadata_row(fact.package, fact.version, [NOWHERE])
            elif fact.wheel:
                needs = list(fact.requires)
                unsuitable = [
                    f"!={number}"
                    for number, version in enumerate(self._ranked)
                    if fact.speaks_against(version)
                ]
                needs.append(f"{BUILD}{','.join(unsuitable)}")
                yield self._told(fact, fact.wheel, needs)

    def _told(
        self,
        fact: Fact,
        wheel: Wheel,
        further: Sequence[str],
    ) -> dict[str, Any]:
        """Return METADATA of a version with what it leaves out.

        Args:
            fact: What is known of the version.
            wheel: A wheel of it.
            further: The requirements that METADATA leaves out.
        """
        for told in self.session.sources.metadata:
            # The user says what METADATA of it should.
            if told["name"] == fact.package and told.get("version") == fact.version:
                return {
                    **told,
                    "requires-dist": [*told.get("requires-dist", ()), *further],
                }
        metadata = self.index.reader.metadata(wheel)
        own = [
            lenient_requirement(str(text))
            for text in metadata.get_all("Requires-Dist", ())
        ]
        row = metadata_row(fact.package, fact.version, [*filter(None, own), *further])
        row["provides-extra"] = list(map(str, metadata.get_all("Provides-Extra", ())))
        python = metadata.get("Requires-Python")
        return {**row, "requires-python": str(python)} if python else row

    # What is newer.

    def _improved(self, answer: Answer) -> Answer | Conflict:
        """Return an answer in which something requested is newer and nothing older, if there is one.

        First the family comes last, then each program that is not at its newest has to be. A mirror that lists torch
        and nothing that goes with it is a conflict: the programs that it leaves are years old.
        """
        if not self._behind(answer):
            return answer

        written = self.problem.requirements
        family_last = tuple(sorted(written, key=self._decides_torch))
        if family_last != written:
            answer = self._better(answer, self.settle(family_last))
        for name, newest in self._behind(answer).items():
            if self._runs >= RUNS:
                break
            # A newer one may have nothing that the others go with.
            newer = self.settle(written, Constraint.of(name, f">={newest}"))
            if isinstance(newer, Conflict):
                self.index.read(COMPANIONS)
                has_companions = any(map(self.index.pages.get, COMPANIONS))
                if newer.error.code == FAMILY_UNLISTED and not has_companions:
                    return newer
                self.accounts[name] = newer.why
            else:
                answer = self._better(answer, newer)
        return answer

    def _behind(self, answer: Answer) -> dict[str, Version]:
        """Return the programs that are not at the newest version that nothing known excludes.

        What a program that is at its own newest requires cannot be better, nor what it pins requires in turn; so with torch.
        """
        behind = {}
        settled = []
        for name in self.index.newest_releases:
            version = answer.versions.get(name)
            listed = self.index.newest_releases[name]
            if not version or not listed or name in self.problem.near.versions:
                continue
            newest = self.judge.newest(name) if listed > public(version) else None
            if newest and newest > public(version):
                behind[name] = newest
            else:
                settled.append(name)
        if answer.build.torch == max(self.problem.torches):
            settled.append("torch")
        wheels = {wheel.package: wheel for wheel in answer.wheels}
        while behind and settled:
            wheel = wheels.pop(settled.pop(), None)
            for requirement in self.index.metadata_requirements(wheel) if wheel else ():
                newest = behind.get(requirement.name)
                if newest and not requirement.allows(newest):
                    del behind[requirement.name]
                if requirement.is_exact and requirement.name not in self.index.names:
                    settled.append(requirement.name)
        return behind

    def _better(self, first: Answer, second: Answer | Conflict) -> Answer:
        """Return the better of two answers: the one in which nothing requested is older and something newer.

        If each has something newer, the first; or if facts have led to it, the one whose oldest requested release is
        the younger, of those that differ.
        """
        if isinstance(second, Conflict):
            return first
        older = newer = False
        different = []
        for name in self.index.newest_releases:
            before, after = first.versions.get(name), second.versions.get(name)
            if not before or not after or name in self.problem.near.versions:
                older |= bool(before) and not after
                continue
            if Version(after).is_prerelease and not Version(before).is_prerelease:
                return first
            older |= public(after) < public(before)
            newer |= public(after) > public(before)
            if after != before:
                different.append(name)
        facts = {package for package, _ in self.judge.facts}
        if older and newer and not facts.isdisjoint(self.index.newest_releases):
            day = partial(self._oldest_day, names=different)
            older = day(second) <= day(first)
        return second if newer and not older else first

    def _oldest_day(self, answer: Answer, names: Iterable[str]) -> str:
        """Return the day on which the oldest of the releases of some packages came out."""
        versions = answer.versions
        days = [self.index.release_day(name, versions[name]) for name in names]
        return min(filter(None, days), default="")
