"""Explain why a torch build is selected and why other builds are rejected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuinstall.base.advice import Hint, make_change, make_command
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
    select_gpus,
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
    if constraints and build.torch > constraints.build.torch:
        return Reason(HELD_BACK, constraints.why)
    if constraints and build.torch == constraints.build.torch:
        conflict = constraints.unserved.get(build.backend.tag)
        if conflict is not None:
            return Reason("programs-conflict", conflict)
    # If any build runs on all GPUs, so does the selected build.
    if candidate.supported_gpus != best.supported_gpus:
        return candidate.missing_code
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
    candidates: Sequence[EvaluatedBuild],
    others: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the reasons for the selected build and for choices on other GPUs.

    Args:
        best: The selected build.
        compatible: The builds that run on the same GPUs as ``best``, best first.
        candidates: The builds that run on at least one GPU.
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
    yield from _explain_other_gpus(best, candidates, context)


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
    context = context.with_gpus_at(best.supported_gpus)
    newer = _find_newer_builds(best, others)
    constraints = context.program_constraints
    if constraints and constraints.without == constraints.build.torch:
        # No other package excludes a newer torch that runs.
        newer = [each for each in newer if each.reason_code != HELD_BACK]
    yield (
        _find_program_limit(newer, context)
        or _find_catalog_limit(best, newer, context)
        or _explain_newest_torch(best, newer, context)
    )
    if constraints:
        for text in constraints.held_back:
            yield Reason(PROGRAM_HELD_BACK, text)
    for other in newer:
        # If the build has no code for a GPU, a newer driver does not help.
        if other.reason_code == "driver-too-old" and other.missing_code is None:
            driver = context.rules.format_required_driver(other.build)
            yield Reason(
                "newer-driver", f"torch {other.build.torch} would need {driver}"
            )
            break


def _find_newer_builds(
    best: EvaluatedBuild, others: Iterable[EvaluatedBuild]
) -> list[EvaluatedBuild]:
    """Return builds of newer torch versions for the GPUs of ``best``."""
    newer = []
    for each in others:
        if each.build.torch > best.build.torch:
            code = tuple(each.gpu_code[position] for position in best.supported_gpus)
            newer.append(replace(each, gpu_code=code))
    return newer


def _find_program_limit(
    newer: Sequence[EvaluatedBuild], context: PlanContext
) -> Reason | None:
    """Return a reason if other packages exclude a newer torch.

    Args:
        newer: The builds of newer torch versions, newest first.
        context: The request and its machine.
    """
    constraints = context.program_constraints
    limited = [each.build for each in newer if each.reason_code == HELD_BACK]
    if not constraints or not limited:
        return None
    newest = f"torch {constraints.without or limited[0].torch} would run here"
    message = constraints.why or newest
    if constraints.limited_by:
        newest = f"without {constraints.limited_by}, {newest}"
        message = f"{constraints.why}; {newest}" if constraints.why else newest
    return Reason(HELD_BACK, message)


def _find_catalog_limit(
    best: EvaluatedBuild,
    newer: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Reason | None:
    """Return a reason if a newer torch is not in the catalog.

    Args:
        best: The selected build.
        newer: The builds of newer torch versions, newest first.
        context: The request and its machine.
    """
    for each in newer:
        if each.reason_code == "not-in-catalogue":
            newest = f"{best.build.torch} is the newest torch in the catalog"
            also = f"an index also lists {each.build.name}"
            return Reason("newest-known", f"{newest} of {context.catalog.date}; {also}")
    return None


def _explain_newest_torch(
    best: EvaluatedBuild,
    newer: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Reason:
    """Explain why no newer torch is selected.

    The reason mentions the driver if a newer torch would run with another driver. Otherwise, it mentions the GPU
    architecture.

    Args:
        best: The selected build.
        newer: The builds of newer torch versions, newest first.
        context: The request and its machine, with the GPUs of ``best``.
    """
    rules = context.rules
    available = [each for each in newer if each.reason_code not in UNAVAILABLE]
    coded = [
        each for each in available if each.build.unread or _has_code(each, context)
    ]
    running = [each for each in coded if _runs_on_all_gpus(each, context)]
    uncoded = [each for each in available if each not in coded]
    is_reachable = all(each.reason_code != "unreachable" for each in newer)
    where = "" if is_reachable else " in the reachable sources"
    for nearest in (running, coded, uncoded):
        requested = [
            each for each in nearest if each.reason_code not in _EXCLUDED_BY_REQUEST
        ]
        obstacle = find_closest_build(requested, rules)
        if obstacle:
            break
    else:
        if not is_reachable:
            newest = f"{best.build.torch} is the newest {_format_requested(newer)}torch"
            return Reason("newest-reachable", f"{newest}{where}")
        return _find_request_limit(best, newer, context)
    if nearest is uncoded:
        obstacle = replace(obstacle, reason=obstacle.missing_code)
        if obstacle.reason_code == "no-code":
            newest = f"the newest {_format_requested(coded)}torch{where} with code for {_format_chips(context)}"
            lack = rules.describe_missing_code(obstacle.build, context.gpus)
            return Reason("newest-with-code", f"{newest}: {obstacle.build.name} {lack}")
    elif obstacle.reason_code in rules.driver_reasons:
        newest = (
            f"{best.build.torch} is the newest {_format_requested(running)}torch{where}"
        )
        # The driver supports a newer build, but that build has no code for the GPU architecture.
        if any(rules.find_driver_rejection(each.build) is None for each in uncoded):
            newest += f" with code for {_format_chips(context)}"
        return Reason("newest-for-driver", f"{newest} that {rules.driver} supports")
    newest = f"{best.build.torch} is the newest that fits; {obstacle.rejection_text}"
    return Reason(f"{NEWEST_BUT}{obstacle.reason_code}", newest)


def _has_code(evaluated: EvaluatedBuild, context: PlanContext) -> bool:
    """Return whether every GPU could run a build with another driver."""
    reasons = [code.code for code in evaluated.gpu_code if isinstance(code, Reason)]
    return set(reasons).issubset(context.rules.driver_reasons)


def _runs_on_all_gpus(evaluated: EvaluatedBuild, context: PlanContext) -> bool:
    """Return whether every GPU can run a build with this driver."""
    if evaluated.missing_code:
        return False
    # Without a GPU, the driver does not matter.
    return not (context.gpus and context.rules.find_driver_rejection(evaluated.build))


def _format_requested(newer: Iterable[EvaluatedBuild]) -> str:
    """Return ``"requested "`` if the request excludes a newer torch."""
    codes = {each.reason_code for each in newer}
    return "requested " if codes & _EXCLUDED_BY_REQUEST else ""


def _format_chips(context: PlanContext) -> str:
    gpus = sorted(context.gpus, key=context.rules.rank)
    chips = [gpu.code_name or gpu.label for gpu in gpus]
    return " and ".join(dict.fromkeys(chips))


def _find_request_limit(
    best: EvaluatedBuild,
    newer: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Reason:
    torch = best.build.torch
    kind = best.build.backend.kind
    newest = f"{torch} is the newest known torch"
    limits = _EXCLUDED_BY_REQUEST & {each.reason_code for each in newer}
    if limits == {"other-backend"}:
        newest = f"{torch} is the newest torch that has a {best.build.backend} build"
    elif limits:
        newest = f"{torch} is the newest torch that was requested"
    is_elsewhere = any(build.torch > torch for build in context.builds)
    if not newer and is_elsewhere and kind == context.rules.kind:
        newest += f" with a build for {context.rules.name} GPUs"
    return Reason("newest-torch", newest)


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
            yield Reason(code, f"not {each.rejection_text}")
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
    candidates: Sequence[EvaluatedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the best build for GPUs that the selected build does not support.

    Args:
        best: The selected build.
        candidates: The builds that run on at least one GPU.
        context: The request and its machine, including all GPUs.
    """
    others = [
        each
        for each in candidates
        if not {*each.supported_gpus} <= {*best.supported_gpus}
    ]
    if not others:
        return
    served = select_gpus([each.supported_gpus for each in others], context)
    other = context.with_gpus_at(served)
    indices = ",".join(str(gpu.index) for gpu in other.gpus)
    serving = [each for each in others if {*served} <= {*each.supported_gpus}]
    build = sort_best_first(serving, context)[0].build
    would_select = (
        f"--gpus {indices} ({other.gpu_names}) would select torch {build.name}"
    )
    yield Reason("other-choice", would_select)


def list_gpu_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield warnings about running a build on the selected GPUs."""
    yield from context.rules.list_warnings(build, context.gpus)
    if build.lists_no_code:
        message = f"{build.name} does not list its GPU code"
        verify = (make_command("verify"),)
        yield Reason("architectures-unknown", message, fixes=verify)
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
        mirror = ("--backend", "cpu", "--torch-index", "https://index.example/whl")
        tag = build.backend.tag
        fixes = (
            make_change(*mirror, note="uses another index"),
            make_change("--backend", tag, note="locks for a machine with GPUs"),
        )
        yield Reason(GPU_BUILD_FOR_CPU, message, fixes=fixes)
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
