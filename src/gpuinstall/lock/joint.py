"""The joint choice: torch left open over the builds that run, the programs first; then the best build of that torch."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from gpuinstall.catalog import DEFAULT_INDEX, Build, Wheel
from gpuinstall.catalog.listing import COMPANIONS, default_wheels, family_wheels
from gpuinstall.errors import NoBuildError
from gpuinstall.lock.programs import ListedProgram, list_programs, programs_first
from gpuinstall.lock.request import LockRequest, is_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, bind, fitting, resolve
from gpuinstall.lock.resolver import ResolvedVersions, ResolverProject, resolve_versions
from gpuinstall.lock.uv_failure import FAMILY_UNLISTED, Conflict
from gpuinstall.plan import Refusal
from gpuinstall.plan.values import Reason, Settled
from gpuinstall.text import some
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.session import Session

    Torches = frozenset[Version]

PROPOSALS = 4
"""How many versions of torch to try where a target cannot have what the first one proposes."""

IMPROVEMENTS = 3
"""How often one program is asked whether it can be newer: uv takes a step of one obstacle at a time."""


@dataclass(frozen=True)
class Proposal:
    """What ``programs`` take if torch is left open over ``torches``: the version of everything with who asks for it.

    ``project`` is what uv was given, None where one torch was left and nobody had to be asked. ``obstacles`` say by
    program, in uv's words, why it could not be newer.
    """

    torches: Torches
    programs: tuple[ListedProgram, ...]
    project: ResolverProject | None = None
    versions: ResolvedVersions = field(default_factory=dict)
    obstacles: Mapping[str, str] = field(default_factory=dict)

    @property
    def torch(self) -> Version:
        """The torch that the programs want."""
        held = self.versions.get("torch")
        return Version(Version(held[0]).public) if held else max(self.torches)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The constraints that keep the programs as new as they are."""
        there = [program.name for program in self.programs if program.name in self.versions]
        return tuple(_bound(name, ">=", self.versions) for name in there)


def resolve_jointly(requests: Sequence[LockRequest], session: Session) -> list[Resolution] | Conflict:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    Where the newest torch and the newest programs go together, nothing better can be found. Else the first target
    proposes, and all must be able. Where a machine does not say its glibc and a newer one would bring newer programs,
    as a second resolution shows, that is said.
    """
    answer, first = _resolve_jointly(requests, session), requests[0]
    if isinstance(answer, Conflict) or first.machine.glibc or first.target.os != "linux" or len(requests) > 1:
        return answer
    newest = replace(first, machine=replace(first.machine, glibc="2.40"))
    named, family = first.request.requirements, first.catalog.family.union(first.files)
    target = first.target.up_to(newest.machine.glibc)
    programs = list_programs(named, family, target, first.choice.python, session)
    held = {program.name: answer[0].versions.get(program.name, "0") for program in programs}
    if not any(program.wheel and program.is_newer_than(held[program.name]) for program in programs):
        return answer
    other = _resolve_jointly([newest], session)
    newer = {} if isinstance(other, Conflict) else other[0].versions
    why = f"glibc {first.target.glibc} is assumed; --glibc names the machine's own"
    changed = [name for name, version in held.items() if Version(newer.get(name, "0")) > Version(version)]
    texts = [f"{name} is {held[name]}; {newer[name]} requires a newer glibc: {why}" for name in changed]
    return [answer[0].warned_of(Reason("glibc-unknown", text) for text in texts)]


def _resolve_jointly(requests: Sequence[LockRequest], session: Session) -> list[Resolution] | Conflict:
    if newest := _all_newest(requests, session):
        return newest
    opened = [_opened(request) for request in requests]
    torches, conflicts = _common_torches(opened), list[Conflict]()
    while len(conflicts) < PROPOSALS:
        proposal = _propose(opened[0], torches, session)
        if isinstance(proposal, Conflict):
            return conflicts[0] if conflicts else _of_the_machine(proposal, opened[0])
        better, answers = _carried_out(proposal, opened, session)
        if isinstance(better, Conflict):
            return better
        resolved = [answer for answer in answers if isinstance(answer, Resolution)]
        if len(resolved) == len(answers):
            return [_explained(resolution, better, max(_common_torches(opened))) for resolution in resolved]
        conflicts += [answer for answer in answers if isinstance(answer, Conflict)][:1]
        torches -= {better.torch}
    return conflicts[0]


def torch_of_programs(requests: Sequence[LockRequest], session: Session) -> Version | Conflict:
    """Find the torch that the programs want of those that all run, as the first proposes it."""
    opened = [_opened(request) for request in requests]
    proposal = _propose(opened[0], _common_torches(opened), session)
    return proposal if isinstance(proposal, Conflict) else proposal.torch


def _all_newest(requests: Sequence[LockRequest], session: Session) -> list[Resolution]:
    """Resolve for every target with the torch that was planned and the newest wheel of every program, or nothing."""
    first = requests[0]
    named, family = first.request.requirements, first.catalog.family.union(first.files)
    programs = list_programs(named, family, first.target, first.choice.python, session)
    if first.pins.preferred or not all(program.needs_no_building for program in programs):
        return []
    bounds = [f"{program.name}>={program.newest.public}" for program in programs if program.newest]
    answers = side_by_side(partial(resolve, session=session, bounds=bounds), requests, TARGETS_AT_ONCE)
    resolved = [answer for answer in answers if isinstance(answer, Resolution)]
    return resolved if len(resolved) == len(answers) else []


def _opened(request: LockRequest) -> LockRequest:
    return replace(request, torch=None, python=request.choice.python)


def _common_torches(opened: Sequence[LockRequest]) -> Torches:
    return frozenset.intersection(*(frozenset(build.torch for build in one.plan.runnable) for one in opened))


def _propose(request: LockRequest, torches: Torches, session: Session) -> Proposal | Conflict:
    """Have uv say which versions go together, with one page of the family for all builds of these torches.

    The best builds stand first, but what only another one serves counts: a newer driver has other best builds, and may
    not make a program older.
    """
    if not torches:
        return Conflict(NoBuildError("targets-disagree", "no torch version supports all of these targets"))
    builds = [build for build in request.plan.runnable if build.torch in torches]
    named, python = request.request.requirements, request.choice.python
    target = request.target.up_to(request.machine.glibc)
    own = any(build.source != DEFAULT_INDEX for build in builds)
    bound = bind(named, {build.backend.tag for build in builds} if own else (), request.catalog, session)
    limits = request.pins.constraints
    names = bound.names.union(request.files)
    programs = tuple(list_programs(named, names, target, python, session, constraints=limits))
    if len(torches) == 1:
        return Proposal(torches, programs)
    wheels_of = partial(_wheels_of, builds=builds, tags=target.tags(python), session=session)
    beside = frozenset.intersection(*(frozenset(request.catalog.beside(torch)) for torch in torches))
    pins = request.pins if own else request.pins.within(_only(torches, request))
    wheels_only = names.union(program.name for program in programs if program.needs_no_building)
    wheels_only |= session.sources.only_binary - {":all:"}
    project = ResolverProject(
        programs_first(named if any(map(is_torch, named)) else (*named, "torch"), bound.names),
        python,
        target,
        {**bound.pages(wheels_of, session), **request.files},
        pins.within(*beside),
        session.folder,
        wheels_only,
        session.sources,
    )
    versions = resolve_versions(project, session)
    if isinstance(versions, Conflict):
        return versions
    proposal = Proposal(torches, programs, project, versions)
    if proposal.torch not in torches:
        message = f"the request requires torch {proposal.torch}, of which no source has a build that runs here"
        return Conflict(NoBuildError("requirements-conflict", message))
    if beside.issuperset(request.catalog.beside(proposal.torch)):
        return proposal
    return _of_its_kind(proposal, request, session)


def _of_its_kind(proposal: Proposal, request: LockRequest, session: Session) -> Proposal | Conflict:
    """Propose again, once nothing can be newer, of the torches that demand the same of what stands beside them."""
    newer = _improved(proposal, session)
    if isinstance(newer, Conflict):
        return newer
    beside = request.catalog.beside(newer.torch)
    alike = frozenset(torch for torch in proposal.torches if request.catalog.beside(torch) == beside)
    return _propose(request, alike, session)


def _wheels_of(package: str, *, builds: Sequence[Build], tags: Sequence[Tag], session: Session) -> tuple[Wheel, ...]:
    """Of torch the wheels of these builds, of the others one of each version, those beside the best build first."""

    @cache
    def listed(source: str, backend: str) -> tuple[Wheel, ...]:
        if source == DEFAULT_INDEX:
            return fitting(default_wheels(session.sources, session.client, package), backend, tags)
        return fitting(family_wheels(session.sources, session.client, backend, package), backend, tags)

    wheels: dict[str, Wheel] = {}
    for build in builds:
        for wheel in listed(build.source, build.backend.tag):
            if package != "torch" or wheel.version.public == str(build.torch):
                wheels.setdefault(wheel.version.public, wheel)
    return tuple(wheels.values())


def _only(torches: Torches, request: LockRequest) -> str:
    """Bind torch to versions of the default index, which lists those too that do not run."""
    oldest, newest = min(torches), max(torches)
    listed = {build.torch for build in request.catalog.builds_for(request.machine.os, request.machine.arch)}
    others = sorted(torch for torch in listed - torches if oldest < torch < newest)
    return ",".join([f"torch>={oldest}", f"<={newest}", *(f"!={torch}" for torch in others)])


def _of_the_machine(conflict: Conflict, request: LockRequest) -> Conflict:
    """Where the machine runs none of the torches that are wanted, what stands against them is the reason."""
    others = tuple(text for text in request.request.requirements if not is_torch(text))
    refusals = list[Refusal]()
    for specifier in torches_wanted(conflict.why):
        wanted = replace(request.request, requirements=(f"torch{specifier}", *others))
        outcome = replace(request, request=wanted).outcome
        if not isinstance(outcome, Refusal):
            return conflict
        refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(request.machine)
    error.why = conflict.why
    return Conflict(error)


def _carried_out(
    proposal: Proposal, opened: Sequence[LockRequest], session: Session
) -> tuple[Proposal | Conflict, list[Resolution | Conflict]]:
    """Resolve a proposal for every target; meanwhile it is asked whether a program could be newer."""
    with ThreadPoolExecutor(TARGETS_AT_ONCE + 1) as pool:
        improved = pool.submit(_improved, proposal, session)

        def answers_to(proposal: Proposal) -> list[Resolution | Conflict]:
            bounds = [proposal.bounds, *[()] * (len(opened) - 1)]  # who proposed can have what it proposed
            return list(pool.map(partial(_with_best_build, torch=proposal.torch, session=session), opened, bounds))

        answers, better = answers_to(proposal), improved.result()
        if isinstance(better, Conflict) or better.versions == proposal.versions:
            return better, answers
        return better, answers_to(better)


def _improved(proposal: Proposal, session: Session) -> Proposal | Conflict:
    """Ask of each program, and of torch after them, whether it can be newer with those before it kept.

    uv turns to old versions of a program where others of its demands were in the way several times. A mirror that
    lists torch and nothing that goes with it is a conflict: the programs that it leaves are years old.
    """
    if proposal.project is None:
        return proposal
    versions, project, obstacles = proposal.versions, proposal.project, dict[str, str]()
    alone = not any(project.pages.get(companion) for companion in COMPANIONS)
    for program in (*proposal.programs, ListedProgram("torch", None, max(proposal.torches))):
        for _ in range(IMPROVEMENTS):
            held = versions.get(program.name)
            if held is None or program.name in project.pins.preferred or not program.is_newer_than(held[0]):
                break
            answer = resolve_versions(project.within(_bound(program.name, ">", versions)), session)
            if isinstance(answer, Conflict):
                if alone and answer.error.code == FAMILY_UNLISTED:
                    return answer.against(f"{program.name} {program.newest}")
                obstacles[program.name] = answer.why
                break
            if Version(answer[program.name][0]).is_prerelease:  # uv takes one where no final release is left
                break
            versions = answer
        if program.name in versions:
            project = project.within(_bound(program.name, ">=", versions))
    return replace(proposal, versions=versions, obstacles=obstacles)


def _with_best_build(
    request: LockRequest, bounds: tuple[str, ...], *, torch: Version, session: Session
) -> Resolution | Conflict:
    """Resolve with the best build of a torch that the programs can be had with, as new as they were proposed."""
    conflicts: dict[str, Conflict] = {}
    for backend in [build.backend.tag for build in request.plan.runnable if build.torch == torch]:
        unserved = {tag: shortened(conflict.why) for tag, conflict in conflicts.items()}
        answer = resolve(replace(request, settled=Settled(torch, "", unserved)), session, bounds)
        if isinstance(answer, Resolution):
            return answer
        conflicts[backend] = answer
    return next(iter(conflicts.values()))


def _explained(resolution: Resolution, proposal: Proposal, common: Version) -> Resolution:
    """Say in the plan who wants this torch, and what could not be the newest; ``common`` runs on every target."""
    request, settled = resolution.request, resolution.request.settled
    if settled is None:
        return resolution
    older = proposal.torch < resolution.plan.runnable[0].torch and "torch" in proposal.versions
    why = who_wants(proposal.versions, proposal.obstacles, proposal.programs) if older else ""
    if older and proposal.torch == common:
        why = f"torch {common} is the newest that all targets run"
    beside = request.catalog.beside(settled.torch)
    older_programs = tuple(held_back(resolution.versions, proposal.obstacles, proposal.programs, beside))
    explained = replace(request, settled=replace(settled, why=why, held_back=older_programs))
    return replace(resolution, request=explained, plan=explained.plan)


def _bound(name: str, operator: str, versions: ResolvedVersions) -> str:
    """Write a constraint; uv allows no local version in one."""
    return f"{name}{operator}{versions[name][0].partition('+')[0]}"


_LONGEST, _MOST_NAMES = 240, 3
_PREAMBLE = "No solution found when resolving dependencies; "


def who_wants(versions: ResolvedVersions, obstacles: Mapping[str, str], programs: Sequence[ListedProgram]) -> str:
    """Name the packages that exclude a newer torch, those that were asked for first; "" where uv refused none."""
    torch, dependents = Version(versions["torch"][0]).public, versions["torch"][1]
    account = obstacles.get("torch", "")
    if not account:
        return ""
    refusing = [name for name in dependents if any(_needs(account, name, versions[name][0], "torch"))]
    named = [program.name for program in programs]
    names = [name for name in refusing if name in named] or refusing
    who = [f"{name} {versions[name][0]}" for name in names]
    if not who:
        return f"{some(named) or 'the request'} cannot be resolved with a torch newer than {torch}"
    return (
        f"{' and '.join(who) if len(who) < 3 else some(who)} {'require' if len(who) > 1 else 'requires'} torch {torch}"
    )


def held_back(
    versions: Mapping[str, str],
    obstacles: Mapping[str, str],
    programs: Sequence[ListedProgram],
    beside: Iterable[str] = (),
) -> Iterator[str]:
    """Say of each program that is not at its newest what is against that; ``beside`` are the constraints of torch."""
    for program in programs:
        version = versions.get(program.name)
        if version and program.is_newer_than(version):
            account = obstacles.get(program.name, "")
            need = next(_needs(account, program.name, str(program.newest)), None)
            own = next((text for text in beside if text.startswith(program.name)), None)
            bound = f"torch {versions['torch'].partition('+')[0]} requires {own}" if own else shortened(account)
            why = f", which requires {need}" if need else f": {bound}" if bound else ""
            yield f"{program.name} is {version} instead of {program.newest}{why}"


def torches_wanted(account: str) -> list[str]:
    """Find in uv's account which torch the packages want, as specifiers."""
    wanted = re.findall(r"(\S+) depends? on torch([=<>!~][^\s{]*)", account)
    return list(dict.fromkeys(specifier.rstrip(",") for who, specifier in wanted if who != "the-request"))


def shortened(text: str) -> str:
    """Cut a long text of uv's."""
    text = text.removeprefix(_PREAMBLE)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _needs(account: str, name: str, version: str, of: str = "") -> Iterator[str]:
    """Find in uv's account what a version of a package depends on, of one package alone where it is named."""
    plain = re.sub(r"\{[^}]*\}", "", account)
    subject = rf"((?:(?<![\w.-]){re.escape(name)}(?:[=<>!~]\S*)?\s+)+)depends? on "
    for match in re.finditer(rf"{subject}({re.escape(of) or '[a-z0-9]'}(?:[\w.-]*)[^\s\w-]\S*)", plain):
        if any(_covers(spec.removeprefix(name), version) for spec in match[1].split()):
            yield match[2].rstrip(",")


def _covers(specifier: str, version: str) -> bool:
    try:
        return SpecifierSet(specifier.rstrip(",")).contains(Version(version), prereleases=True)
    except InvalidSpecifier:
        return False
