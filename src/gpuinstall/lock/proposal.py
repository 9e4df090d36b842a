"""What the programs would take if every torch that runs were theirs to choose; who wants it, and what kept one back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.catalog.listing import default_wheels, family_wheels
from gpuinstall.lock.programs import ListedProgram, list_programs, programs_first
from gpuinstall.lock.request import is_torch
from gpuinstall.lock.resolution import bind, fitting
from gpuinstall.lock.resolver import ResolverProject, resolve_versions
from gpuinstall.lock.uv_failure import ConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog.build import Build, Wheel
    from gpuinstall.lock.request import PlannedLock, VersionPins
    from gpuinstall.lock.resolution import Binding
    from gpuinstall.lock.resolver import ResolvedVersions
    from gpuinstall.lock.target import Target
    from gpuinstall.session import Session

IMPROVEMENTS = 3

_LONGEST = 240
_PREAMBLE = "No solution found when resolving dependencies; "
_MOST_NAMES = 3


@dataclass(frozen=True)
class Proposal:
    """The torch that the programs want, and the version of everything with who asks for it.

    ``obstacles`` say by program, in uv's words, why it could not be newer.
    """

    torch: Version
    versions: ResolvedVersions = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenRequest:
    """A request with torch left open over ``torches``, one page of the family for all of their best builds."""

    planned: PlannedLock
    torches: frozenset[Version]
    pins: VersionPins
    session: Session

    def propose(self) -> Proposal:
        """Have uv say which versions go together; raise ConflictError where none do."""
        if len(self.torches) == 1:
            return Proposal(next(iter(self.torches)))
        return self._proposal(self._resolve(self.project))

    def improve(self, proposal: Proposal) -> Proposal:
        """Ask of each program, and of torch after them, whether it can be newer with those before it kept.

        uv turns to old versions of a program where others of its demands were in the way several times.
        """
        versions, kept, obstacles = proposal.versions, list[str](), dict[str, str]()
        torch = ListedProgram("torch", None, max(self.torches))
        for program in (*self.programs, torch) if versions else ():
            try:
                for _ in range(IMPROVEMENTS):
                    if not self._may_be_newer(program, versions):
                        break
                    newer = _bound(program.name, ">", versions)
                    versions = self._resolve(replace(self.project, pins=self.pins.within((*kept, newer))))
            except ConflictError as error:
                obstacles[program.name] = error.why or error.message
            if program.name in versions:
                kept.append(_bound(program.name, ">=", versions))
        return replace(self._proposal(versions), obstacles=obstacles) if versions else proposal

    def bounds(self, proposal: Proposal) -> tuple[str, ...]:
        """The constraints that keep the programs as new as they are in a proposal."""
        there = [program.name for program in self.programs if program.name in proposal.versions]
        return tuple(_bound(name, ">=", proposal.versions) for name in there)

    @cached_property
    def programs(self) -> tuple[ListedProgram, ...]:
        """What the default index lists of the programs, in the order of asking."""
        asked = self.planned.request.request.requirements
        python, limits = self.planned.choice.python, self.pins.constraints
        return tuple(list_programs(asked, self._binding.names, self._target, python, self.session, constraints=limits))

    @cached_property
    def project(self) -> ResolverProject:
        """What uv is given: the programs first, and torch last."""
        asked = self.planned.request.request.requirements
        named = asked if any(map(is_torch, asked)) else (*asked, "torch")
        bound = self._binding
        return ResolverProject(
            programs_first(named, bound.names),
            self.planned.choice.python,
            self._target,
            bound.pages(self._wheels_of, self.session),
            self.pins,
            self.session.folder,
            bound.names.union(program.name for program in self.programs if program.needs_no_building),
        )

    @cached_property
    def _target(self) -> Target:
        return self.planned.target.up_to(self.planned.request.machine.glibc)

    @cached_property
    def _binding(self) -> Binding:
        """What is bound to the sources of these builds."""
        own = any(build.source != DEFAULT_INDEX for build in self._builds)
        backends = {build.backend.tag for build in self._builds} if own else ()
        return bind(self.planned.request.request.requirements, backends, self.planned.request.catalog, self.session)

    @cached_property
    def _builds(self) -> tuple[Build, ...]:
        """The best build of each torch, the newest first."""
        best: dict[Version, Build] = {}
        for build in self.planned.plan.runnable:
            if build.torch in self.torches:
                best.setdefault(build.torch, build)
        return tuple(best.values())

    def _resolve(self, project: ResolverProject) -> ResolvedVersions:
        return resolve_versions(project, self.session)

    def _proposal(self, versions: ResolvedVersions) -> Proposal:
        """Read the torch of a resolution; one that came by address is refused later, where its files are known."""
        held = versions.get("torch")
        return Proposal(Version(Version(held[0]).public) if held else max(self.torches), versions)

    def _may_be_newer(self, program: ListedProgram, versions: ResolvedVersions) -> bool:
        held = versions.get(program.name)
        return held is not None and program.name not in self.pins.preferred and program.is_newer_than(held[0])

    def _wheels_of(self, package: str) -> tuple[Wheel, ...]:
        """The wheels of a member: of torch those of the builds, of the others one of each version."""
        found: dict[str, Wheel] = {}
        for build in self._builds:
            for wheel in self._listed(package, build):
                if package != "torch" or wheel.version.public == str(build.torch):
                    found.setdefault(wheel.version.public, wheel)
        return tuple(found.values())

    def _listed(self, package: str, build: Build) -> Iterator[Wheel]:
        sources, client = self.session.sources, self.session.client
        if build.source == DEFAULT_INDEX:
            listed = default_wheels(sources, client, package)
        else:
            listed = family_wheels(sources, client, build.backend.tag, package)
        yield from fitting(listed, build.backend.tag, self._target.tags(self.planned.choice.python))


def who_wants(proposal: Proposal, programs: Sequence[ListedProgram]) -> str:
    """Name the packages that go with no newer torch, those that were asked for where there are such."""
    torch, asking = str(proposal.torch), proposal.versions["torch"][1]
    told = proposal.obstacles.get("torch", "")
    refusing = [name for name in asking if any(_needs(told, name, proposal.versions[name][0], "torch"))]
    named = [program.name for program in programs]
    names = [name for name in refusing if name in named] or refusing
    who = [f"{name} {proposal.versions[name][0]}" for name in names[:_MOST_NAMES]]
    who += [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    if not who:
        return f"{' and '.join(named[:_MOST_NAMES]) or 'what is asked for'} goes with no torch newer than {torch}"
    return f"{_listed(who)} {'want' if len(names) > 1 else 'wants'} torch {torch}"


def held_back(versions: dict[str, str], proposal: Proposal, programs: Sequence[ListedProgram]) -> Iterator[str]:
    """Say of each program that is not at its newest what is against that."""
    for program in programs:
        version = versions.get(program.name)
        if version and program.is_newer_than(version):
            told = proposal.obstacles.get(program.name, "")
            need = next(_needs(told, program.name, str(program.newest)), None)
            why = f", which needs {need}" if need else f": {shortened(told)}" if told else ""
            yield f"{program.name} is {version} and not {program.newest}{why}"


def torches_wanted(told: str) -> list[str]:
    """Find in uv's account which torch the packages want, as specifiers."""
    wanted = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", told)
    return list(dict.fromkeys(specifier.rstrip(",") for who, specifier in wanted if who != "the-request"))


def shortened(text: str) -> str:
    """Cut a long text of uv's."""
    text = text.removeprefix(_PREAMBLE)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _bound(name: str, operator: str, versions: ResolvedVersions) -> str:
    """Write a constraint; uv allows no local version in one."""
    return f"{name}{operator}{versions[name][0].partition('+')[0]}"


def _needs(told: str, name: str, version: str, of: str = "") -> Iterator[str]:
    """Find in uv's account what a version of a package depends on, of one package alone where it is named."""
    plain = re.sub(r"\{[^}]*\}", "", told)
    subject = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)depends? on "
    for match in re.finditer(rf"{subject}({re.escape(of) or '[a-z0-9]'}(?:[\w.-]*)[^\s\w-]\S*)", plain):
        if any(_covers(spec.removeprefix(name), version) for spec in match[1].split()):
            yield match[2].rstrip(",")


def _covers(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier.rstrip(",")).contains(Version(version), prereleases=True)
    except InvalidSpecifier:
        return False


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
