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
    prereleases,
    required_torches,
    shortened,
    who_requires_torch,
)
from gpuinstall.lock.request.lock_request import LockRequest, common_torches, is_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.resolver import ResolverProject, resolve_project, versions_in
from gpuinstall.lock.uv_failure import FAMILY_UNLISTED, Conflict, all_or_conflict
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.values import ProgramConstraints

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.catalog import Build
    from gpuinstall.lock.request.lock_request import Requests
    from gpuinstall.sources.session import Session

    Torches = frozenset[Version]
    Versions = Mapping[str, str]

IMPROVEMENTS = 3
"""How often one program is asked whether it can be newer: uv takes a step of one obstacle at a time."""


@dataclass(frozen=True)
class Proposal:
    """The versions that programs take if torch is open."""

    torch: Version
    versions: Mapping[str, str] = field(default_factory=dict)
    """The version of every package; none if one torch was left, and there was nothing to resolve."""

    obstacles: Mapping[str, str] = field(default_factory=dict)
    """Why a program, or torch, cannot be newer, in uv's words."""


def resolve_programs(
    requests: Requests,
    session: Session,
) -> list[Resolution] | Conflict:
    """Resolve programs for every target with one torch: the one that they want of those that all targets run.

    The first target proposes, and all must be able; else the next torch is proposed.
    """
    choice = _ProgramChoice(requests, session)
    newest = choice.all_newest()
    if newest:
        return newest
    remaining = choice.torches
    conflict: Conflict | None = None
    while True:
        proposal = choice.propose(remaining)
        if isinstance(proposal, Conflict):
            return conflict or choice.refused_by_machine(proposal)
        answer = choice.resolve(proposal)
        if not isinstance(answer, Conflict):
            return answer
        # Of several, the first is told: it stands against the newest torch.
        conflict = conflict or answer
        remaining -= {proposal.torch}


def torch_of_programs(
    requests: Requests,
    session: Session,
) -> Version | Conflict:
    """Return the torch that the programs want of those that all targets run, as the first proposes it."""
    choice = _ProgramChoice(requests, session)
    proposal = choice.propose(choice.torches)
    return proposal if isinstance(proposal, Conflict) else proposal.torch


class _ProgramChoice:
    """The choice of versions for programs, and of the torch for all targets."""

    def __init__(self, requests: Requests, session: Session) -> None:
        self._requests = [
            replace(request, torch=None, python=request.choice.python)
            for request in requests
        ]
        self._first = self._requests[0]
        self._session = session
        self._programs = list_programs(self._first, session)
        """What was requested beside the family, in that order."""
        self.torches = frozenset(common_torches(self._requests))
        """Those that run on all targets."""

    def all_newest(self) -> list[Resolution] | None:
        """Resolve with the newest of everything: most goes together, and one run of uv for each target says so.

        If uv names the torch that the newest programs require, it is asked once more. None if they do not go together,
        if the versions of a lock come first, or if the newest of a program would be built.
        """
        has_wheels = all(program.has_wheel for program in self._programs)
        if self._first.pins.preferred or not has_wheels:
            return None
        newest = {program.name: str(program.newest) for program in self._programs}
        obstacles = dict[str, str]()
        remaining = self.torches
        while remaining:
            proposal = Proposal(max(remaining), newest, obstacles)
            answer = self.resolve(proposal, most_builds=1)
            if not isinstance(answer, Conflict):
                has_early = any(prereleases(one.versions) for one in answer)
                return None if has_early else answer
            required = required_torches(answer.why)
            # A second refusal tells nothing of which versions go together: uv has to propose.
            if obstacles or not required:
                return None
            obstacles["torch"] = answer.why
            remaining = frozenset(
                torch
                for torch in remaining - {proposal.torch}
                if all(one.allows(torch) for one in required)
            )
        return None

    def resolve(
        self,
        proposal: Proposal,
        most_builds: int | None = None,
    ) -> list[Resolution] | Conflict:
        """Resolve for every target with the proposed torch, side by side, or return the first conflict."""
        names = {one.name for one in self._programs} & proposal.versions.keys()
        # What this release of torch allows of them (numpy<2) comes before what was proposed.
        names -= requirement_names(self._first.catalog.beside(proposal.torch))
        bounds = [_bound(name, ">=", proposal.versions) for name in sorted(names)]

        def resolve_one(request: LockRequest) -> Resolution | Conflict:
            # The target that proposed can have what it proposed; the others may need older programs.
            own_bounds = bounds if request is self._first else ()
            builds = [
                build
                for build in request.plan.runnable
                if build.torch == proposal.torch
            ]
            answer = self._with_best_build(request, builds[:most_builds], own_bounds)
            if isinstance(answer, Conflict):
                return answer
            return self._explained(answer, proposal)

        answers = side_by_side(resolve_one, self._requests, TARGETS_AT_ONCE)
        return all_or_conflict(answers)

    def _with_best_build(
        self,
        request: LockRequest,
        builds: Sequence[Build],
        bounds: Sequence[str],
    ) -> Resolution | Conflict:
        """Resolve with the first of some builds of one torch that the programs can be had with, within ``bounds``."""
        conflicts = []
        unserved = dict[str, str]()
        for build in builds:
            constraints = ProgramConstraints(build.torch, "", dict(unserved))
            chosen = replace(request, program_constraints=constraints)
            answer = resolve(chosen, self._session, bounds)
            if isinstance(answer, Resolution):
                return answer
            conflicts.append(answer)
            unserved[build.backend.tag] = shortened(answer.why)
        return conflicts[0]

    def _explained(
        self,
        resolution: Resolution,
        proposal: Proposal,
    ) -> Resolution:
        """Return a resolution whose plan tells who requires this torch, and what could not be the newest."""
        request = resolution.request
        constraints = request.program_constraints
        if constraints is None:
            return resolution
        versions = resolution.versions
        why = ""
        if proposal.torch < resolution.plan.runnable[0].torch:
            newest = max(self.torches)
            why = f"torch {newest} is the newest that all targets run"
            if proposal.torch != newest:
                why = who_requires_torch(versions, proposal.obstacles, self._programs)
        older_programs = held_back(
            versions,
            proposal.obstacles,
            self._programs,
            request.catalog.beside(constraints.torch),
        )
        constraints = replace(constraints, why=why, held_back=tuple(older_programs))
        request = replace(request, program_constraints=constraints)
        return replace(resolution, request=request, plan=request.plan)

    def propose(self, torches: Torches) -> Proposal | Conflict:
        """Have uv say which versions go together, with one page of the family for all builds of these torches.

        The best builds stand first, but what only another one serves counts: a newer driver has other best builds, and
        may not make a program older.
        """
        if not torches:
            message = "no torch version supports all of these targets"
            return Conflict(NoBuildError("targets-disagree", message))
        if len(torches) == 1:
            return Proposal(max(torches))
        request = self._first
        builds = [build for build in request.plan.runnable if build.torch in torches]
        requirements = request.request.requirements
        if not any(map(is_torch, requirements)):
            requirements = (*requirements, "torch")
        binding = Binding(requirements, builds, request, self._session)
        pins = request.pins
        if not binding.has_own_source:
            # The default index lists those too that do not run.
            others = {build.torch for build in request.catalog.builds} - torches
            excluded = [f"!={torch}" for torch in sorted(others)]
            limits = [f"torch>={min(torches)}", f"<={max(torches)}", *excluded]
            pins = pins.within(",".join(limits))
        proposal = self._newest_versions(binding.project(pins), torches, binding)
        if isinstance(proposal, Conflict) or proposal.torch in torches:
            return proposal
        message = f"the request requires torch {proposal.torch}, of which no source has a build that runs here"
        return Conflict(NoBuildError("requirements-conflict", message))

    def refused_by_machine(self, conflict: Conflict) -> Conflict:
        """Return what the machine has against every torch that packages require, if that is the reason."""
        request = self._first
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
        self,
        project: ResolverProject,
        torches: Torches,
        binding: Binding,
    ) -> Proposal | Conflict:
        """Return the version of every package, and why a program, or torch after them, cannot be newer.

        uv turns to old versions of a program if others of its demands were in the way several times: each is asked for
        newer, with those before it as they are. A mirror that lists torch and nothing that goes with it is a conflict:
        the programs that it leaves are years old.
        """
        versions = self._beside_any_build(project, torches, binding)
        if isinstance(versions, Conflict):
            return versions
        obstacles: dict[str, str] = {}
        has_companions = any(project.pages.get(companion) for companion in COMPANIONS)
        for program in (*self._programs, ListedProgram("torch", max(torches))):
            name = program.name
            for _ in range(IMPROVEMENTS):
                is_open = name in versions and name not in project.pins.preferred
                if not is_open or not program.is_newer_than(versions[name]):
                    break
                newer = project.within(_bound(name, ">", versions))
                if name == "torch":
                    current = Version(versions[name])
                    others = frozenset(one for one in torches if one > current)
                    answer = self._beside_any_build(newer, others, binding)
                else:
                    answer = self._versions(newer)
                if isinstance(answer, Conflict):
                    if answer.error.code == FAMILY_UNLISTED and not has_companions:
                        return answer
                    obstacles[name] = answer.why
                    break
                # What only the newer version requires may have nothing but pre-releases.
                early = prereleases(answer) - prereleases(versions)
                if not early.isdisjoint(versions):
                    break
                versions = answer
            if name in versions:
                project = project.within(_bound(name, ">=", versions))
        torch = Version(versions.get("torch", str(max(torches))))
        return Proposal(Version(torch.public), versions, obstacles)

    def _beside_any_build(
        self,
        project: ResolverProject,
        torches: Torches,
        binding: Binding,
    ) -> Versions | Conflict:
        """Resolve with the best build of every torch, and with others if nothing goes with what these pin.

        No other one is tried if the programs require none of these torches.
        """
        conflict = self._versions(project)
        if not isinstance(conflict, Conflict):
            return conflict
        for requirement in required_torches(conflict.why):
            if not any(map(requirement.allows, torches)):
                return conflict
        for backend in binding.backends[1:]:
            other = replace(project, pages=binding.pages(backend))
            answer = self._versions(other)
            if not isinstance(answer, Conflict):
                return answer
        return conflict

    def _versions(self, project: ResolverProject) -> Versions | Conflict:
        document = resolve_project(project, self._session)
        if isinstance(document, Conflict):
            return document
        versions = versions_in(document).items()
        return {name: version for name, version in versions if version}


def _bound(
    name: str,
    operator: str,
    versions: Versions,
) -> str:
    """Return a constraint; uv allows no local version in one."""
    return f"{name}{operator}{versions[name].partition('+')[0]}"
