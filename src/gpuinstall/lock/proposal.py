"""What uv proposes where programs are requested: they come first, and torch is open over the builds that run.

The torch that comes out is given its best build, and the whole is resolved once more with that build.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.catalog import DEFAULT_INDEX, Build, Wheel
from gpuinstall.catalog.listing import COMPANIONS, default_wheels, family_wheels
from gpuinstall.errors import NoBuildError
from gpuinstall.lock.binding import bind, fitting
from gpuinstall.lock.obstacles import held_back, required_torches, shortened, who_requires_torch
from gpuinstall.lock.programs import ListedProgram, list_programs, programs_first
from gpuinstall.lock.request import LockRequest, is_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.resolver import ResolvedVersions, ResolverProject, resolve_versions
from gpuinstall.lock.uv_failure import FAMILY_UNLISTED, Conflict
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.values import Settled
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog.catalog import WheelSource
    from gpuinstall.session import Session

    Torches = frozenset[Version]

IMPROVEMENTS = 3
"""How often one program is asked whether it can be newer: uv takes a step of one obstacle at a time."""


class RejectedTorch(NamedTuple):
    """A torch that the programs want and that a target cannot have with them."""

    torch: Version
    conflict: Conflict
    target: int | None = None
    """The position of the target, if the others have a torch of their own."""


@dataclass(frozen=True)
class Proposal:
    """The versions that programs take if torch is open."""

    torches: Torches
    """The versions of torch that it was open over."""

    programs: tuple[ListedProgram, ...]
    """What was requested beside the family, in that order."""

    project: ResolverProject | None = None
    """What uv was given; None if one torch was left, and there was nothing to resolve."""

    versions: ResolvedVersions = field(default_factory=dict)
    """The version of every package, with who requires it."""

    obstacles: dict[str, str] = field(default_factory=dict)
    """Why a program cannot be newer, in uv's words."""

    @property
    def torch(self) -> Version:
        """The torch that the programs want."""
        resolved = self.versions.get("torch")
        return Version(Version(resolved[0]).public) if resolved else max(self.torches)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The constraints that keep the programs as new as they are."""
        resolved = [program.name for program in self.programs if program.name in self.versions]
        return tuple(_bound(name, ">=", self.versions) for name in resolved)


def resolve_programs(
    requests: Sequence[LockRequest], session: Session
) -> list[Resolution] | RejectedTorch | Conflict:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    If the newest torch and the newest programs go together, nothing better can be found. Else the first target
    proposes, and all must be able.
    """
    rejected = requests[0].rejected_torches
    if not rejected and (newest := _resolve_newest(requests, session)):
        return newest
    requests = [_with_open_torch(request) for request in requests]
    proposal = _propose(requests[0], _common_torches(requests) - rejected, session)
    if isinstance(proposal, Conflict):
        return proposal if rejected else _refused_by_machine(proposal, requests[0])
    better, answers = _carried_out(proposal, requests, session)
    if isinstance(better, Conflict):
        return better
    resolutions = list[Resolution]()
    for answer in answers:
        if isinstance(answer, Conflict):
            return RejectedTorch(better.torch, answer)
        resolutions.append(_explained(answer, better, max(_common_torches(requests))))
    return resolutions


def torch_of_programs(requests: Sequence[LockRequest], session: Session) -> Version | Conflict:
    """Return the torch that the programs want of those that all targets run, as the first proposes it."""
    requests = [_with_open_torch(request) for request in requests]
    proposal = _propose(requests[0], _common_torches(requests), session)
    return proposal if isinstance(proposal, Conflict) else proposal.torch


def _resolve_newest(requests: Sequence[LockRequest], session: Session) -> list[Resolution]:
    """Resolve for every target with the planned torch and the newest wheel of every program; empty if that fails."""
    first = requests[0]
    family = first.catalog.family.union(first.files)
    requirements, limits = first.request.requirements, first.pins.constraints
    target, python = first.target.up_to(first.machine.glibc), first.choice.python
    programs = list_programs(requirements, family, target, python, session, constraints=limits)
    if first.pins.preferred or not all(program.needs_no_building for program in programs):
        return []
    bounds = [f"{program.name}>={program.newest.public}" for program in programs if program.newest]
    answers = side_by_side(
        partial(resolve, session=session, bounds=bounds), requests, TARGETS_AT_ONCE
    )
    resolutions = [answer for answer in answers if isinstance(answer, Resolution)]
    return resolutions if len(resolutions) == len(answers) else []


def _with_open_torch(request: LockRequest) -> LockRequest:
    return replace(request, torch=None, python=request.choice.python)


def _common_torches(requests: Sequence[LockRequest]) -> Torches:
    """Return the versions of torch that every target runs."""
    return frozenset.intersection(
        *(frozenset(build.torch for build in one.plan.runnable) for one in requests)
    )


def _propose(request: LockRequest, torches: Torches, session: Session) -> Proposal | Conflict:
    """Have uv say which versions go together, with one page of the family for all builds of these torches.

    The best builds stand first, but what only another one serves counts: a newer driver has other best builds, and may
    not make a program older.
    """
    if not torches:
        return Conflict(
            NoBuildError("targets-disagree", "no torch version supports all of these targets")
        )
    builds = [build for build in request.plan.runnable if build.torch in torches]
    requirements, python = request.request.requirements, request.choice.python
    target = request.target.up_to(request.machine.glibc)
    has_own_source = any(build.source != DEFAULT_INDEX for build in builds)
    backends = {build.backend.tag for build in builds} if has_own_source else ()
    bound = bind(requirements, backends, request.catalog, session)
    limits = request.pins.constraints
    family = bound.names.union(request.files)
    programs = tuple(
        list_programs(requirements, family, target, python, session, constraints=limits)
    )
    if len(torches) == 1:
        return Proposal(torches, programs)
    if not any(map(is_torch, requirements)):
        requirements = (*requirements, "torch")
    wheels_of = partial(_wheels_of, builds=builds, tags=target.tags(python), session=session)
    beside = frozenset.intersection(
        *(frozenset(request.catalog.beside(torch)) for torch in torches)
    )
    pins = request.pins if has_own_source else request.pins.within(_only_torches(torches, request))
    wheels_only = family.union(program.name for program in programs if program.needs_no_building)
    wheels_only |= session.sources.only_binary - {":all:"}
    project = ResolverProject(
        programs_first(requirements, bound.names),
        python,
        target,
        pages={**bound.pages(wheels_of, session), **request.files},
        pins=pins.within(*beside),
        folder=session.folder,
        wheels_only=wheels_only,
        sources=session.sources,
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
    """Propose again, once nothing can be newer, among the torches with the same constraints beside them."""
    newer = _improved(proposal, session)
    if isinstance(newer, Conflict):
        return newer
    beside = request.catalog.beside(newer.torch)
    alike = frozenset(
        torch for torch in proposal.torches if request.catalog.beside(torch) == beside
    )
    return _propose(request, alike, session)


def _wheels_of(
    package: str, *, builds: Sequence[Build], tags: Sequence[Tag], session: Session
) -> tuple[Wheel, ...]:
    """Return the wheels of these builds of torch; of another package one of each version, the best build's first."""

    @cache
    def listed(source: WheelSource, backend: str) -> tuple[Wheel, ...]:
        if source is DEFAULT_INDEX:
            return fitting(default_wheels(session.sources, session.client, package), backend, tags)
        return fitting(
            family_wheels(session.sources, session.client, backend, package), backend, tags
        )

    wheels: dict[str, Wheel] = {}
    for build in builds:
        for wheel in listed(build.source, build.backend.tag):
            if package != "torch" or wheel.version.public == str(build.torch):
                wheels.setdefault(wheel.version.public, wheel)
    return tuple(wheels.values())


def _only_torches(torches: Torches, request: LockRequest) -> str:
    """Return the constraint on versions of the default index, which lists those too that do not run."""
    oldest, newest = min(torches), max(torches)
    listed = {
        build.torch
        for build in request.catalog.builds_for(request.machine.os, request.machine.arch)
    }
    others = sorted(torch for torch in listed - torches if oldest < torch < newest)
    return ",".join([f"torch>={oldest}", f"<={newest}", *(f"!={torch}" for torch in others)])


def _refused_by_machine(conflict: Conflict, request: LockRequest) -> Conflict:
    """Return what the machine has against every torch that packages require, if that is the reason."""
    others = tuple(text for text in request.request.requirements if not is_torch(text))
    refusals = list[Rejected]()
    for specifier in required_torches(conflict.why):
        required = replace(request.request, requirements=(f"torch{specifier}", *others))
        outcome = replace(request, request=required).outcome
        if isinstance(outcome, Plan):
            return conflict
        refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(request.machine)
    error.why = conflict.why
    return Conflict(error)


def _carried_out(
    proposal: Proposal, requests: Sequence[LockRequest], session: Session
) -> tuple[Proposal | Conflict, list[Resolution | Conflict]]:
    """Resolve a proposal for every target, and meanwhile find out whether a program could be newer."""
    with ThreadPoolExecutor(TARGETS_AT_ONCE + 1) as pool:
        improved = pool.submit(_improved, proposal, session)

        def answers_to(proposal: Proposal) -> list[Resolution | Conflict]:
            # The target that proposed can have what it proposed; the others may need older programs.
            bounds = [proposal.bounds, *[()] * (len(requests) - 1)]
            return list(
                pool.map(
                    partial(_with_best_build, torch=proposal.torch, session=session),
                    requests,
                    bounds,
                )
            )

        answers = answers_to(proposal)
        better = improved.result()
        if isinstance(better, Conflict) or better.versions == proposal.versions:
            return better, answers
        return better, answers_to(better)


def _improved(proposal: Proposal, session: Session) -> Proposal | Conflict:
    """Ask of each program, and of torch after them, whether it can be newer with those before it kept.

    uv turns to old versions of a program if others of its demands were in the way several times. A mirror that lists
    torch and nothing that goes with it is a conflict: the programs that it leaves are years old.
    """
    if proposal.project is None:
        return proposal
    versions, project = proposal.versions, proposal.project
    obstacles = dict[str, str]()
    has_companions = any(project.pages.get(companion) for companion in COMPANIONS)
    for program in (*proposal.programs, ListedProgram("torch", None, max(proposal.torches))):
        for _ in range(IMPROVEMENTS):
            resolved = versions.get(program.name)
            if (
                resolved is None
                or program.name in project.pins.preferred
                or not program.is_newer_than(resolved[0])
            ):
                break
            answer = resolve_versions(project.within(_bound(program.name, ">", versions)), session)
            if isinstance(answer, Conflict):
                if answer.error.code == FAMILY_UNLISTED and not has_companions:
                    return answer.against(f"{program.name} {program.newest}")
                obstacles[program.name] = answer.why
                break
            if Version(
                answer[program.name][0]
            ).is_prerelease:  # uv takes one if no final release is left
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
    """Say in the plan who requires this torch, and what could not be the newest; ``common`` runs on every target."""
    request, settled = resolution.request, resolution.request.settled
    if settled is None:
        return resolution
    why = ""
    if proposal.torch < resolution.plan.runnable[0].torch and "torch" in proposal.versions:
        why = who_requires_torch(proposal.versions, proposal.obstacles, proposal.programs)
        if proposal.torch == common:
            why = f"torch {common} is the newest that all targets run"
    beside = request.catalog.beside(settled.torch)
    older_programs = tuple(
        held_back(resolution.versions, proposal.obstacles, proposal.programs, beside)
    )
    explained = replace(request, settled=replace(settled, why=why, held_back=older_programs))
    return replace(resolution, request=explained, plan=explained.plan)


def _bound(name: str, operator: str, versions: ResolvedVersions) -> str:
    """Return a constraint; uv allows no local version in one."""
    return f"{name}{operator}{versions[name][0].partition('+')[0]}"
