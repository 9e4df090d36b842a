"""Explain why a request is refused, and suggest fixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.errors import MachineError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import (
    FROM_METADATA,
    INSTALLED,
    Constraint,
    requirement_names,
)
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Build
from gpuinstall.plan.candidates import (
    EvaluatedBuild,
    NoCandidate,
    Obstacles,
    can_run_without,
    find_cause,
    find_closest_build,
    list_obstacles,
    list_rejections,
    select_candidates,
)
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.demand import KNOWN_PYTHONS, Limit
from gpuinstall.plan.gpus import (
    NO_BUILD_EVER,
    create_refusal,
    explain_unsupported_gpu,
)
from gpuinstall.plan.python import format_python_range
from gpuinstall.plan.rules import REQUEST_REASONS
from gpuinstall.plan.values import Rejected

_MIRROR = (
    "Try again when its index is reachable",
    "Select a mirror with --torch-index",
)


def refuse_request(failure: NoCandidate) -> Rejected:
    """Refuse a request that conflicts with itself or with the machine."""
    context = failure.context
    blocked = [(each, list_obstacles(each, context)) for each in failure.rejected]
    conflict = _find_conflict([one for _, one in blocked], context.demand.limits)
    rejected = [
        replace(each, reason=find_cause(obstacles, conflict))
        for each, obstacles in blocked
    ]
    nearest = _find_nearest(rejected, conflict, context)
    changes: list[Hint] = []
    # The user cannot change a requirement in METADATA.
    if not any(one.origin == FROM_METADATA for one in conflict):
        changes += _suggest_relaxing(blocked, conflict, context)
    is_relaxable = bool(changes)
    changes += _list_changes(blocked, conflict, context)
    reason = _explain_conflict(conflict, nearest, context)
    fixes = _find_fixes(nearest, context) if nearest else ()
    if reason.code == NO_BUILD_EVER:
        fixes = (*context.rules.list_install_commands(), *fixes)
    refusal = create_refusal(
        context,
        (reason,),
        *fixes,
        changes=tuple(changes),
        rejected=list_rejections(failure.rejected),
    )
    if not conflict and reason.code in context.rules.driver_reasons:
        refusal = replace(refusal, error_class=MachineError)
    # If a relaxed request uses the GPUs, do not suggest the CPU build.
    return refusal if is_relaxable else suggest_cpu_build(refusal, context)


def _find_conflict(
    blocked: Sequence[Obstacles], limits: Iterable[Limit]
) -> list[Limit]:
    """Return a minimal set of limits that no build fits here."""
    conflict = list(limits)
    # Try to drop torch last: if no build has the requested torch, its companions are not the cause.
    # A reason names the first companion, so the others are dropped before it.
    order = conflict[::-1]
    order.sort(key=lambda limit: limit.package == "torch")
    for limit in order:
        others = [one for one in conflict if one != limit]
        if all(find_cause(obstacles, others) for obstacles in blocked):
            conflict = others
    return conflict


def _suggest_relaxing(
    blocked: Iterable[tuple[EvaluatedBuild, Obstacles]],
    conflict: Iterable[Limit],
    context: PlanContext,
) -> Iterator[Hint]:
    """Yield ``--relax`` if it leads to a torch that runs on this machine."""
    demand = context.demand
    if demand.request.relax or any(one.origin == INSTALLED for one in conflict):
        return
    versions = [
        one
        for one in demand.limits
        if one.requirement.specifier and context.catalog.is_tied(one.package)
    ]
    running = {
        each.build.torch
        for each, obstacles in blocked
        if can_run_without(obstacles, versions)
    }
    if not running:
        return
    from gpuinstall.plan.relax import NEAREST, list_nearest_torches  # slow to import

    if running.intersection(list_nearest_torches(demand.request, context.catalog)):
        yield make_change("--relax", note=NEAREST)


def suggest_cpu_build(refusal: Rejected, context: PlanContext) -> Rejected:
    """Add the CPU build as the last suggested fix on a machine with GPUs."""
    demand = context.demand
    is_musl = context.machine.libc == "musl"
    if is_musl or not refusal.gpus or demand.request.is_for_cpu:
        return refusal
    # The CPU cannot run a package that has only GPU code.
    gpu_packages = context.catalog.gpu_packages()
    if context.cuda_names or gpu_packages & requirement_names(demand.others):
        return refusal
    without_gpus = context.with_gpus_at(())
    backend = [one for one in demand.limits if one.field == "backend"]
    for build in context.builds:
        obstacles = list_obstacles(EvaluatedBuild(build), without_gpus)
        if build.backend == CPU and can_run_without(obstacles, backend):
            cpu = make_change("--backend", "cpu", note="selects the CPU build")
            return replace(refusal, changes=(*refusal.changes, cpu))
    return refusal


def _find_nearest(
    rejected: Sequence[EvaluatedBuild], conflict: Sequence[Limit], context: PlanContext
) -> EvaluatedBuild | None:
    """Return the build that passed the most rules.

    Args:
        rejected: The builds with the reasons why they do not fit the conflicting limits.
        conflict: These limits. Empty: no build fits the machine.
        context: The request and its machine.
    """
    # The catalog also has builds that no source lists.
    known = [
        each
        for each in rejected
        if each.build.listed_at and each.reason_code not in REQUEST_REASONS
    ]
    if not conflict:
        # Prefer builds with code for a GPU. The GPU code of an uninspected build is unknown.
        served = [each for each in rejected if each.supported_gpus]
        known = served or [each for each in rejected if not each.build.unread]
    return find_closest_build(known or rejected, context.rules)


def _explain_conflict(
    conflict: Sequence[Limit], nearest: EvaluatedBuild | None, context: PlanContext
) -> Reason:
    """Explain which limits no build fits, and why the nearest does not.

    Args:
        conflict: A minimal set of conflicting limits. Empty: the machine is the cause.
        nearest: The build with only these limits that passed the most rules.
        context: The request and its machine.
    """
    rules = context.rules
    platform = f"{context.machine.os} {context.machine.arch}"
    if nearest is None:
        message = f"there is no {rules.software} build of torch for {platform}"
        return Reason("no-build-for-platform", message)
    code = nearest.reason_code
    if not conflict and code in rules.code_reasons:
        return explain_unsupported_gpu(context.gpus[0], context)
    cause = ""
    if code not in REQUEST_REASONS:
        cause = nearest.format_rejection(rules)
    *first, last = [*map(str, conflict)] or ["this machine"]
    if first:
        message = f"{', '.join(first)} and {last} are incompatible"
        return Reason(code, f"{message}: {cause}" if cause else message)
    if cause:
        return Reason(code, f"no build of torch fits {last}; {cause}")
    message = f"no build of torch for {platform} fits {last}"
    torches = {build.torch for build in context.catalog.builds}
    only = conflict[0]
    if only.package == "torch" and not any(map(only.requirement.allows, torches)):
        known = f"{min(torches)} to {max(torches)}" if torches else "none"
        message += f"; the catalog of {context.catalog.date} has {known}"
    return Reason(code, message)


def _list_changes(
    blocked: Sequence[tuple[EvaluatedBuild, Obstacles]],
    conflict: Iterable[Limit],
    context: PlanContext,
) -> Iterator[Hint]:
    """Yield the change of each limit that makes a build selectable."""
    for limit in conflict:
        without = [each for each, one in blocked if can_run_without(one, [limit])]
        if without and limit.origin != FROM_METADATA:
            best = select_candidates(without, context)[0].build
            yield _make_change(limit, best, context)


def _make_change(
    limit: Limit,
    build: Build,
    context: PlanContext,
) -> Hint:
    """Return the change to a request that would make a build selectable.

    Args:
        limit: The limit to remove or replace.
        build: The build that would be selected after the change.
        context: The request and its machine.
    """
    demand = context.demand
    family = {name: one for name, one in demand.family.items() if name != limit.package}
    pythons = frozenset(KNOWN_PYTHONS) if limit.field == "python" else demand.pythons
    free = replace(context, demand=replace(demand, family=family, pythons=pythons))
    note = f"torch {build.name}, Python {free.select_python(build)}"
    if limit.field == "backend" and not context.gpus:
        option = ("--backend", build.backend.tag)
        for target in demand.request.targets:
            tags = (str(demand.request.backend), build.backend.tag)
            before, after = (tag.replace(".", "-") for tag in tags)
            option = ("--target", target.replace(before, after))
        return make_change(*option, note=note)
    if limit.origin == INSTALLED:
        return make_change(f"torch=={build.torch}", note=note)
    other = "torch" if limit.package == "torch" else None
    cuda_name = context.cuda_names.get(limit.requirement.text)
    if cuda_name and build.toolkit and cuda_name.may_support(context.gpus):
        other = cuda_name.names.get(build.toolkit[0])
    if other is None or isinstance(limit.requirement, Constraint):
        return limit.suggest_removal(note)
    # Without its local version, torch would be selected for the GPUs.
    backend = ("--backend", CPU.tag) if CPU in limit.backends else ()
    return limit.suggest_removal(note, other, *backend)


def _find_fixes(nearest: EvaluatedBuild, context: PlanContext) -> tuple[Hint, ...]:
    """Return the fixes that would make a rejected build selectable."""
    build = nearest.build
    code = nearest.reason_code
    match code:
        case "unreachable":
            return _MIRROR
        case "glibc-too-old":
            where = "Use a distribution or a container"
            return (f"{where} with glibc {build.glibc} or newer",)
        case "no-python":
            return (f"Install Python {format_python_range(build.pythons)}",)
    return context.rules.find_driver_fix(build, code, context.gpus)
