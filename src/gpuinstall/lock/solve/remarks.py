"""What is said of an answer: which fact or package kept something from its newest version, and what goes badly together.

It is known from facts and METADATA; of uv's account nothing is decided.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.text import some
from gpuinstall.base.threads import side_by_side
from gpuinstall.lock.solve.facts import WHEELS_AT_ONCE
from gpuinstall.lock.uv.project import MISSING_EXTRAS, OWN_PACKAGES
from gpuinstall.plan.values import ProgramConstraints
from gpuinstall.wheels.members import load_members
from gpuinstall.wheels.needs import name_for_cuda

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.base.requirement import ParsedRequirement
    from gpuinstall.catalog import Build, Wheel
    from gpuinstall.lock.solve.facts import Fact
    from gpuinstall.lock.solve.loop import Answer, Loop

NO_CODE = "no-code-in-package"
PART = "part-without-code"
"""The code of what does not run and excludes nothing: what has a fallback, or was read in part."""

OLDER = "older-for-code"
OTHER_BUILD = "other-build-for-code"

_LONGEST = 240
_PREAMBLE = "No solution found when resolving dependencies; "
_BY_NAME = "by its name alone: import torch before it, or put the library's folder into LD_LIBRARY_PATH"


class Remarks:
    """What is said of one answer."""

    def __init__(self, answer: Answer, loop: Loop) -> None:
        self._answer = answer
        self._loop = loop
        self._problem = loop.problem
        self._versions = answer.versions
        self._wheels = {wheel.package: wheel for wheel in answer.wheels}
        self._facts = loop.judge.facts

    def constraints(self) -> ProgramConstraints:
        """Return what the programs came to, as the plan tells it."""
        torch = self._answer.build.torch
        unserved = {}
        for version, build in self._loop.shelf.builds.items():
            if build == self._answer.build:
                break
            if build.torch == torch:
                unserved[build.backend.tag] = self._why_not_build(version)
        return ProgramConstraints(
            torch,
            self._why_torch,
            unserved,
            tuple(self._held_back()),
        )

    def unsuited(self) -> set[Build]:
        """Return the builds that something in the answer does not run beside, if facts alone exclude the newest torch."""
        unsuited: set[Build] = set()
        if self._why_torch:
            return unsuited
        for fact in self._facts.values():
            if self._versions.get(fact.package) != fact.version or fact.builds is None:
                continue
            for version, build in self._loop.shelf.builds.items():
                if version not in fact.builds:
                    unsuited.add(build)
        return unsuited

    def _why_not_build(self, version: str) -> str:
        """Return what does not run beside another build of the same torch."""
        for fact in self._facts.values():
            held = self._versions.get(fact.package)
            if held != fact.version or fact.builds is None:
                continue
            if version not in fact.builds:
                return fact.why
        return "the other packages do not go with it"

    @cached_property
    def _why_torch(self) -> str:
        """Return what excludes the newest torch that runs here; empty if it is the newest."""
        problem, torch = self._problem, self._answer.build.torch
        newest = max(build.torch for build in problem.wanted.plan.runnable)
        is_held = problem.near.get("torch", "").partition("+")[0] == str(torch)
        if torch == newest or is_held:
            return ""
        if torch == problem.common:
            return f"torch {torch} is the newest that all targets run"
        holders = self._holders("torch", newest) or self._demands_of(newest)
        if not holders:
            # What a companion is paired with stands in no METADATA.
            holders = [fact.why for fact in self._of_companions(newest)]
        return some(holders)

    def _demands_of(self, torch: Version) -> list[str]:
        """Return what a torch requires that the answer does not have."""
        for wheel in self._loop.shelf.wheels_of("torch"):
            if wheel.version.public != str(torch):
                continue
            for requirement in self._loop.requirements(wheel):
                held = self._versions.get(requirement.name)
                if held and not requirement.allows(Version(held)):
                    text = requirement.text.partition(" ;")[0]
                    demand = f"torch {torch} requires {text}"
                    versions = [
                        other.version
                        for other in self._loop.shelf.wheels_of(requirement.name)
                        if requirement.allows(other.version)
                    ]
                    newest = max(versions, default=torch)
                    holders = self._holders(requirement.name, newest)
                    # What this torch itself requires is no demand of others.
                    if holders and not holders[0].startswith("torch "):
                        return [f"{holders[0]} and {demand}"]
        return []

    def _of_companions(self, newest: Version) -> list[Fact]:
        """Return the facts of members of the family in the answer that exclude a torch."""
        torches = [
            version
            for version, build in self._loop.shelf.builds.items()
            if build.torch == newest
        ]
        return [
            fact
            for fact in self._facts.values()
            if fact.package in self._loop.shelf.pages
            and self._versions.get(fact.package) == fact.version
            and all(map(fact.speaks_against, torches))
        ]

    def _speaks_for_torch(self, fact: Fact) -> bool:
        """Whether a fact of a locked version excludes the best build."""
        best = next(iter(self._loop.shelf.builds))
        held = self._versions.get(fact.package)
        is_of_build = fact.package in self._loop.shelf.pages
        return held == fact.version and fact.speaks_against(best) and not is_of_build

    def _holders(self, name: str, newest: Version) -> list[str]:
        """Return which packages of the answer require another version than the newest, the requested ones first."""
        requested = [one.name for one in self._problem.programs]
        others = [package for package in self._wheels if package not in requested]
        for packages in (requested, others):
            wheels = [self._wheels[one] for one in packages if one in self._wheels]
            found = side_by_side(
                lambda wheel: self._requirement(wheel, name), wheels, WHEELS_AT_ONCE
            )
            sentences = []
            for wheel, requirements in zip(wheels, found, strict=True):
                for requirement in requirements:
                    if not requirement.allows(newest):
                        words = requirement.with_specifier(
                            str(requirement.specifier)
                        ).partition(" ;")[0]
                        if requirement.is_exact:
                            words = f"{name} {_pinned(requirement)}"
                        version = self._versions[wheel.package]
                        sentences.append(f"{wheel.package} {version} requires {words}")
                        break
            if sentences:
                return sentences
        return []

    def _requirement(self, wheel: Wheel, name: str) -> list[ParsedRequirement]:
        """Return what METADATA of a wheel requires of a package here."""
        return [one for one in self._loop.requirements(wheel) if one.name == name]

    def _held_back(self) -> Iterator[str]:
        """Yield, for each program that is not at its newest for another reason than a fact of itself, that reason."""
        shelf = self._loop.shelf
        told = {fact.package for fact in self._facts.values() if self._is_older(fact)}
        for name, program in shelf.programs.items():
            version = self._versions.get(name)
            if version is None or program.newest is None or name in told:
                continue
            if program.newest > Version(Version(version).public):
                why = self._why_older(name, program.newest)
                yield f"{name} is {version} instead of {program.newest}{why}"

    def _why_older(self, name: str, newest: Version) -> str:
        """Return what stands against the newest version of a program."""
        torch = self._answer.build.torch
        for text in self._problem.catalog.constraints(torch):
            constraint = parse_requirement(text)
            if constraint.name == name and not constraint.allows(newest):
                return f": torch {torch} requires {text}"
        holders = self._holders(name, newest)
        if holders:
            return f": {some(holders)}"
        wheel = self._loop.shelf.wheel(name, str(newest))
        requirements = self._loop.requirements(wheel) if wheel else []
        for requirement in sorted(requirements, key=lambda one: one.name != "torch"):
            held = self._versions.get(requirement.name)
            text = requirement.text.partition(" ;")[0]
            if held and not requirement.allows(Version(held)):
                return f", which requires {text}"
            if not held and requirement.name in self._loop.judge.met:
                return f", which requires {text}"
        account = self._loop.accounts.get(name, "")
        if not account or OWN_PACKAGES in account:
            return ""
        return f": {shortened(account)}"

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
        for fact in self._facts.values():
            if self._is_older(fact):
                other = newest.get(fact.package)
                if other is None or Version(fact.version) > Version(other.version):
                    newest[fact.package] = fact
        for fact in newest.values():
            yield Reason(OLDER, f"{fact.why}; {self._instead_of(fact)}")
        for fact in self._facts.values():
            if self._versions.get(fact.package) != fact.version:
                continue
            if fact.requires and fact.package != "torch":
                provide = "provide" if len(fact.requires) > 1 else "provides"
                libraries = " and ".join(fact.requires)
                added = f"{libraries} {provide} the library that it loads"
                yield Reason("library-added", f"{fact.why}; {added}")
            elif self._speaks_for_torch(fact):
                name = self._answer.build.name
                sentence = f"{fact.package} runs beside torch {name}"
                yield Reason(OTHER_BUILD, f"{fact.why}; {sentence}")

    def _is_older(self, fact: Fact) -> bool:
        """Whether a fact speaks against a version that is newer than that of the answer, and is for people."""
        if not fact.why or fact.package == "torch" or fact.builds is None:
            return False
        if fact.package in self._loop.shelf.pages and not self._problem.files:
            return False
        is_against = self._answer.torch not in fact.builds
        version = self._versions.get(fact.package)
        if version is None:
            return is_against and fact.package in self._loop.judge.met
        return is_against and Version(fact.version) > Version(version)

    def _instead_of(self, fact: Fact) -> str:
        """Return what is taken in place of a version that does not run."""
        package = fact.package
        version = self._versions.get(package)
        if version is None:
            other = self._other_name(package)
            return f"what requires it is taken in a version that does without it{other}"
        if self._newest_beside(package) > Version(version):
            return f"{package} {version} is the newest that the other versions go with"
        return f"{package} {version} runs here{self._unread(package, version)}"

    def _newest_beside(self, package: str) -> Version:
        """Return the newest version of a package that nothing known keeps from the build of the answer."""
        torch = self._answer.torch
        limits = self._loop.shelf.limits(package)
        versions = [Version(self._versions[package])]
        for wheel in self._loop.shelf.wheels_of(package):
            fact = self._facts.get((package, str(wheel.version)))
            is_against = fact and fact.builds is not None and torch not in fact.builds
            if is_against or wheel.version.is_prerelease:
                continue
            if all(limit.allows(wheel.version) for limit in limits):
                versions.append(wheel.version)
        return max(versions)

    def _unread(self, package: str, version: str) -> str:
        """Return the newer versions that could not be read, with the last reason; empty without any."""
        unread = {}
        for name, why in self._loop.judge.unread.items():
            other, _, number = name.partition(" ")
            if other == package and Version(number) > Version(version):
                unread[number] = why
        if not unread:
            return ""
        *_, last = unread.values()
        return f" (unread: {some([*unread])}: {last})"

    def _other_name(self, package: str) -> str:
        return other_name(package, self._loop)

    def _of_extras(self) -> Iterator[Reason]:
        requested = self._problem.requested
        for package, version, extra in self._answer.document.get(MISSING_EXTRAS, ()):
            # An extra that a dependency names is its authors' affair.
            if package in requested:
                message = f"{package} {version} has no extra {extra}"
                yield Reason("no-such-extra", message)

    def _of_parts(self) -> Iterator[Reason]:
        """Yield what may not run and excludes nothing, and what loads libraries by their names."""
        judge = self._loop.judge
        for wheel in self._answer.wheels:
            reading = judge.readings.get(wheel)
            if reading is None:
                continue
            row, judgement = reading.rows[self._answer.torch]
            why = reading.reasons[self._answer.torch] or judgement.doubt
            if why:
                yield Reason(PART, f"{row.package} {wheel.version} {why}")
            if row.opens and row.package in load_members().must_open:
                message = f"{row.package} loads {row.opens[0]} {_BY_NAME}"
                yield Reason("opens-libraries", message)


def other_name(package: str, loop: Loop) -> str:
    """Return the name, in words, of the package for the CUDA of torch, if its own is for another and there is one."""
    toolkit = next(iter(loop.shelf.builds.values())).toolkit
    name = name_for_cuda(package, toolkit[0]) if toolkit else None
    if toolkit is None or name is None or name == package:
        return ""
    wheels = loop.shelf.wheels_of(name)
    if all(wheel.version.is_prerelease for wheel in wheels):
        return ""
    return f"; for CUDA {toolkit[0]} it is {name}"


def _pinned(requirement: ParsedRequirement) -> str:
    return next(
        one.version for one in requirement.specifier or () if one.operator == "=="
    )


def shortened(account: str) -> str:
    """Return a long account of uv's, cut."""
    account = account.removeprefix(_PREAMBLE)
    return account if len(account) <= _LONGEST else f"{account[: _LONGEST - 1]}…"
