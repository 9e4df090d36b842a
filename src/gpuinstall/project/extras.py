"""Find requested extras and groups, and select an extra for a machine."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from gpuinstall.base.advice import Advice, make_change
from gpuinstall.base.errors import NoBuildError, UsageError
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.lock.request.declaration import find_parts
from gpuinstall.lock.request.history import find_unfiled_requirements
from gpuinstall.lock.request.tools import TEAM_LOCKS, find_locked_versions
from gpuinstall.plan import Plan, Rejected, choose
from gpuinstall.plan.demand import create_marker_values
from gpuinstall.sources.provenance import format_recorded_sources
from gpuinstall.sources.requirements_file import PROJECT, Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.base.requirement import Constraint
    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.request.declaration import Declaration
    from gpuinstall.lock.request.pyproject import PartContents
    from gpuinstall.project.run import Project


def find_requested_parts(declaration: Declaration, request: Request) -> frozenset[Part]:
    """Return the requested extras and dependency groups of a project.

    Raises:
        UsageError: Two requested extras or groups conflict.
    """
    parts = {*find_parts((*request.files, *request.selected))}
    parts.update(declaration.default_parts)
    for one in request.requirements:
        if one.path in {".", "./"}:
            parts.update(Part("extra", extra) for extra in one.extras)
    for members in declaration.conflicts:
        excluded = [part for part in members if part in parts]
        if len(excluded) > 1:
            shown = " and ".join(f"the {part.kind} {part.name}" for part in excluded)
            raise UsageError(
                "extras-conflict",
                f"[tool.uv] conflicts in {PROJECT} does not allow {shown} together",
                hint=_suggest_parts(excluded),
            )
    return frozenset(parts)


def _suggest_parts(parts: Iterable[Part]) -> tuple[Advice, ...]:
    """Return the hints that each select one extra or group."""
    options = [str(part).split() for part in parts]
    typed = [word for words in options for word in words]
    return tuple(make_change(*words, without=typed) for words in options)


def report_omitted(
    declaration: Declaration, request: Request, reporter: Reporter
) -> None:
    """Report extras and groups that require torch but are not selected."""
    requested = find_requested_parts(declaration, request)
    parts = [one.part for one in declaration.omitted if one.part not in requested]
    if parts:
        options = ", ".join(map(str, parts))
        reporter.step("Extras", f"not selected in {PROJECT}: {options}")
    for part in declaration.outranked:
        rivals = chain(*(one for one in declaration.conflicts if part in one))
        selected = " and ".join(str(one) for one in rivals if one in requested)
        message = f"{part.name} of default-groups omitted, because it conflicts with {selected}"
        reporter.step("Groups", message)


def list_locked_versions(
    project: Project, request: Request, machine: Machine
) -> tuple[Constraint, ...]:
    """Return the locked versions in ``uv.lock`` or ``poetry.lock``."""
    lock = project.contents.project_lock
    if lock is None:
        return ()
    parts = find_requested_parts(project.contents.declaration, request)
    markers = create_marker_values(request, machine, project.catalog)
    return find_locked_versions(lock, markers, parts)


def prefer_locked_versions(
    project: Project, request: Request, machine: Machine
) -> Request:
    """Return a request that prefers the versions in uv.lock or poetry.lock.

    Args:
        project: The project with the lock file.
        request: The request, whose extras select a fork of uv.lock.
        machine: The machine that determines the marker values.
    """
    preferred = list_locked_versions(project, request, machine)
    releases = set(map(str, preferred))
    # Allow only the locked files of preferred versions.
    sources = format_recorded_sources(
        (
            *project.sources.uv.settings,
            *(
                one
                for one in project.sources.settings
                if one.file.name not in TEAM_LOCKS or one.package in releases
            ),
        )
    )
    return replace(request, preferred=preferred, sources=sources)


def select_extras(
    project: Project,
    machine: Machine,
    request: Request,
    catalog: Catalog,
    *,
    kept: Collection[str] = (),
    quiet: bool = False,
) -> Request:
    """Select one extra from each set of conflicting extras.

    Args:
        project: The project with the extras.
        machine: The machine to plan for.
        request: The request of the project.
        catalog: The catalog of torch builds.
        kept: The names of extras in an existing lock file, preferred if compatible.
        quiet: Whether to suppress reports.

    Raises:
        NoBuildError: No extra in a conflicting set has a compatible build.
    """
    declaration = project.contents.declaration
    alternatives = declaration.alternatives
    if project.settings.only or request.selected or not alternatives:
        return prefer_locked_versions(project, request, machine)
    requested = find_requested_parts(declaration, request)
    whole = choose(machine, request, catalog)
    # The resolution of this request reports why no build is compatible.
    if isinstance(whole, Rejected):
        return request
    for members in alternatives:
        if requested.isdisjoint(one.part for one in members):
            fitting = _find_compatible_extras(members, request, machine, catalog, whole)
            selected = _select_best_extra(fitting, request, machine, catalog, kept)
            if selected:
                environment = create_marker_values(request, machine, catalog)
                request = _add_extra(selected, request, environment)
            if not quiet:
                _report_selection(selected, members, project.reporter)
    return prefer_locked_versions(project, request, machine)


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
    members: Sequence[PartContents],
    request: Request,
    machine: Machine,
    catalog: Catalog,
    whole: Plan,
) -> dict[PartContents, Plan]:
    """Return the extras that have a compatible build, with their plans.

    Args:
        members: The conflicting extras.
        request: The request without these extras.
        machine: The machine to plan for.
        catalog: The catalog of torch builds.
        whole: The plan for the request without these extras.

    Raises:
        NoBuildError: No extra has a build for the GPUs.
    """
    is_cpu = whole.status == "cpu"
    fitting: dict[PartContents, Plan] = {}
    relaxed: dict[PartContents, Plan] = {}
    reasons = {}
    environment = create_marker_values(request, machine, catalog)
    for member in members:
        tag = member.find_backend(environment)
        if tag and member.is_for_cpu(environment) != is_cpu:
            continue
        judged = replace(
            _add_extra(member, request, environment), backend=request.backend or tag
        )
        plans = fitting
        outcome = choose(machine, judged, catalog)
        if isinstance(outcome, Rejected):
            reasons[member.part.name] = outcome.reasons[0].message
            plans = relaxed
            outcome = _choose_relaxed(machine, judged, catalog) or outcome
        if isinstance(outcome, Rejected):
            continue
        kind = outcome.choice.build.backend.kind
        if (outcome.status == "cpu") == is_cpu and member.kind in {"", kind}:
            plans[member] = outcome
    if request.relax:
        fitting = fitting or relaxed
    if not (fitting or is_cpu):
        raise _make_no_extra_error(members, reasons, relaxed, whole, environment)
    return fitting


def _choose_relaxed(
    machine: Machine, request: Request, catalog: Catalog
) -> Plan | Rejected | None:
    """Return the plan that ``--relax`` leads to, or None."""
    from gpuinstall.plan.relax import find_nearest_request  # slow to import

    nearest = find_nearest_request(
        request, catalog, lambda one: choose(machine, one, catalog)
    )
    return choose(machine, nearest.request, catalog) if nearest else None


def _make_no_extra_error(
    members: Sequence[PartContents],
    reasons: Mapping[str, str],
    relaxed: Mapping[PartContents, Plan],
    plan: Plan,
    environment: Mapping[str, str],
) -> NoBuildError:
    """Create the error for conflicting extras without a compatible build.

    Args:
        members: The conflicting extras.
        reasons: The reasons for rejecting each extra, by name.
        relaxed: The extras that ``--relax`` can install, with their plans.
        plan: The plan for the request without these extras.
        environment: The values of environment markers.
    """
    names = ", ".join(one.part.name for one in members)
    cpu = [one.part for one in members if one.is_for_cpu(environment)]
    fixes = []
    for one, other in relaxed.items():
        note = f"torch {other.choice.build.torch}, the nearest that runs here"
        fixes.append(make_change(*str(one.part).split(), "--relax", note=note))
    fixes += _suggest_parts(cpu)
    backend = make_change("--backend", plan.choice.build.backend.tag)
    return NoBuildError(
        "no-extra",
        f"no extra of {PROJECT} has a build of torch that runs on these GPUs: {names}",
        why="; ".join(f"{name}: {reason}" for name, reason in reasons.items()) or None,
        hint=tuple(fixes) or backend,
    )


def _select_best_extra(
    fitting: Mapping[PartContents, Plan],
    request: Request,
    machine: Machine,
    catalog: Catalog,
    kept: Collection[str],
) -> PartContents | None:
    """Return the extra that selects the best torch build.

    Args:
        fitting: The compatible extras with their plans.
        request: The request without these extras.
        machine: The machine to plan for.
        catalog: The catalog of torch builds.
        kept: The names of extras to prefer.
    """
    environment = create_marker_values(request, machine, catalog)
    for member in fitting:
        if member.part.path in kept:
            return member
    labeled = {
        member: plan
        for member, plan in fitting.items()
        if member.find_backend(environment) == request.backend
    }
    fitting = labeled or fitting
    builds = {plan.choice.build for plan in fitting.values()}
    torch = replace(request, requirements=(ANY_TORCH,), constraints=())
    among = replace(catalog, builds=tuple(builds))
    best = choose(machine, torch, among).choice
    for member, plan in fitting.items():
        if best and plan.choice.build == best.build:
            return member
    return next(iter(fitting), None)


def _add_extra(
    member: PartContents, request: Request, environment: Mapping[str, str]
) -> Request:
    """Add the requirements of an extra, except for typed requirements."""
    hand = {one.name for one in find_unfiled_requirements(request) if one != ANY_TORCH}
    lines = tuple(
        one
        for one in member.listed.requirements
        if one.name not in hand and one not in request.requirements
    )
    tag = member.find_backend(environment)
    preferred = request.preferred_backend if tag in {None, CPU.tag} else tag
    return replace(
        request,
        requirements=(*request.requirements, *lines),
        selected={**request.selected, member.part.path: lines},
        preferred_backend=preferred,
    )
