"""Explain why a torch build is selected and why other builds are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Build
from gpuinstall.machine.vendors import find_vendor
from gpuinstall.plan.candidates import (
    EvaluatedBuild,
    create_vendor_key,
    evaluate_build,
    find_closest_build,
    find_torch_limits,
    select_candidates,
    sort_best_first,
)
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.rules import UNAVAILABLE
from gpuinstall.plan.values import (
    GPU_BUILD_FOR_CPU,
    HELD_BACK,
    NEWEST_BUT,
    PREFERRED_BACKEND_REJECTED,
    PROGRAM_HELD_BACK,
    TORCH_LIMITED,
    WITHOUT_GPU,
)

_CONTAINER_FIX = "start it with the NVIDIA Container Toolkit (docker run --gpus all)"

_EXCLUDED_BY_REQUEST = {"other-torch", "other-backend", "not-allowed"}

_EXCLUDED_BACKEND = {"no-companion", "not-allowed", "programs-conflict"}
"""Reason codes for rejected builds that might otherwise be preferred."""


def reject_others(
    evaluated: Iterable[EvaluatedBuild],
    best: EvaluatedBuild,
    context: PlanContext,
) -> list[EvaluatedBuild]:
    """Return all builds except the selected one, each with a rejection reason.

    Args:
        evaluated: All evaluated builds.
        best: The selected build.
        context: The request and its machine.
    """
    return [
        replace(each, reason=each.reason or _find_rejection(each, best, context))
        for each in evaluated
        if each is not best
    ]


def _find_rejection(
    candidate: EvaluatedBuild,
    best: EvaluatedBuild,
    context: PlanContext,
) -> Reason | None:
    constraints = context.program_constraints
    build = candidate.build
    # If any build runs on all GPUs, so does the selected build.
    if candidate.supported_gpus != best.supported_gpus:
        return candidate.missing_code
    if constraints and build.torch > constraints.build.torch:
        return Reason(HELD_BACK, constraints.why)
    if constraints and build.torch == constraints.build.torch:
        conflict = constraints.unserved.get(build.backend.tag)
        if conflict is not None:
            return Reason("programs-conflict", conflict)
    if build.torch < best.build.torch:
        return Reason("older-torch", f"{best.build.name} also fits and is newer")
    merit = _explain_preference(candidate, best, context)
    return Reason("less-preferred", f"{best.build.name} is preferred: {merit}")


def _explain_preference(
    other: EvaluatedBuild,
    best: EvaluatedBuild,
    context: PlanContext,
) -> str:
    if best.build.backend == context.demand.preferred_backend != other.build.backend:
        return "the request prefers it"
    keys = zip(
        create_vendor_key(best, context), create_vendor_key(other, context), strict=True
    )
    merits = [merit for (ours, merit), (theirs, _) in keys if ours != theirs]
    return merits[0] if merits else "both are equally suitable"


def list_selection_reasons(
    best: EvaluatedBuild,
    compatible: Sequence[EvaluatedBuild],
    evaluated: Sequence[EvaluatedBuild],
    others: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the reasons for the selected build and for choices on other GPUs.

    Args:
        best: The selected build.
        compatible: The builds that run on the same GPUs as ``best``, best first.
        evaluated: All builds, without the reasons of ``others``.
        others: All builds except the selected one.
        context: The request and its machine.
    """
    if not context.gpus:
        yield Reason(
            "no-gpu-here",
            f"no {context.rules.name} GPU found: unproven until gpuinstall verify runs on one",
        )
    yield from list_newest_reasons(best, others, context)
    yield from _explain_backend(best, compatible, others, context)
    yield from _explain_other_gpus(best, evaluated, context)
    yield from _explain_pinned_gpus(best, evaluated, context)


def list_newest_reasons(
    best: EvaluatedBuild,
    others: Iterable[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the reasons why torch and other packages are not newer.

    Args:
        best: The selected build.
        others: All builds except the selected one, newest first.
        context: The request and its machine.
    """
    build = best.build
    if build.learned:
        unlisted = f"it is not in the catalog of {context.catalog.date}"
        yield Reason(
            "learned",
            f"{build.name} was inspected on {build.learned}: {unlisted}",
        )
    newer = _find_newer_builds(best, others, context)
    constraints = context.program_constraints
    others = [each for each in newer if each.reason_code != HELD_BACK]
    if constraints and constraints.why and len(others) < len(newer):
        yield Reason(HELD_BACK, constraints.why)
    else:
        yield _explain_newest_torch(best, others, context)
    if constraints:
        for text in constraints.held_back:
            yield Reason(PROGRAM_HELD_BACK, text)


def _find_newer_builds(
    best: EvaluatedBuild, others: Iterable[EvaluatedBuild], context: PlanContext
) -> list[EvaluatedBuild]:
    """Return builds of newer torch versions for the GPUs of ``best``."""
    rules = context.rules
    newer = []
    for each in others:
        if each.build.torch > best.build.torch:
            code = tuple(each.gpu_code[position] for position in best.supported_gpus)
            own = replace(each, gpu_code=code)
            # If the build has no code for a GPU, a newer driver does not help.
            is_machine = own.reason_code in {*rules.code_reasons, *rules.driver_reasons}
            if is_machine and not each.build.unread:
                own = replace(own, reason=own.missing_code or own.reason)
            newer.append(own)
    return newer


def _explain_newest_torch(
    best: EvaluatedBuild,
    newer: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Reason:
    """Explain why no newer torch is selected.

    Args:
        best: The selected build.
        newer: The builds of newer torch versions, newest first.
        context: The request and its machine.
    """
    rules = context.rules
    build = best.build
    for each in newer:
        limits = None if each.missing_code else find_torch_limits(each, context)
        if limits:
            message = f"torch {each.build.torch} would run here, but {limits[0]} keeps {build.torch}"
            return Reason(TORCH_LIMITED, message)
    nearest = find_closest_build(newer, rules)
    if nearest is None or nearest.reason is None:
        newest = f"{build.torch} is the newest known torch"
        if build.backend.kind == rules.kind and build.torch < context.builds[0].torch:
            newest += f" with a build for {rules.name} GPUs"
        return Reason("newest-torch", newest)
    code = nearest.reason_code
    is_reachable = all(each.reason_code != "unreachable" for each in newer)
    where = "" if is_reachable else " in the reachable sources"
    is_expected = code in UNAVAILABLE or code in _EXCLUDED_BY_REQUEST
    return Reason(
        "newest-torch" if is_expected else f"{NEWEST_BUT}{code}",
        f"{build.torch} is the newest{where} that fits; {nearest.format_rejection(rules)}",
    )


def _explain_backend(
    best: EvaluatedBuild,
    compatible: Iterable[EvaluatedBuild],
    others: Iterable[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the reason why another build of the same torch is not selected.

    Args:
        best: The selected build.
        compatible: The builds that run on the same GPUs as ``best``, best first.
        others: All builds except the selected one.
        context: The request and its machine.
    """
    torch = best.build.torch
    for each in others:
        if each.build.torch == torch and each.reason_code in _EXCLUDED_BACKEND:
            # If a preferred build only lacks a companion, ``install`` also prints the reason.
            is_preferred = sort_best_first([best, each], context)[0] is each
            is_rejected = is_preferred and each.reason_code == "no-companion"
            code = PREFERRED_BACKEND_REJECTED if is_rejected else "backend"
            yield Reason(code, f"not {each.format_rejection(context.rules)}")
            return
    for rival in compatible:
        if rival is not best and rival.build.torch == torch:
            preferred = f"{best.build.backend} instead of {rival.build.backend}"
            yield Reason(
                "backend", f"{preferred}: {_explain_preference(rival, best, context)}"
            )
            return


def _explain_other_gpus(
    best: EvaluatedBuild,
    evaluated: Iterable[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the best build for GPUs that the selected build does not support.

    Args:
        best: The selected build.
        evaluated: All builds.
        context: The request and its machine, including all GPUs.
    """
    others = [
        each
        for each in evaluated
        if not each.reason and not {*each.supported_gpus} <= {*best.supported_gpus}
    ]
    if others:
        other = select_candidates(others, context)[0]
        gpus = context.with_gpus_at(other.supported_gpus)
        indices = ",".join(str(gpu.index) for gpu in gpus.gpus)
        message = (
            f"--gpus {indices} ({gpus.gpu_names}) would select torch {other.build.name}"
        )
        yield Reason("other-choice", message)


def _explain_pinned_gpus(
    best: EvaluatedBuild,
    evaluated: Iterable[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the torch that runs on more GPUs than the requested version.

    Args:
        best: The selected build.
        evaluated: All builds.
        context: The request and its machine, including all GPUs.
    """
    others = {
        each: limits[0]
        for each in evaluated
        if {*each.supported_gpus} > {*best.supported_gpus}
        and (limits := find_torch_limits(each, context))
    }
    if others:
        other = select_candidates([*others], context)[0]
        is_for_all = len(other.supported_gpus) == len(context.gpus)
        count = "all" if is_for_all and not context.excluded_gpus else "more"
        indices = ",".join(
            str(gpu.index) for gpu in context.with_gpus_at(best.supported_gpus).gpus
        )
        message = (
            f"torch {other.build.name} runs on {count} GPUs, but {others[other]} "
            f"excludes it; --gpus {indices} selects only the supported ones"
        )
        yield Reason("other-choice", message)


def list_gpu_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield warnings about running a build on the selected GPUs."""
    yield from context.rules.list_warnings(build, context.gpus)
    if build.lists_no_code:
        message = f"{build.name} does not list its GPU code"
        yield Reason("architectures-unknown", message)
    packages = " and ".join(context.companions.list_cpu_builds(build))
    if packages:
        no_code = f"{packages} for {build.os} {build.arch} have no GPU code for this backend: they are CPU builds"
        yield Reason("companion-for-the-cpu", no_code)
    yield from _list_common_warnings(build, context)


def list_cpu_warnings(
    build: Build,
    why: Reason,
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield warnings about running a build on the CPU.

    Args:
        build: The CPU build, or a GPU build if no index has a CPU build.
        why: The reason for using the CPU.
        context: The request and its machine.
    """
    if build.backend != CPU:
        companions = [*context.demand.family]
        kind = "CPU builds" if companions else "a CPU build"
        wanted = " and ".join([f"torch {build.torch}", *companions])
        message = f"no reachable source has {kind} of {wanted}, so {build.name} is selected (3 GB instead of 0.2 GB)"
        fix = "Select another index with --torch-index"
        yield Reason(GPU_BUILD_FOR_CPU, message, fixes=(fix,))
    signs = ", ".join(_find_build_host_signs(context.machine))
    if why.code == WITHOUT_GPU and signs:
        message = (
            f"this looks like a build machine ({signs}); "
            "describe the target machine with --backend TAG, --machine FILE, or --gpu NAME"
        )
        if context.machine.environment.container:
            message += f"; if it has GPUs, {_CONTAINER_FIX}"
        yield Reason("looks-like-a-builder", message)
    yield from _list_common_warnings(build, context)


def _find_build_host_signs(machine: Machine) -> Iterator[str]:
    if machine.environment.container:
        yield f"a {machine.environment.container} container"
    yield from machine.signs
    for problem in machine.problems:
        if problem.code == "gpu-not-ours":
            yield problem.message


def _list_common_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield warnings about the preferred backend, machine, and unused GPUs."""
    preferred = context.demand.preferred_backend
    if preferred not in {None, build.backend} and not context.demand.backends:
        message = f"the request prefers {preferred}, but {build.backend} is selected"
        fixes: tuple[Hint, ...] = ()
        if any(
            one.backend == preferred
            and one.torch in context.requested_torches
            and (preferred == CPU or not evaluate_build(one, context).reason)
            for one in context.builds
        ):
            fixes = (make_change("--backend", preferred.tag, note="forces it"),)
        yield Reason("preference-unmet", message, fixes=fixes)
    machine = context.machine
    for problem in machine.problems:
        if not problem.blocking:
            yield problem.reason
    for gpu in machine.gpus:
        if find_vendor(gpu, machine) != context.rules.vendor:
            name = f"GPU {gpu.index} ({gpu.label if gpu.name else 'unknown'})"
            message = f"{name} is not used: it is not an {context.rules.name} GPU"
            yield Reason("gpu-not-supported", message)
