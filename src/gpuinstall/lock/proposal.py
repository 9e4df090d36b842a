"""What uv proposes if programs are requested: they come first, and torch is open over the builds that run.

The torch that comes out is given its best build, and the whole is resolved once more with that build.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import parse_requirement
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import DEFAULT_INDEX, Build, Wheel
from gpuinstall.catalog.listing import COMPANIONS, default_wheels, family_wheels
from gpuinstall.lock.binding import bind, fitting
from gpuinstall.lock.obstacles import (
    held_back,
    required_torches,
    shortened,
    who_requires_torch,
)
from gpuinstall.lock.programs import (
    ListedProgram,
    list_programs,
    programs_first,
)
from gpuinstall.lock.request import LockRequest, is_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.resolver import ResolvedVersions, ResolverProject, resolve_versions
from gpuinstall.lock.uv_failure import FAMILY_UNLISTED, Conflict
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.values import ProgramConstraints

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from packaging.tags import Tag

    from gpuinstall.catalog.catalog import WheelSource
    from gpuinstall.lock.request import Requests
    from gpuinstall.sources.session import Session

    Torches = frozenset[Version]
    Pages = dict[str, tuple[Wheel, ...]]

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

    backends: tuple[str, ...] = ()
    """Those of the builds of torch, the best first."""

    pages: Callable[[str], Pages] | None = None
    """Returns what the family may come from, with the builds of a backend before better ones."""

    versions: ResolvedVersions = field(default_factory=dict)
    """The version of every package, with who requires it."""

    obstacles: dict[str, str] = field(default_factory=dict)
    """Why a program cannot be newer, in uv's words."""

    @property
    def torch(self) -> Version:
        """The torch that the programs want."""
        if "torch" not in self.versions:
            return max(self.torches)
        version, *_ = self.versions["torch"]
        return Version(Version(version).public)

    @property
    def bounds(self) -> tuple[str, ...]:
        """The constraints that keep the programs as new as they are."""
        names = [program.name for program in self.programs if program.name in self.versions]
        return tuple(_bound(name, ">=", self.versions) for name in names)


def resolve_programs(
    requests: Requests,
    session: Session,
) -> list[Resolution] | RejectedTorch | Conflict:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    The first target proposes, and all must be able.
    """
    rejected = requests[0].rejected_torches
    requests = [_with_open_torch(request) for request in requests]
    common = _common_torches(requests)
    proposal = _propose(requests[0], common - rejected, session)
    if isinstance(proposal, Conflict):
        return proposal if rejected else _refused_by_machine(proposal, requests[0])
    better = _improved(proposal, session)
    if isinstance(better, Conflict):
        return better
    resolve_one = partial(_with_best_build, torch=better.torch, session=session)
    # The target that proposed can have what it proposed; the others may need older programs.
    bounds = [better.bounds, *[()] * (len(requests) - 1)]
    with ThreadPoolExecutor(TARGETS_AT_ONCE) as pool:
        answers = list(pool.map(resolve_one, requests, bounds))
    resolutions = []
    for answer in answers:
        if isinstance(answer, Conflict):
            return RejectedTorch(better.torch, answer)
        resolutions.append(_explained(answer, better, max(common)))
    return resolutions


def torch_of_programs(
    requests: Requests,
    session: Session,
) -> Version | Conflict:
    """Return the torch that the programs want of those that all targets run, as the first proposes it."""
    requests = [_with_open_torch(request) for request in requests]
    proposal = _propose(
        requests[0],
        _common_torches(requests),
        session,
    )
    return proposal if isinstance(proposal, Conflict) else proposal.torch


def _prereleases(versions: Mapping[str, str]) -> frozenset[str]:
    """Return the packages of which uv took a pre-release.

    It takes one where no release is left, also where that is for a torch or a program that was to be newer.
    """
    return frozenset(name for name, version in versions.items() if Version(version).is_prerelease)


def _numbers(versions: ResolvedVersions) -> dict[str, str]:
    return {name: version for name, (version, _) in versions.items()}


def _programs(
    request: LockRequest,
    family: frozenset[str],
    session: Session,
) -> list[ListedProgram]:
    """Return what is requested beside the family and the extensions."""
    return list_programs(
        request.request.requirements,
        family.union(request.files),
        request.target,
        request.choice.python,
        session,
        constraints=request.pins.constraints,
    )


def _with_open_torch(request: LockRequest) -> LockRequest:
    return replace(
        request,
        torch=None,
        python=request.choice.python,
    )


def _common_torches(requests: Requests) -> Torches:
    """Return the versions of torch that every target runs."""
    torches = [{build.torch for build in request.plan.runnable} for request in requests]
    return frozenset(set.intersection(*torches))


def _propose(
    request: LockRequest,
    torches: Torches,
    session: Session,
) -> Proposal | Conflict:
    """Have uv say which versions go together, with one page of the family for all builds of these torches.

    The best builds stand first, but what only another one serves counts: a newer driver has other best builds, and may
    not make a program older.
    """
    if not torches:
        message = "no torch version supports all of these targets"
        return Conflict(NoBuildError("targets-disagree", message))
    builds = [build for build in request.plan.runnable if build.torch in torches]
    has_own_source = any(build.source != DEFAULT_INDEX for build in builds)
    backends = {build.backend.tag for build in builds} if has_own_source else ()
    requirements = request.request.requirements
    binding = bind(
        requirements,
        backends,
        request.catalog,
        session,
    )
    programs = tuple(_programs(request, binding.names, session))
    if len(torches) == 1:
        return Proposal(torches, programs)
    of_each = [set(request.catalog.beside(torch)) for torch in torches]
    beside = set.intersection(*of_each)
    pins = request.pins
    if not has_own_source:
        pins = pins.within(_only_torches(torches, request))
    wheels_only = binding.names.union(request.files, session.sources.only_binary - {":all:"})
    wheels_only |= {program.name for program in programs if program.needs_no_building}
    if not any(map(is_torch, requirements)):
        requirements = (*requirements, "torch")
    tags = request.target.tags(request.choice.python)

    def pages(preferred: str) -> Pages:
        wheels_of = partial(
            _wheels_of,
            builds=sorted(builds, key=lambda build: build.backend.tag != preferred),
            tags=tags,
            session=session,
        )
        return {**binding.pages(wheels_of, session), **request.files}

    ranked = tuple(dict.fromkeys(build.backend.tag for build in builds))
    project = ResolverProject(
        requirements=programs_first(requirements, binding.names),
        python=request.choice.python,
        target=request.target,
        pages=pages(ranked[0]),
        pins=pins.within(*beside),
        folder_projects=request.folder_projects,
        folder=session.folder,
        wheels_only=wheels_only,
        sources=session.sources,
    )
    versions = _resolve_beside_any_build(torches, project, pages, ranked, session)
    if isinstance(versions, Conflict):
        return versions
    proposal = Proposal(torches, programs, project, ranked, pages, versions)
    if proposal.torch not in torches:
        message = f"the request requires torch {proposal.torch}, of which no source has a build that runs here"
        return Conflict(NoBuildError("requirements-conflict", message))
    if beside.issuperset(request.catalog.beside(proposal.torch)):
        return proposal
    return _of_its_kind(proposal, request, session)


def _of_its_kind(
    proposal: Proposal,
    request: LockRequest,
    session: Session,
) -> Proposal | Conflict:
    """Propose again, once nothing can be newer, among the torches with the same constraints beside them."""
    newer = _improved(proposal, session)
    if isinstance(newer, Conflict):
        return newer
    beside = request.catalog.beside(newer.torch)
    alike = [torch for torch in proposal.torches if request.catalog.beside(torch) == beside]
    return _propose(request, frozenset(alike), session)


def _wheels_of(
    package: str,
    *,
    builds: Sequence[Build],
    tags: Sequence[Tag],
    session: Session,
) -> tuple[Wheel, ...]:
    """Return the wheels of these builds of torch; of another package one of each version, the best build's first."""

    @cache
    def listed(
        source: WheelSource,
        backend: str,
    ) -> tuple[Wheel, ...]:
        if source is DEFAULT_INDEX:
            wheels = default_wheels(session.sources, session.client, package)
        else:
            wheels = family_wheels(
                session.sources,
                session.client,
                backend,
                package,
            )
        return fitting(wheels, backend, tags)

    wheels: dict[str, Wheel] = {}
    for build in builds:
        for wheel in listed(build.source, build.backend.tag):
            version = wheel.version.public
            if package != "torch" or version == str(build.torch):
                wheels.setdefault(version, wheel)
    return tuple(wheels.values())


def _only_torches(torches: Torches, request: LockRequest) -> str:
    """Return the constraint on versions of the default index, which lists those too that do not run."""
    oldest = min(torches)
    newest = max(torches)
    bounds = [f"torch>={oldest}", f"<={newest}"]
    machine = request.machine
    builds = request.catalog.builds_for(machine.os, machine.arch)
    others = {build.torch for build in builds} - torches
    bounds += [f"!={torch}" for torch in sorted(others) if oldest < torch < newest]
    return ",".join(bounds)


def _refused_by_machine(conflict: Conflict, request: LockRequest) -> Conflict:
    """Return what the machine has against every torch that packages require, if that is the reason."""
    others = [text for text in request.request.requirements if not is_torch(text)]
    refusals = list[Rejected]()
    for specifier in required_torches(conflict.why):
        requirements = (f"torch{specifier}", *others)
        required = replace(request.request, requirements=requirements)
        outcome = replace(request, request=required).outcome
        if isinstance(outcome, Plan):
            return conflict
        refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(request.machine)
    error.why = conflict.why
    return Conflict(error)


def _improved(proposal: Proposal, session: Session) -> Proposal | Conflict:
    """Ask of each program, and of torch after them, whether it can be newer with those before it as they are.

    uv turns to old versions of a program if others of its demands were in the way several times. A mirror that lists
    torch and nothing that goes with it is a conflict: the programs that it leaves are years old.
    """
    if proposal.project is None:
        return proposal
    project = proposal.project
    versions = proposal.versions
    obstacles = {}
    has_companions = any(project.pages.get(companion) for companion in COMPANIONS)
    torch = ListedProgram("torch", None, max(proposal.torches))
    for program in (*proposal.programs, torch):
        name = program.name
        for _ in range(IMPROVEMENTS):
            if name not in versions or name in project.pins.preferred:
                break
            if not program.is_newer_than(versions[name][0]):
                break
            newer = project.within(_bound(name, ">", versions))
            answer = _resolve_newer(name, newer, proposal, session)
            if isinstance(answer, Conflict):
                if answer.error.code == FAMILY_UNLISTED and not has_companions:
                    return answer.against(f"{name} {program.newest}")
                obstacles[name] = answer.why
                break
            # What only the newer version requires may have nothing but pre-releases.
            early = _prereleases(_numbers(answer)) - _prereleases(_numbers(versions))
            if not early.isdisjoint(versions):
                break
            versions = answer
        if name in versions:
            project = project.within(_bound(name, ">=", versions))
    return replace(proposal, versions=versions, obstacles=obstacles)


def _resolve_newer(
    name: str,
    project: ResolverProject,
    proposal: Proposal,
    session: Session,
) -> ResolvedVersions | Conflict:
    """Resolve with a newer version of a package; of torch with its other builds too."""
    if name != "torch" or proposal.pages is None:
        return resolve_versions(project, session)
    newer = frozenset(torch for torch in proposal.torches if torch > proposal.torch)
    return _resolve_beside_any_build(newer, project, proposal.pages, proposal.backends, session)


def _resolve_beside_any_build(
    torches: Torches,
    project: ResolverProject,
    pages: Callable[[str], Pages],
    backends: Sequence[str],
    session: Session,
) -> ResolvedVersions | Conflict:
    """Resolve with the best build of every torch, and with others if nothing goes with what these pin.

    No other one is tried if the programs require none of these torches.
    """
    conflict = resolve_versions(project, session)
    if not isinstance(conflict, Conflict):
        return conflict
    for specifier in required_torches(conflict.why):
        requirement = parse_requirement(f"torch{specifier}")
        if not any(map(requirement.allows, torches)):
            return conflict
    for backend in backends[1:]:
        other = replace(project, pages=pages(backend))
        answer = resolve_versions(other, session)
        if not isinstance(answer, Conflict):
            return answer
    return conflict


def _with_best_build(
    request: LockRequest,
    bounds: tuple[str, ...],
    *,
    torch: Version,
    session: Session,
) -> Resolution | Conflict:
    """Resolve with the best build of a torch that the programs can be had with, as new as they were proposed."""
    conflicts = []
    unserved = dict[str, str]()
    for build in request.plan.runnable:
        if build.torch != torch:
            continue
        constraints = ProgramConstraints(torch, "", dict(unserved))
        answer = resolve(
            replace(request, program_constraints=constraints),
            session,
            bounds,
        )
        if isinstance(answer, Resolution):
            return answer
        conflicts.append(answer)
        unserved[build.backend.tag] = shortened(answer.why)
    return conflicts[0]


def _explained(resolution: Resolution, proposal: Proposal, common: Version) -> Resolution:
    """Return a resolution whose plan tells who requires this torch, and what could not be the newest.

    Args:
        resolution: What was resolved with the torch of the proposal.
        proposal: The torch to take, and why it is not newer.
        common: The newest torch that runs on every target.
    """
    request = resolution.request
    constraints = request.program_constraints
    if constraints is None:
        return resolution
    why = ""
    newest = resolution.plan.runnable[0].torch
    if proposal.torch < newest and "torch" in proposal.versions:
        why = who_requires_torch(
            proposal.versions,
            proposal.obstacles,
            proposal.programs,
        )
        if proposal.torch == common:
            why = f"torch {common} is the newest that all targets run"
    older_programs = held_back(
        resolution.versions,
        proposal.obstacles,
        proposal.programs,
        request.catalog.beside(constraints.torch),
    )
    constraints = replace(
        constraints,
        why=why,
        held_back=tuple(older_programs),
    )
    request = replace(request, program_constraints=constraints)
    return replace(resolution, request=request, plan=request.plan)


def _bound(name: str, operator: str, versions: ResolvedVersions) -> str:
    """Return a constraint; uv allows no local version in one."""
    version, *_ = versions[name]
    return f"{name}{operator}{version.partition('+')[0]}"
