"""What uv proposes if programs are requested: they come first, and torch is open over the builds that run.

The torch that comes out is given its best build, and the whole is resolved once more with that build.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import requirement_names
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.listing import COMPANIONS
from gpuinstall.lock.binding import Binding
from gpuinstall.lock.programs import (
    ListedProgram,
    held_back,
    list_programs,
    required_torches,
    shortened,
    who_requires_torch,
)
from gpuinstall.lock.request import LockRequest, common_torches, is_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.resolver import ResolverProject, resolve_project, versions_in
from gpuinstall.lock.uv_failure import FAMILY_UNLISTED, Conflict, all_or_conflict
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.values import ProgramConstraints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.lock.request import Requests
    from gpuinstall.sources.session import Session

    Torches = frozenset[Version]
    Versions = Mapping[str, str]

IMPROVEMENTS = 3
"""How often one program is asked whether it can be newer: uv takes a step of one obstacle at a time."""


@dataclass(frozen=True)
class Proposal:
    """The versions that programs take if torch is open."""

    torch: Version
    programs: Sequence[ListedProgram]
    """What was requested beside the family, in that order."""

    versions: Mapping[str, str] = field(default_factory=dict)
    """The version of every package; none if one torch was left, and there was nothing to resolve."""

    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Why a program cannot be newer, in uv's words."""

    def bounds(self, beside: Sequence[str]) -> tuple[str, ...]:
        """Return the constraints that keep the programs as new as they are; ``beside`` are those of the torch."""
        names = {program.name for program in self.programs} & self.versions.keys()
        names -= requirement_names(beside)
        return tuple(_bound(name, ">=", self.versions) for name in sorted(names))


def resolve_programs(
    requests: Requests, session: Session
) -> list[Resolution] | Conflict:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    The first target proposes, and all must be able; else the next torch is proposed.
    """
    requests = [_with_open_torch(request) for request in requests]
    common = frozenset(common_torches(requests))
    newest = _all_newest(requests, common, session)
    if newest:
        return newest
    remaining = common
    conflict: Conflict | None = None
    while True:
        proposal = _propose(requests[0], remaining, session)
        if isinstance(proposal, Conflict):
            return conflict or _refused_by_machine(proposal, requests[0])
        answer = _resolve_all(requests, proposal, session)
        if not isinstance(answer, Conflict):
            return [_explained(one, proposal, max(common)) for one in answer]
        text = f"without torch {proposal.torch}: {shortened(answer.why)}"
        session.reporter.detail("Search", text)
        conflict = conflict or answer
        remaining -= {proposal.torch}


def _resolve_all(
    requests: Requests,
    proposal: Proposal,
    session: Session,
    *,
    most_builds: int | None = None,
) -> list[Resolution] | Conflict:
    """Resolve for every target with the proposed torch, side by side, or return the first conflict."""
    bounds = proposal.bounds(requests[0].catalog.beside(proposal.torch))

    def resolve_one(request: LockRequest) -> Resolution | Conflict:
        # The target that proposed can have what it proposed; the others may need older programs.
        own_bounds = bounds if request is requests[0] else ()
        builds = [one for one in request.plan.runnable if one.torch == proposal.torch]
        return _with_best_build(request, builds[:most_builds], own_bounds, session)

    return all_or_conflict(side_by_side(resolve_one, requests, TARGETS_AT_ONCE))


def _all_newest(
    requests: Requests, torches: Torches, session: Session
) -> list[Resolution] | None:
    """Resolve with the newest of everything: most goes together, and one run of uv for each target says so.

    If uv names the torch that the newest programs require, it is asked once more. None if they do not go together, if
    the versions of a lock come first, or if the newest of a program would be built.
    """
    first = requests[0]
    programs = list_programs(first, session)
    if first.pins.preferred or not all(program.has_wheel for program in programs):
        return None
    newest = {program.name: str(program.newest) for program in programs}
    obstacles = dict[str, str]()
    remaining = torches
    while remaining:
        proposal = Proposal(max(remaining), programs, newest, obstacles)
        answer = _resolve_all(requests, proposal, session, most_builds=1)
        if not isinstance(answer, Conflict):
            if any(_prereleases(one.versions) for one in answer):
                return None
            proposal = replace(proposal, versions=answer[0].versions)
            return [_explained(one, proposal, max(torches)) for one in answer]
        required = required_torches(answer.why)
        if obstacles or not required:
            return None
        obstacles["torch"] = answer.why
        remaining = frozenset(
            torch
            for torch in remaining - {proposal.torch}
            if all(one.allows(torch) for one in required)
        )
    return None


def torch_of_programs(requests: Requests, session: Session) -> Version | Conflict:
    """Return the torch that the programs want of those that all targets run, as the first proposes it."""
    requests = [_with_open_torch(request) for request in requests]
    proposal = _propose(requests[0], frozenset(common_torches(requests)), session)
    return proposal if isinstance(proposal, Conflict) else proposal.torch


def _with_open_torch(request: LockRequest) -> LockRequest:
    return replace(request, torch=None, python=request.choice.python)


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
    requirements = request.request.requirements
    if not any(map(is_torch, requirements)):
        requirements = (*requirements, "torch")
    binding = Binding(requirements, builds, request, session)
    pins = request.pins
    if not binding.has_own_source:
        pins = pins.within(_only_torches(torches, request))
    project, programs = binding.project(pins)
    if len(torches) == 1:
        return Proposal(max(torches), programs)
    answer = _newest_versions(project, programs, torches, binding, session)
    if isinstance(answer, Conflict):
        return answer
    versions, obstacles = answer
    torch = _torch_in(versions, torches)
    if torch in torches:
        return Proposal(torch, programs, versions, obstacles)
    message = f"the request requires torch {torch}, of which no source has a build that runs here"
    return Conflict(NoBuildError("requirements-conflict", message))


def _torch_in(versions: Mapping[str, str], torches: Torches) -> Version:
    if "torch" not in versions:
        return max(torches)
    return Version(Version(versions["torch"]).public)


def _only_torches(torches: Torches, request: LockRequest) -> str:
    """Return the constraint on versions of the default index, which lists those too that do not run."""
    others = {build.torch for build in request.catalog.builds} - torches
    excluded = [f"!={torch}" for torch in sorted(others)]
    return ",".join([f"torch>={min(torches)}", f"<={max(torches)}", *excluded])


def _refused_by_machine(conflict: Conflict, request: LockRequest) -> Conflict:
    """Return what the machine has against every torch that packages require, if that is the reason."""
    others = [text for text in request.request.requirements if not is_torch(text)]
    refusals = list[Rejected]()
    for torch in required_torches(conflict.why):
        outcome = request.asking(requirements=(torch.text, *others)).outcome
        if isinstance(outcome, Plan):
            return conflict
        refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(request.machine)
    error.why = conflict.why
    return Conflict(error)


def _newest_versions(
    project: ResolverProject,
    programs: Sequence[ListedProgram],
    torches: Torches,
    binding: Binding,
    session: Session,
) -> tuple[Versions, dict[str, str]] | Conflict:
    """Return the version of every package, and why a program, or torch after them, cannot be newer.

    uv turns to old versions of a program if others of its demands were in the way several times: each is asked for
    newer, with those before it as they are. A mirror that lists torch and nothing that goes with it is a conflict: the
    programs that it leaves are years old.
    """
    versions = _resolve_beside_any_build(torches, project, binding, session)
    if isinstance(versions, Conflict):
        return versions
    obstacles: dict[str, str] = {}
    has_companions = any(project.pages.get(companion) for companion in COMPANIONS)
    for program in (*programs, ListedProgram("torch", max(torches))):
        name = program.name
        for _ in range(IMPROVEMENTS):
            is_open = name in versions and name not in project.pins.preferred
            if not is_open or not program.is_newer_than(versions[name]):
                break
            newer = project.within(_bound(name, ">", versions))
            if name == "torch":
                others = frozenset(
                    other for other in torches if other > _torch_in(versions, torches)
                )
                answer = _resolve_beside_any_build(others, newer, binding, session)
            else:
                answer = _resolve_versions(newer, session)
            if isinstance(answer, Conflict):
                if answer.error.code == FAMILY_UNLISTED and not has_companions:
                    return answer
                obstacles[name] = answer.why
                break
            # What only the newer version requires may have nothing but pre-releases.
            if not (_prereleases(answer) - _prereleases(versions)).isdisjoint(versions):
                break
            versions = answer
        if name in versions:
            project = project.within(_bound(name, ">=", versions))
    return versions, obstacles


def _prereleases(versions: Versions) -> frozenset[str]:
    """Return the packages of which uv took a pre-release: it does if no release is left, also for a newer program."""
    return frozenset(
        name for name, version in versions.items() if Version(version).is_prerelease
    )


def _resolve_versions(
    project: ResolverProject, session: Session
) -> Versions | Conflict:
    document = resolve_project(project, session)
    if isinstance(document, Conflict):
        return document
    return {name: version for name, version in versions_in(document).items() if version}


def _resolve_beside_any_build(
    torches: Torches,
    project: ResolverProject,
    binding: Binding,
    session: Session,
) -> Versions | Conflict:
    """Resolve with the best build of every torch, and with others if nothing goes with what these pin.

    No other one is tried if the programs require none of these torches.
    """
    conflict = _resolve_versions(project, session)
    if not isinstance(conflict, Conflict):
        return conflict
    for requirement in required_torches(conflict.why):
        if not any(map(requirement.allows, torches)):
            return conflict
    for backend in binding.backends[1:]:
        answer = _resolve_versions(
            replace(project, pages=binding.pages(backend)), session
        )
        if not isinstance(answer, Conflict):
            return answer
    return conflict


def _with_best_build(
    request: LockRequest,
    builds: Sequence[Build],
    bounds: Sequence[str],
    session: Session,
) -> Resolution | Conflict:
    """Resolve with the first of some builds of one torch that the programs can be had with, within ``bounds``."""
    conflicts = []
    unserved = dict[str, str]()
    for build in builds:
        constraints = ProgramConstraints(build.torch, "", dict(unserved))
        chosen = replace(request, program_constraints=constraints)
        answer = resolve(chosen, session, bounds)
        if isinstance(answer, Resolution):
            return answer
        conflicts.append(answer)
        unserved[build.backend.tag] = shortened(answer.why)
    return conflicts[0]


def _explained(
    resolution: Resolution, proposal: Proposal, common: Version
) -> Resolution:
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


def _bound(name: str, operator: str, versions: Mapping[str, str]) -> str:
    """Return a constraint; uv allows no local version in one."""
    return f"{name}{operator}{versions[name].partition('+')[0]}"
