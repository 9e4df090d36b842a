"""Explain why a request is refused, and suggest fixes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.errors import GpuInstallError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.request import ANY_TORCH, Request
from gpuinstall.base.requirement import (
    FROM_METADATA,
    INSTALLED,
    NO_ORIGIN,
    Constraint,
    Requirement,
    TextOrigin,
    requirement_names,
)
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, Backend
from gpuinstall.catalog.catalog import Build
from gpuinstall.plan.candidates import (
    EvaluatedBuild,
    NoCandidate,
    find_closest_build,
    list_rejections,
)
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.gpus import create_refusal, explain_unsupported_gpu
from gpuinstall.plan.python import format_python_range
from gpuinstall.plan.values import Plan, Rejected

Attempt = Callable[[Request], Plan | Rejected | NoCandidate]
"""A function that plans another request for the same machine."""

_MIRROR = (
    "Try again when its index is reachable",
    make_change("--torch-index", "https://index.example/whl", note="uses a mirror"),
)


def refuse_request(
    failure: NoCandidate,
    request: Request,
    attempt: Attempt,
) -> Rejected:
    """Refuse a request because it has conflicts or the machine is unsupported.

    Args:
        failure: The failure to plan the request.
        request: The request to refuse.
        attempt: Plans another request for the same machine.
    """
    original = request
    limits = list_request_limits(request, failure.context.catalog.family)
    # Keep the CPU backend if torch==2.9.0+cpu is dropped. For the CPU, no fix suggests another backend.
    if failure.context.demand.backends == {CPU}:
        request = replace(request, backend=CPU.tag)
        limits = [limit for limit in limits if limit.field != "backend"]
    unlimited = attempt(remove_limits(request, limits))
    if isinstance(unlimited, NoCandidate):
        refusal = _refuse_for_machine(unlimited)
        refusal = replace(refusal, rejected=list_rejections(failure.rejected))
        return suggest_cpu_build(refusal, original, attempt)
    culprits, conflict = _find_conflict(failure, limits, request, attempt)
    nearest = _find_missing_companion(conflict, unlimited)
    nearest = nearest or find_closest_build(conflict.rejected, conflict.context.rules)
    fixes = _find_fixes(nearest, conflict.context) if nearest else ()
    changes: list[Hint] = []
    relaxed = None
    # The user cannot change a requirement in METADATA.
    own = [one for one in culprits if one.origin != FROM_METADATA]
    is_typed = all(one.origin != INSTALLED for one in own)
    if is_typed and not request.relax and own == culprits:
        from gpuinstall.plan.relax import find_nearest_request

        relaxed = find_nearest_request(request, failure.context.catalog, attempt)
        if relaxed:
            nearest_torch = "the nearest that runs here"
            if any(one.specifier for one in failure.context.demand.others):
                nearest_torch = "or the nearest that the other packages allow"
            note = f"torch {relaxed.torch}, {nearest_torch}"
            changes.append(make_change("--relax", note=note))
    changes += _list_changes(own, request, failure.context, attempt)
    refusal = create_refusal(
        failure.context,
        (_explain_conflict(culprits, nearest, conflict.context),),
        *fixes,
        changes=tuple(changes),
        rejected=list_rejections(failure.rejected),
    )
    # If a relaxed request uses the GPUs, or a package has only GPU code, do not suggest the CPU build.
    if relaxed or conflict.context.cuda_names:
        return refusal
    return suggest_cpu_build(refusal, original, attempt)


def _list_changes(
    culprits: Iterable[Limit], request: Request, context: PlanContext, attempt: Attempt
) -> Iterator[Hint]:
    """Yield the change of each limit that makes a build selectable."""
    for culprit in culprits:
        outcome: object = attempt(remove_limits(request, [culprit]))
        if culprit.field == "backend" and not context.gpus:
            # A platform may have only CPU builds.
            outcome = _plan_other_backend(request, context, attempt) or outcome
        if isinstance(outcome, Plan):
            build = outcome.choice.build
            note = f"torch {build.name}, Python {outcome.choice.python}"
            change = _make_change(culprit, build, context)
            if isinstance(change, str):
                yield f"{change}: {note}"
            else:
                yield replace(change, note=note)


def _find_missing_companion(
    conflict: NoCandidate, unlimited: Plan | Rejected
) -> EvaluatedBuild | None:
    """Return the build that lacks a companion on the package indexes.

    Args:
        conflict: The outcome with only the conflicting limits.
        unlimited: The outcome without any limits.
    """
    if not isinstance(unlimited, Plan):
        return None
    for each in conflict.rejected:
        is_missing = each.reason_code == "no-companion" and each.build.listed_at
        if is_missing and each.build == unlimited.choice.build:
            return each
    return None


def explain_partial(plan: Plan, request: Request, attempt: Attempt) -> Plan:
    """Add the torch that runs on more GPUs than the requested version.

    Args:
        plan: The plan that excludes GPUs.
        request: The request, which may limit torch.
        attempt: Plans another request for the same machine.
    """
    limits = [
        one for one in list_request_limits(request, {"torch"}) if one.is_for_torch
    ]
    other = attempt(remove_limits(request, limits)) if limits else plan
    if not isinstance(other, Plan) or not other.covered_gpus > plan.covered_gpus:
        return plan
    count = "all" if other.status == "ok" else "more"
    indices = ",".join(map(str, sorted(plan.covered_gpus)))
    message = (
        f"torch {other.choice.build.name} runs on {count} GPUs, but {limits[0].text} "
        f"excludes it; --gpus {indices} selects only the supported ones"
    )
    return replace(plan, reasons=(*plan.reasons, Reason("other-choice", message)))


def suggest_cpu_build(
    refusal: Rejected,
    request: Request,
    attempt: Attempt,
) -> Rejected:
    """Add the CPU build as the last suggested fix on a machine with GPUs.

    Args:
        refusal: The refusal to extend.
        request: The refused request.
        attempt: Plans another request for the same machine.
    """
    if not refusal.gpus or request.is_for_cpu:
        return refusal
    for_cpu = attempt(replace(request, backend=CPU.tag))
    if isinstance(for_cpu, Plan) and for_cpu.choice.build.backend == CPU:
        cpu = make_change("--backend", "cpu", note="selects the CPU build")
        return replace(refusal, changes=(*refusal.changes, cpu))
    if refusal.fixes or refusal.changes:
        return refusal
    return replace(refusal, changes=("Request other versions, or omit the version",))


class Limit(Value):
    """A requirement, constraint, or option that can exclude torch builds."""

    text: str
    """The requirement as written, or a description such as ``Python 3.12``."""

    requirement: Requirement | None = None
    """The requirement or constraint, or None for an option."""

    field: str = ""
    """The name of the request field, or empty for a requirement."""

    @property
    def origin(self) -> TextOrigin:
        """The origin of the requirement, if any."""
        return self.requirement.origin if self.requirement else NO_ORIGIN

    @property
    def is_for_torch(self) -> bool:
        """Whether the limit is a requirement or constraint on torch."""
        return self.requirement is not None and self.requirement.name == "torch"


def list_request_limits(request: Request, family: Collection[str]) -> list[Limit]:
    """Return the requirements and options that can exclude torch builds.

    Constraints are included only for torch and for requested companions of torch.
    """
    concerned = {"torch", *requirement_names(request.requirements)} & {*family}
    requirements: list[Requirement] = [
        one for one in request.requirements if one != ANY_TORCH
    ]
    requirements += [one for one in request.constraints if one.name in concerned]
    limits = [Limit(one.written or one.text, one) for one in requirements]
    if request.python:
        limits.append(Limit(f"Python {request.python}", field="python"))
    if request.backend:
        limits.append(Limit(f"backend {request.backend}", field="backend"))
    if request.allowed_backends is not None:
        tags = ", ".join(request.allowed_backends) or "none"
        text = f"the allowed backends ({tags})"
        limits.append(Limit(text, field="allowed_backends"))
    return limits


def remove_limits(request: Request, limits: Collection[Limit]) -> Request:
    """Remove requirements or options, but keep torch without a version."""
    dropped = {limit.requirement for limit in limits}
    requirements = []
    for one in request.requirements:
        if one not in dropped:
            requirements.append(one)
        elif one.name == "torch":
            requirements.append(ANY_TORCH)
    constraints = [one for one in request.constraints if one not in dropped]
    fields = {limit.field for limit in limits if limit.field}
    return replace(
        request,
        requirements=tuple(requirements),
        constraints=tuple(constraints),
        **dict.fromkeys(fields),
    )


def _plan_other_backend(
    request: Request,
    context: PlanContext,
    attempt: Attempt,
) -> Plan | None:
    """Plan a request with another backend on a machine without GPUs.

    Args:
        request: The request without a compatible build.
        context: The machine and the rules of the GPU vendor.
        attempt: Plans another request for the same machine.
    """
    builds = [one for one in context.builds if one.backend.kind == context.rules.kind]
    for tag in dict.fromkeys(build.backend.tag for build in builds):
        outcome = attempt(replace(request, backend=tag))
        if isinstance(outcome, Plan):
            return outcome
    return None


def _refuse_for_machine(failure: NoCandidate) -> Rejected:
    """Refuse a request because no torch build supports the machine."""
    context = failure.context
    rules = context.rules
    # Prefer builds with code for a GPU. The GPU code of an uninspected build is unknown.
    served = [each for each in failure.rejected if each.supported_gpus]
    read = [each for each in failure.rejected if not each.build.unread]
    candidates = served or read or failure.rejected
    nearest = find_closest_build(candidates, rules)
    if nearest is None or nearest.reason is None:
        kind = f"{rules.software} build" if context.gpus else "build"
        message = f"there is no {kind} of torch for {context.machine.os} {context.machine.arch}"
        return create_refusal(context, (Reason("no-build-for-platform", message),))
    code, message = nearest.reason.code, nearest.reason.message
    fixes = _find_fixes(nearest, context)
    if code in rules.code_reasons:
        why = explain_unsupported_gpu(context.gpus[0], context)
        return create_refusal(context, (why,), *rules.list_install_commands(), *fixes)
    error_class: type[GpuInstallError] = NoBuildError
    if code in rules.driver_reasons:
        error_class = MachineError
        too_old = f"{rules.driver} is too old for every build for {context.gpu_names}"
        required = [
            (each.build.toolkit or (), each.reason.message)
            for each in candidates
            if each.reason and each.reason.code == code
        ]
        # Mention the driver that the oldest toolkit requires.
        message = f"{too_old}: {min(required)[1]}"
    elif code == "unreachable":
        # Whether an unlisted build fits the machine is unknown.
        index = context.catalog.torch_index
        message = f"{index} is unreachable, and no other source has a build that fits this machine"
    else:
        message = f"no build fits this machine; {nearest.rejection_text}"
    return create_refusal(
        context, (Reason(code, message),), *fixes, error_class=error_class
    )


def _find_conflict(
    failure: NoCandidate,
    limits: list[Limit],
    request: Request,
    attempt: Attempt,
) -> tuple[list[Limit], NoCandidate]:
    """Return a minimal set of conflicting limits, and the resulting failure.

    Args:
        failure: The failure to plan the whole request.
        limits: All limits of the request.
        request: The request with the limits.
        attempt: Plans another request for the same machine.
    """
    dropped: list[Limit] = []
    # Try to drop torch last: if no build has the requested torch, its companions are not the cause.
    for limit in sorted(limits, key=lambda limit: limit.is_for_torch):
        outcome = attempt(remove_limits(request, [*dropped, limit]))
        if isinstance(outcome, NoCandidate):
            dropped.append(limit)
            failure = outcome
    return [limit for limit in limits if limit not in dropped], failure


def _explain_conflict(
    culprits: list[Limit],
    nearest: EvaluatedBuild | None,
    context: PlanContext,
) -> Reason:
    """Explain which limits conflict with each other or with the machine.

    Args:
        culprits: A minimal set of conflicting limits.
        nearest: The rejected build that passed the most rules.
        context: The context with only these limits.
    """
    code = "no-build"
    cause = ""
    side = None
    if nearest:
        code = nearest.reason_code
        side = _find_conflicting_property(nearest.build, code, context)
        if code not in {"other-torch", "other-backend", "other-cuda"}:
            cause = nearest.rejection_text
    if len(culprits) == 1 and side is None:
        return Reason(code, _explain_no_build(culprits[0], cause, context))
    texts = [culprit.text for culprit in culprits]
    # A single limit conflicts with the machine or with its package indexes.
    if len(texts) == 1:
        texts.append(str(side))
    *first, last = texts
    cause = cause or "no build satisfies them"
    return Reason(code, f"{', '.join(first)} and {last} are incompatible: {cause}")


def _find_conflicting_property(
    build: Build,
    code: str,
    context: PlanContext,
) -> str | None:
    """Return the property of the machine or indexes that excludes a build.

    Args:
        build: The rejected build.
        code: The code of the rejection reason.
        context: The request and its machine.

    Returns:
        The property, or None if the request itself excludes the build.
    """
    if code in context.rules.driver_reasons:
        return context.rules.driver
    if code in context.rules.code_reasons:
        return context.gpu_names.replace(" and ", " with ")
    if code == "no-companion" and build.listed_at:
        return "the versions in the sources"
    if code == "glibc-too-old":
        return f"glibc {context.machine.glibc}"
    return None


def _explain_no_build(
    culprit: Limit,
    cause: str,
    context: PlanContext,
) -> str:
    """Explain that no torch build satisfies a requirement or option."""
    fits = f"fits {culprit.text}"
    if culprit.origin.is_in_file or culprit.origin == INSTALLED:
        fits += f" ({culprit.origin})"
    if cause:
        return f"no build of torch {fits}; {cause}"
    platform = f"{context.machine.os} {context.machine.arch}"
    message = f"no build of torch for {platform} {fits}"
    if culprit.is_for_torch:
        torches = {build.torch for build in context.catalog.builds}
        requirement = culprit.requirement
        if requirement and not any(map(requirement.allows, torches)):
            known = f"{min(torches)} to {max(torches)}" if torches else "none"
            message += f"; the catalog of {context.catalog.date} has {known}"
    return message


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
    requirement = limit.requirement
    if requirement is None:
        return _change_option(limit, build, context)
    if limit.origin == INSTALLED:
        return make_change(f"torch=={build.torch}")
    other: str | None = "torch" if limit.is_for_torch else None
    cuda_name = context.cuda_names.get(requirement.text)
    if cuda_name and build.toolkit and cuda_name.may_support(context.gpus):
        other = cuda_name.names.get(build.toolkit[0])
    is_in_file = limit.origin.is_in_file
    if other and not isinstance(requirement, Constraint):
        if is_in_file:
            return f"Write {other} instead of {limit.text} ({limit.origin})"
        return make_change(other, without=(limit.text,))
    if is_in_file:
        return f"Without {limit.text} ({limit.origin})"
    return make_change(without=(limit.text,))


def _change_option(limit: Limit, build: Build, context: PlanContext) -> Hint:
    request = context.demand.request
    value = getattr(request, limit.field)
    if limit.field == "backend" and not context.gpus:
        option = ("--backend", build.backend.tag)
        for target in request.targets:
            before = Backend.parse(value).file_tag
            option = ("--target", target.replace(before, build.backend.file_tag))
        return make_change(*option)
    place = str(request.places.get(value, ""))
    if place.startswith("--"):
        return make_change(without=place.split())
    return f"Without {limit.text} ({place})" if place else f"Without {limit.text}"


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
