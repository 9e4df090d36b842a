"""What is said of an answer: which fact or package kept something from its newest version, and what goes badly together.

It is known from facts and METADATA; of uv's account nothing is decided.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import InstallationError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import replace
from gpuinstall.base.versions import numbers
from gpuinstall.catalog import COMPANIONS, Wheel
from gpuinstall.lock.file.target import glibc_needed
from gpuinstall.lock.solve.facts import WHEELS_AT_ONCE, Fact
from gpuinstall.lock.solve.loop import Answer, Loop
from gpuinstall.lock.solve.problem import newest_for
from gpuinstall.lock.uv.project import OWN_PACKAGES
from gpuinstall.plan.values import ProgramConstraints
from gpuinstall.wheels.compatibility import missing_libraries, unsupported_ptx
from gpuinstall.wheels.learned.row import LearnedRow
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import is_of_a_package, name_for_cuda

NO_CODE = "no-code-in-package"
PART = "part-without-code"
"""The code of what does not run and excludes nothing: what has a fallback, or was read in part."""

_LONGEST = 240
_PREAMBLE = "No solution found when resolving dependencies; "


class Obstacle(NamedTuple):
    """Reason against a newer version of a package."""

    why: str
    limited_by: str = ""
    """The packages or constraints that exclude it, if known."""


class Remarks:
    """What is said of one answer."""

    def __init__(self, answer: Answer, loop: Loop) -> None:
        self._answer = answer
        self._loop = loop
        self._index = loop.index
        self._problem = loop.problem
        self._versions = answer.versions
        self._facts = loop.judge.facts.values()
        known = map(loop.judge.facts.get, self._versions.items())
        self._facts_here = [*filter(None, known)]
        """Those of the versions of the answer."""
        self._required: dict[Wheel, list[Requirement]] = {}
        """What was read of METADATA."""

    def constraints(self) -> ProgramConstraints:
        """Return what the programs came to, as the plan tells it."""
        chosen = self._answer.build
        unserved = {}
        for version, build in self._index.builds.items():
            if build == chosen:
                break
            if build.torch == chosen.torch:
                conflict = "the other packages do not go with it"
                fact = self._fact_against([version])
                unserved[build.backend.tag] = fact.why if fact else conflict
        obstacle, without = self._why_torch()
        return ProgramConstraints(
            chosen.torch,
            obstacle.why,
            without,
            unserved,
            tuple(self.held_back()),
            obstacle.limited_by,
        )

    def _why_torch(self) -> tuple[Obstacle, Version]:
        """Return the obstacle to a newer torch, and that torch."""
        problem = self._problem
        torch = self._answer.build.torch
        runnable = {build.torch for build in problem.wanted.plan.runnable}
        newer = sorted(one for one in runnable if one > torch)
        if not newer:
            return Obstacle(""), torch
        if torch == problem.common:
            why = newest_for(problem.holder, torch)
            return Obstacle(why, problem.holder), newer[-1]
        near_torch = problem.near.versions.get("torch", "")
        if near_torch.partition("+")[0] == str(torch):
            return Obstacle("", f"the locked torch {torch}"), newer[-1]
        next_why = self._why_not("torch", newer[0]).why
        # What excludes the newest alone is not what the next one waits for.
        for one in reversed(newer):
            obstacle = self._why_not("torch", one)
            as_of_next = obstacle.why.replace(f"torch {one} ", f"torch {newer[0]} ")
            if as_of_next == next_why or not next_why:
                break
        return obstacle, one

    def _fact_against(self, torches: Sequence[str]) -> Fact | None:
        """Return the fact that excludes some builds of torch, if any."""
        for fact in self._facts_here:
            if all(map(fact.speaks_against, torches)):
                return fact
        return None

    def held_back(self) -> Iterator[str]:
        """Yield, for each requested package that is not at its newest for another reason than a fact of itself, that reason."""
        told = {fact.package for fact in self._facts if self._is_older(fact)}
        newest_versions = {**self._index.newest_releases}
        # What goes with a torch that was relaxed is said with it.
        if not self._problem.wanted.request.relax:
            newest_versions |= self._index.newest_companions(self._answer.build)
        for name, newest in newest_versions.items():
            version = self._versions.get(name, "").partition("+")[0]
            if not version or newest is None or name in told:
                continue
            if newest > Version(version):
                why = self._why_not(name, newest).why
                account = self._loop.accounts.get(name, "")
                if not why and OWN_PACKAGES not in account:
                    why = shortened(account)
                if not why and name in COMPANIONS:
                    why = f"it goes with torch {self._answer.build.torch}"
                sentence = f"{name} is {version} instead of {newest}"
                yield f"{sentence}: {why}" if why else sentence

    def _why_not(self, name: str, newest: Version) -> Obstacle:
        """Return the obstacle to the latest version of a package."""
        requested = [one.name for one in self._problem.programs]
        programs = []
        others = []
        following = []
        fact = None
        for wheel in self._answer.wheels:
            # What goes with a torch follows it, and holds it only if nothing else does.
            if name == "torch" and wheel.package in self._index.names:
                following.append(wheel)
            elif wheel.package in requested:
                programs.append(wheel)
            else:
                others.append(wheel)
        if name == "torch":
            builds = self._index.builds.items()
            known = self._fact_against(
                [version for version, build in builds if build.torch == newest]
            )
            fact = Obstacle(known.why, known.package) if known else None
        return (
            self._holders(name, newest, programs)
            or self._holders(name, newest, others)
            or fact
            or self._holders(name, newest, following)
            or self._unmet_demand(name, newest)
        )

    def _holders(
        self,
        name: str,
        newest: Version,
        users: Sequence[Wheel],
    ) -> Obstacle | None:
        """Return the wheels that require another version of a package, if any.

        Args:
            name: The package.
            newest: The version that was not taken.
            users: The wheels that may require it.
        """
        holders = dict[str, str]()
        found = side_by_side(self._requirements, users, WHEELS_AT_ONCE)
        for wheel, requirements in zip(users, found, strict=True):
            for one in requirements:
                if one.name == name and not one.allows(newest):
                    words = without_marker(one).text
                    if one.is_exact:
                        words = words.replace("==", " ")
                    version = wheel.version.public
                    holders[f"{wheel.package} {version} requires {words}"] = (
                        wheel.package
                    )
        if not holders:
            return None
        packages = dict.fromkeys(holders.values())
        return Obstacle(some([*holders]), some([*packages]))

    def _unmet_demand(self, name: str, newest: Version) -> Obstacle:
        """Return the first requirement of a version that is not satisfied."""
        demand = self._unmet(name, newest)
        if demand is None:
            return Obstacle("")
        package = demand.name if demand.name in self._versions else ""
        sentence = f"{name} {newest} requires {without_marker(demand)}"
        if demand.name in self._index.names:
            is_unlisted = self._is_unlisted(demand.name)
            where = ", which no source of PyTorch has" if is_unlisted else ""
            return Obstacle(f"{sentence}{where}", package)
        limits = self._index.limits(demand.name)
        own = [one.text for one in limits if one.specifier]
        if own:
            return Obstacle(f"{sentence}, and {some(own)} is requested", some(own))
        if demand.name in self._problem.requested:
            return Obstacle(sentence, package)
        allowed = filter(demand.allows, self._index.releases(demand.name))
        version = next(iter(allowed), None)
        further = self._unmet(demand.name, version) if version else None
        if further is None:
            return Obstacle(sentence, package)
        further_sentence = f"{demand.name} {version} requires {without_marker(further)}"
        return Obstacle(f"{sentence}, and {further_sentence}", package)

    def _unmet(self, name: str, version: Version) -> Requirement | None:
        """Return the first requirement of a version of a package that the answer does not meet."""
        own = self._index.wheel(name, version)
        if own is None:
            return None
        excluded = {fact.package for fact in self._facts if fact.excludes}

        def place(one: Requirement) -> tuple[bool, bool, bool]:
            """Put what cannot be had first, and what a fact forbids: torch is another because of it."""
            is_unlisted = self._is_unlisted(one.name)
            return not is_unlisted, one.name not in excluded, one.name != "torch"

        for one in sorted(self._requirements(own), key=place):
            if name == "torch" and self._follows_torch(one):
                continue
            version_here = self._versions.get(one.name)
            is_lacking = version_here is None and one.name in self._loop.judge.met
            if (
                is_lacking
                or self._is_unlisted(one.name)
                or (version_here and not one.allows(version_here))
            ):
                return one
        return None

    def _follows_torch(self, requirement: Requirement) -> bool:
        """Whether what a torch requires could be had with it: then it is another because torch is."""
        name = requirement.name
        if name not in self._index.names:
            return False
        return any(map(requirement.allows, self._index.releases(name)))

    def _is_unlisted(self, name: str) -> bool:
        """Whether a package comes from the sources of torch, and none of them has it."""
        return name in self._index.names and not self._index.releases(name)

    def _requirements(self, wheel: Wheel) -> list[Requirement]:
        """Return what a wheel requires here, and of torch what its METADATA leaves out."""
        if wheel not in self._required:
            requirements = self._index.metadata_requirements(wheel)
            if wheel.package == "torch":
                torch = Version(wheel.version.public)
                requirements += self._problem.catalog.constraints(torch)
            self._required[wheel] = requirements
        return self._required[wheel]

    # Warnings.

    def warnings(self) -> list[Reason]:
        """Return what was decided by facts, and what excludes nothing."""
        clashes = load_members().clashes(self._versions)
        reasons = [
            *self._of_facts(),
            *self._of_extras(),
            *(Reason("packages-clash", message) for message in clashes),
            *self._of_parts(),
        ]
        return list(dict.fromkeys(reasons))

    def _of_facts(self) -> Iterator[Reason]:
        newest: dict[str, Fact] = {}
        for fact in filter(self._is_older, self._facts):
            known = newest.get(fact.package, fact)
            newest[fact.package] = max(
                known, fact, key=lambda one: Version(one.version)
            )
        for package, fact in newest.items():
            version = self._versions.get(package)
            other = "what requires it is taken in a version that does without it"
            if version:
                unread = self._loop.judge.unread(package, Version(version))
                other = f"{package} {version} is taken{unread}"
            yield Reason("older-for-code", f"{fact.why}; {other}")
        for fact in self._facts_here:
            if fact.requires:
                libraries = " and ".join(fact.requires)
                added = f"the library that it loads comes from {libraries}"
                yield Reason("library-added", f"{fact.why}; {added}")

    def _is_older(self, fact: Fact) -> bool:
        """Whether a fact speaks against a version that is newer than that of the answer, and is for people."""
        if not fact.why:
            return False
        if fact.package in self._index.pages and not self._problem.files:
            return False
        version = self._versions.get(fact.package)
        is_newer = fact.package in self._loop.judge.met
        if version:
            is_newer = Version(fact.version) > Version(version)
        return is_newer and fact.speaks_against(self._answer.torch)

    def _of_extras(self) -> Iterator[Reason]:
        requested = self._problem.requested
        # uv names them in any order.
        missing = sorted(self._answer.missing_extras)
        for package, version, extra in missing:
            # An extra that a dependency names is its authors' affair.
            if package in requested:
                name = f"{package} {version}".strip()
                message = f"{name} has no extra {extra}"
                yield Reason("no-such-extra", message)

    def _of_parts(self) -> Iterator[Reason]:
        """Yield what may not run and excludes nothing, and what loads libraries by their names."""
        torch = self._answer.torch
        members = load_members()
        readings = map(self._loop.judge.readings.get, self._answer.wheels)
        for reading in filter(None, readings):
            row, rejection, warning = reading.verdicts[torch]
            reason = rejection or warning
            why = (
                (reason and reason.message)
                or self._unreadable_ptx(row)
                or self._lacks_library(row)
                or self._too_new_for_system(row)
            )
            if why:
                works = members.works_on_cpu.fullmatch(row.package)
                on_cpu = "; it works on the CPU" if works else ""
                version = self._versions[row.package]
                yield Reason(PART, f"{row.package} {version} {why}{on_cpu}")
            if row.opens and row.package in members.must_open:
                message = (
                    f"{row.package} loads {row.opens[0]} by its name alone: import torch before it, "
                    "or put the library's folder into LD_LIBRARY_PATH"
                )
                yield Reason("opens-libraries", message)

    def _unreadable_ptx(self, row: LearnedRow) -> str:
        """Return that a driver does not read the PTX that code writes while it runs; empty if nothing says so."""
        build = self._answer.build
        why = unsupported_ptx(row, build, self._problem.gpus, self._versions)
        return why.message if why else ""

    def _lacks_library(self, row: LearnedRow) -> str:
        """Return that a package is linked to a library which nothing in the lock has; empty if that is not known."""
        lacking = set(filter(is_of_a_package, row.needs))
        if lacking:
            # What comes with torch has libraries of CUDA alone.
            with_torch = load_members().with_torch.fullmatch
            others = [one for one in self._answer.wheels if not with_torch(one.package)]
            try:
                found = side_by_side(self._index.reader.names, others, WHEELS_AT_ONCE)
                lacking.difference_update(*found)
            except InstallationError:
                lacking.clear()
        names = sorted(lacking) + missing_libraries(row, self._versions)
        if not names:
            return ""
        return f"may not run: it is linked to {some(names)}, which nothing in this lock has"

    def _too_new_for_system(self, row: LearnedRow) -> str:
        """Return that code needs a newer glibc than this system has, or than the names of the files promise."""
        system = self._problem.wanted.machine.glibc
        files = [(one.package, one.filename) for one in self._answer.wheels]
        glibc = system or glibc_needed(files)
        if row.glibc is None or numbers(row.glibc) <= numbers(glibc):
            return ""
        here = "this system has" if system else "this lock is for"
        return f"may not run: its code needs glibc {row.glibc}, and {here} {glibc}"


def other_name(package: str, loop: Loop) -> str:
    """Return the name, in words, of the package for the CUDA of torch, if its own is for another and there is one."""
    toolkit = next(iter(loop.index.builds.values())).toolkit
    if toolkit is None:
        return ""
    name = name_for_cuda(package, toolkit[0])
    if name is None or name == package:
        return ""
    if not loop.index.releases(name):
        return ""
    return f"; for CUDA {toolkit[0]} it is {name}"


def without_marker(requirement: Requirement) -> Requirement:
    """Return a requirement without its marker."""
    unmarked = replace(requirement, marker=None)
    return unmarked.with_specifier(str(requirement.specifier or ""))


def shortened(account: str) -> str:
    """Return a long account of uv's, cut."""
    account = account.removeprefix(_PREAMBLE)
    if len(account) <= _LONGEST:
        return account
    return f"{account[: _LONGEST - 1]}…"
