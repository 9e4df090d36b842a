"""Select one of several conflicting extras or groups for a machine."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.base.advice import make_change
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.lock.request.declaration import find_parts
from gpuinstall.lock.request.history import find_unfiled_requirements
from gpuinstall.lock.request.tools import TEAM_LOCKS, find_locked_versions
from gpuinstall.plan import Plan, Rejected
from gpuinstall.project.folder import suggest_parts
from gpuinstall.sources.provenance import format_recorded_sources
from gpuinstall.sources.requirements_file import PROJECT

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gpuinstall.base.reporter import Reporter
    from gpuinstall.lock.request.lock_request import LockRequest
    from gpuinstall.lock.request.pyproject import PartContents
    from gpuinstall.project.folder import Contents
    from gpuinstall.project.run import Project


def report_omitted(contents: Contents, reporter: Reporter) -> None:
    """Report extras and groups that require torch but are not selected."""
    declaration, requested = contents.declaration, contents.parts
    parts = [part for part in declaration.omitted if part not in requested]
    if parts:
        options = ", ".join(map(str, parts))
        reporter.step("Extras", f"not selected in {PROJECT}: {options}")
    for part in declaration.outranked:
        rivals = chain(*(one for one in declaration.conflicts if part in one))
        selected = " and ".join(str(one) for one in rivals if one in requested)
        message = f"{part.name} of default-groups omitted, because it conflicts with {selected}"
        reporter.step("Groups", message)


def prefer_locked_versions(
    project: Project, request: Request, markers: Mapping[str, str]
) -> Request:
    """Return a request that prefers the versions in uv.lock or poetry.lock.

    Args:
        project: The project with the lock file.
        request: The request, whose extras select a fork of uv.lock.
        markers: The marker values, which also select it.
    """
    contents = project.contents
    parts = contents.parts | find_parts(request.selected)
    preferred = find_locked_versions(contents.project_lock, markers, parts)
    releases = set(map(str, preferred))
    # Allow only the locked files of preferred versions.
    sources = format_recorded_sources(
        (
            *project.sources.uv.settings,
            *(
                one
                for one in project.sources.addresses.settings
                if one.file.name not in TEAM_LOCKS or one.package in releases
            ),
        )
    )
    return replace(request, preferred=preferred, sources=sources)


def select_extras(project: Project, wanted: LockRequest) -> Request:
    """Select one extra from each conflict, and prefer the project's versions.

    An extra in an existing lock file of the target, or in the environment's, is kept if
    it is compatible.

    Args:
        project: The project with the extras.
        wanted: The request of the project, for a machine.

    Raises:
        NoBuildError: No extra in a conflicting set has a compatible build.
    """
    contents, markers = project.contents, wanted.markers
    preferring = prefer_locked_versions(project, wanted.request, markers)
    undecided = [
        members
        for members in contents.declaration.alternatives
        if contents.parts.isdisjoint(one.part for one in members)
    ]
    if project.settings.only or preferring.selected or not undecided:
        return preferring
    kept = contents.locks.find_selected_extras(wanted.label)
    wanted = replace(wanted, request=preferring)
    whole = wanted.outcome
    # The resolution of this request reports why no build is compatible.
    if isinstance(whole, Rejected):
        return preferring
    for declared in undecided:
        members = [one.select_backend(markers) for one in declared]
        fitting = _find_compatible_extras(members, wanted, whole)
        selected = _select_best_extra(fitting, wanted, kept)
        if selected:
            wanted = _add_extra(selected, wanted)
        _report_selection(selected, members, project.reporter)
    return prefer_locked_versions(project, wanted.request, markers)


def _report_selection(
    selected: PartContents | None, members: Sequence[PartContents], reporter: Reporter
) -> None:
    others = ", ".join(str(one.part) for one in members if one is not selected)
    if selected is None:
        message = f"none selected, because {PROJECT} has none for the CPU: {others}"
        reporter.step("Extras", message)
        return
    message = f"{selected.part.name} of {PROJECT}, selected for this machine"
    message += f"; others: {others}" if others else ""
    reporter.step(selected.part.kind.title(), message)


def _find_compatible_extras(
    members: Sequence[PartContents], wanted: LockRequest, whole: Plan
) -> dict[PartContents, Plan]:
    """Return the extras that have a compatible build, with their plans.

    Args:
        members: The conflicting extras.
        wanted: The request without these extras.
        whole: The plan for the request without these extras.

    Raises:
        NoBuildError: No extra has a build for the GPUs.
    """
    is_cpu = whole.status == "cpu"
    fitting: dict[PartContents, Plan] = {}
    relaxed: dict[PartContents, Plan] = {}
    reasons = {}
    for member in members:
        if member.backend and (member.backend == CPU.tag) != is_cpu:
            continue
        backend = wanted.request.backend or member.backend
        judged = _add_extra(member, wanted).with_request_changes(backend=backend)
        plans = fitting
        outcome = judged.outcome
        if isinstance(outcome, Rejected):
            reasons[member.part.name] = outcome.reasons[0].message
            plans = relaxed
            outcome = _choose_relaxed(judged) or outcome
        if isinstance(outcome, Rejected):
            continue
        kind = outcome.choice.build.backend.kind
        if (outcome.status == "cpu") == is_cpu and member.kind in {"", kind}:
            plans[member] = outcome
    if wanted.request.relax:
        fitting = fitting or relaxed
    if not (fitting or is_cpu):
        raise _make_no_extra_error(members, reasons, relaxed, whole)
    return fitting


def _choose_relaxed(wanted: LockRequest) -> Plan | Rejected | None:
    """Return the plan that ``--relax`` leads to, or None."""
    from gpuinstall.plan.relax import find_nearest_request  # slow to import

    def find_plan(request: Request) -> Plan | Rejected:
        return replace(wanted, request=request).outcome

    nearest = find_nearest_request(wanted.request, wanted.catalog, find_plan)
    return find_plan(nearest.request) if nearest else None


def _make_no_extra_error(
    members: Sequence[PartContents],
    reasons: Mapping[str, str],
    relaxed: Mapping[PartContents, Plan],
    plan: Plan,
) -> NoBuildError:
    """Create the error for conflicting extras without a compatible build.

    Args:
        members: The conflicting extras.
        reasons: The reasons for rejecting each extra, by name.
        relaxed: The extras that ``--relax`` can install, with their plans.
        plan: The plan for the request without these extras.
    """
    from gpuinstall.plan.relax import NEAREST  # slow to import

    names = ", ".join(one.part.name for one in members)
    cpu = [one.part for one in members if one.backend == CPU.tag]
    fixes = [
        make_change(*str(one.part).split(), "--relax", note=NEAREST) for one in relaxed
    ]
    fixes += suggest_parts(cpu)
    backend = make_change("--backend", plan.choice.build.backend.tag)
    return NoBuildError(
        "no-extra",
        f"no extra of {PROJECT} has a build of torch that runs on these GPUs: {names}",
        why="; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or None,
        hint=tuple(fixes) or backend,
    )


def _select_best_extra(
    fitting: Mapping[PartContents, Plan],
    wanted: LockRequest,
    kept: Collection[str],
) -> PartContents | None:
    """Return the extra that selects the best torch build.

    Args:
        fitting: The compatible extras with their plans.
        wanted: The request without these extras.
        kept: The names of extras to prefer.
    """
    for member in fitting:
        if member.part.path in kept:
            return member
    labeled = {
        member: plan
        for member, plan in fitting.items()
        if member.backend == wanted.request.backend
    }
    fitting = labeled or fitting
    builds = {plan.choice.build for plan in fitting.values()}
    torch = wanted.with_request_changes(requirements=(ANY_TORCH,), constraints=())
    among = replace(wanted.catalog, builds=tuple(builds))
    best = replace(torch, catalog=among).outcome.choice
    for member, plan in fitting.items():
        if best and plan.choice.build == best.build:
            return member
    return next(iter(fitting), None)


def _add_extra(member: PartContents, wanted: LockRequest) -> LockRequest:
    """Add the requirements of an extra, except for typed requirements."""
    request = wanted.request
    hand = {one.name for one in find_unfiled_requirements(request) if one != ANY_TORCH}
    lines = tuple(
        one
        for one in member.listed.requirements
        if one.name not in hand and one not in request.requirements
    )
    is_preferred = member.backend not in {None, CPU.tag}
    preferred = member.backend if is_preferred else request.preferred_backend
    return wanted.with_request_changes(
        requirements=(*request.requirements, *lines),
        selected={**request.selected, member.part.path: lines},
        preferred_backend=preferred,
    )
