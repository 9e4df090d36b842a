"""Why this build, in two or three sentences; why not each of the others; and what to mind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gpuinstall.base.finding import Reason
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import CPU
from gpuinstall.catalog.catalog import Build
from gpuinstall.machine.vendors import vendor_of
from gpuinstall.plan.candidates import (
    JudgedBuild,
    best_first,
    closest,
    gpus_to_serve,
    maker_key,
    missing_code,
)
from gpuinstall.plan.context import PlanContext
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import (
    BACKEND_PASSED_OVER,
    HELD_BACK,
    NEWEST_BUT,
    PROGRAM_HELD_BACK,
    UNASKED,
    WITHOUT_GPU,
)

_AN_INDEX = "https://index.example/whl"
_CONTAINER_FIX = "start it with the NVIDIA Container Toolkit (docker run --gpus all)"

_REQUESTED = {"other-torch", "other-backend", "not-allowed"}
"""The codes of builds that are rejected for the request alone."""

_AGAINST_A_BACKEND = {"no-companion", "not-allowed", "programs-conflict"}
"""The codes of builds that might have been preferred."""


def pass_over(
    judged: Iterable[JudgedBuild],
    best: JudgedBuild,
    context: PlanContext,
) -> list[JudgedBuild]:
    """Return the builds but for the best, each with a reason, also those that run too.

    Args:
        judged: Every build, the best among them.
        best: What is chosen.
        context: What it was chosen from.
    """
    passed_over = []
    for each in judged:
        if each is not best:
            reason = each.reason or _why_lesser(each, best, context)
            passed_over.append(replace(each, reason=reason))
    return passed_over


def _why_lesser(
    candidate: JudgedBuild,
    best: JudgedBuild,
    context: PlanContext,
) -> Reason | None:
    constraints = context.program_constraints
    build = candidate.build
    if constraints and build.torch > constraints.torch:
        return Reason(HELD_BACK, constraints.why)
    if constraints and build.torch == constraints.torch:
        conflict = constraints.unserved.get(build.backend.tag)
        if conflict is not None:
            return Reason("programs-conflict", conflict)
    # The best runs on all GPUs if any build does.
    if candidate.served_gpus != best.served_gpus:
        return missing_code(candidate, context.gpus)
    if build.torch < best.build.torch:
        return Reason("older-torch", f"{best.build.name} fits too and is newer")
    merit = _merit(candidate, best, context)
    return Reason("less-preferred", f"{best.build.name} is preferred: {merit}")


def _merit(
    other: JudgedBuild,
    best: JudgedBuild,
    context: PlanContext,
) -> str:
    if best.build.backend == context.demand.preferred_backend != other.build.backend:
        return "the request prefers it"
    keys = zip(maker_key(best, context), maker_key(other, context), strict=True)
    merits = [merit for (ours, merit), (theirs, _) in keys if ours != theirs]
    return merits[0] if merits else "it is as good"


def reasons_for(
    best: JudgedBuild,
    fitting: Sequence[JudgedBuild],
    candidates: Sequence[JudgedBuild],
    passed_over: Sequence[JudgedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield why the best is the best, what a newer driver would give, and what other GPUs would give.

    Args:
        best: What is chosen.
        fitting: What runs on the same GPUs, the best first.
        candidates: What runs on some GPUs.
        passed_over: All but the best.
        context: What it was chosen from.
    """
    name = context.rules.name
    if not context.gpus:
        yield Reason(
            "no-gpu-here",
            f"there is no {name} GPU here: unproven until gpuinstall verify runs on one",
        )
    yield from newest_reasons(best, passed_over, context)
    yield from _backend(best, fitting, passed_over, context)
    yield from _other_gpus(best, candidates, context)


def newest_reasons(
    best: JudgedBuild,
    passed_over: Iterable[JudgedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield where what is known of the best comes from, and what keeps a newer torch and newer programs away.

    Args:
        best: What is chosen.
        passed_over: All but the best, the newest first.
        context: What it was chosen from.
    """
    build = best.build
    if build.learned:
        unlisted = f"the catalog of {context.catalog.date} does not have it"
        yield Reason(
            "learned",
            f"{build.name} was read from its wheel on {build.learned}: {unlisted}",
        )
    context = context.with_gpus_at(best.served_gpus)
    newer = _newer_than(best, passed_over)
    yield _newest_seen(best, newer, context) or _newest(best, newer, context)
    if context.program_constraints:
        for text in context.program_constraints.held_back:
            yield Reason(PROGRAM_HELD_BACK, text)
    for other in newer:
        # Only if every GPU that is served has code in it: a newer driver alone would not help the others.
        if other.code == "driver-too-old" and other.missing is None:
            driver = context.rules.driver_for(other.build)
            yield Reason(
                "newer-driver", f"torch {other.build.torch} would need {driver}"
            )
            break


def _newer_than(
    best: JudgedBuild,
    passed_over: Iterable[JudgedBuild],
) -> list[JudgedBuild]:
    """Return the builds of a newer torch, with what the GPUs that the best serves run of them."""
    newer = []
    for each in passed_over:
        if each.build.torch > best.build.torch:
            codes = tuple(each.codes[position] for position in best.served_gpus)
            newer.append(replace(each, codes=codes))
    return newer


def _newest_seen(
    best: JudgedBuild,
    newer: Sequence[JudgedBuild],
    context: PlanContext,
) -> Reason | None:
    """Return that a newer one is not what the programs want, unknown, or in no source that answers.

    Args:
        best: What is chosen.
        newer: The builds of a newer torch, the newest first.
        context: What it was chosen from.
    """
    torch = best.build.torch
    # Backwards, so that of each code the newest build is the one that stays.
    first = {each.code: each for each in reversed(newer)}
    constraints = context.program_constraints
    if constraints and HELD_BACK in first:
        without = constraints.without or first[HELD_BACK].build.torch
        newest = f"torch {without} would run here"
        why = constraints.why
        return Reason(HELD_BACK, f"{why}; without it {newest}" if why else newest)
    if "not-in-catalogue" in first:
        newest = f"{torch} is the newest torch that the catalog of {context.catalog.date} knows"
        unknown = first["not-in-catalogue"].build.name
        return Reason("newest-known", f"{newest}; {unknown} is on the index")
    if "unreachable" in first:
        return Reason(
            "newest-reachable", f"{torch} is the newest torch in the reachable sources"
        )
    return None


def _newest(
    best: JudgedBuild,
    newer: Sequence[JudgedBuild],
    context: PlanContext,
) -> Reason:
    """Return that it is the newest torch, or what keeps a newer one away.

    The driver does if another driver would run a newer one, the chip if none would.

    Args:
        best: What is chosen.
        newer: The builds of a newer torch, the newest first.
        context: What it was chosen from, with the GPUs that the best serves.
    """
    rules = context.rules
    there = [each for each in newer if each.code not in NOT_THERE]
    coded = [each for each in there if each.build.unread or _has_code(each, context)]
    running = [each for each in coded if each.missing is None]
    # Without a GPU there is no driver to ask.
    if context.gpus:
        running = [each for each in running if rules.against_driver(each.build) is None]
    uncoded = [each for each in there if each not in coded]
    for nearest in (running, coded, uncoded):
        requested = [each for each in nearest if each.code not in _REQUESTED]
        obstacle = closest(requested, rules)
        if obstacle:
            break
    else:
        return _newest_requested(best, newer, context)
    if nearest is uncoded:
        obstacle = replace(obstacle, reason=obstacle.missing)
        if obstacle.code == "no-code":
            newest = (
                f"the newest torch{_asked_for(coded)} with code for {_chips(context)}"
            )
            lack = rules.lacks(obstacle.build, context.gpus)
            return Reason("newest-with-code", f"{newest}: {obstacle.build.name} {lack}")
    elif obstacle.code in rules.driver_reasons:
        newest = f"{best.build.torch} is the newest torch{_asked_for(running)}"
        # The driver runs a newer one that has no code for the chip.
        if any(rules.against_driver(each.build) is None for each in uncoded):
            newest += f" with code for {_chips(context)}"
        return Reason("newest-for-driver", f"{newest} that {rules.driver} runs")
    newest = f"{best.build.torch} is the newest that fits; {obstacle.named_reason}"
    return Reason(f"{NEWEST_BUT}{obstacle.code}", newest)


def _has_code(judged: JudgedBuild, context: PlanContext) -> bool:
    """Whether every GPU would run a build under some driver."""
    reasons = [code.code for code in judged.codes if isinstance(code, Reason)]
    return set(reasons).issubset(context.rules.driver_reasons)


def _asked_for(judged: Iterable[JudgedBuild]) -> str:
    """Return the restriction of a sentence if there is a newer torch that was not requested."""
    is_restricted = any(each.code in _REQUESTED for each in judged)
    return " asked for" if is_restricted else ""


def _chips(context: PlanContext) -> str:
    gpus = sorted(context.gpus, key=context.rules.rank)
    chips = [context.rules.architecture(gpu) or gpu.label for gpu in gpus]
    return " and ".join(dict.fromkeys(chips))


def _newest_requested(
    best: JudgedBuild,
    newer: Sequence[JudgedBuild],
    context: PlanContext,
) -> Reason:
    torch = best.build.torch
    kind = best.build.backend.kind
    newest = f"{torch} is the newest torch"
    limits = _REQUESTED & {each.code for each in newer}
    if limits == {"other-backend"}:
        newest += f" that has a {best.build.backend} build"
    elif limits:
        newest += " that was requested"
    is_elsewhere = any(build.torch > torch for build in context.builds)
    if not newer and is_elsewhere and kind == context.rules.kind:
        newest += f" with a build for {context.rules.name} GPUs"
    return Reason("newest-torch", newest)


def _backend(
    best: JudgedBuild,
    fitting: Iterable[JudgedBuild],
    passed_over: Iterable[JudgedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield why another build of the same torch is not taken.

    Args:
        best: What is chosen.
        fitting: What runs on the same GPUs, the best first.
        passed_over: All but the best.
        context: What it was chosen from.
    """
    torch = best.build.torch
    for each in passed_over:
        if each.build.torch == torch and each.code in _AGAINST_A_BACKEND:
            # An installation says it too if this build would have been taken but for the companion.
            is_preferred = best_first([best, each], context)[0] is each
            is_lost = is_preferred and each.code == "no-companion"
            code = BACKEND_PASSED_OVER if is_lost else "backend"
            yield Reason(code, f"not {each.named_reason}")
            return
    for rival in fitting:
        if rival is not best and rival.build.torch == torch:
            preferred = f"{best.build.backend} and not {rival.build.backend}"
            yield Reason("backend", f"{preferred}: {_merit(rival, best, context)}")
            return


def _other_gpus(
    best: JudgedBuild,
    candidates: Sequence[JudgedBuild],
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield what the GPUs that are left out would give.

    Args:
        best: What is chosen.
        candidates: What runs on some GPUs.
        context: What it was chosen from, with all GPUs.
    """
    left_out = {*range(len(context.gpus))}.difference(best.served_gpus)
    others = [
        each.served_gpus
        for each in candidates
        if left_out.intersection(each.served_gpus)
    ]
    if not others:
        return
    served = gpus_to_serve(others, context)
    other = context.with_gpus_at(served)
    indices = ",".join(str(gpu.index) for gpu in other.gpus)
    serving = [each for each in candidates if {*served}.issubset(each.served_gpus)]
    build = best_first(serving, context)[0].build
    would_give = f"--gpus {indices} ({other.gpu_names}) would give torch {build.name}"
    yield Reason("other-choice", would_give)


def gpu_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield the warnings of a build for the GPUs of the context."""
    yield from context.rules.warnings(build, context.gpus)
    if build.lists_no_code:
        blind = f"{build.name} does not list its GPU code; run gpuinstall verify"
        yield Reason("architectures-unknown", blind)
    packages = " and ".join(context.companions.cpu_builds(build))
    if packages:
        no_code = f"{packages} for {build.os} {build.arch} have no GPU code for this backend: they are CPU builds"
        yield Reason("companion-for-the-cpu", no_code)
    yield from _common_warnings(build, context)


def cpu_warnings(
    build: Build,
    why: Reason,
    context: PlanContext,
) -> Iterator[Reason]:
    """Yield the warnings of a CPU build, or of the build for GPUs that takes its place.

    Args:
        build: What is chosen.
        why: Why it is one for the CPU.
        context: What it was chosen from.
    """
    if build.backend != CPU:
        message = (
            f"no reachable source has a CPU build: {build.name} is 3 GB instead of 0.2; "
            f"for the CPU build, use an index that has it: --backend cpu --torch-index {_AN_INDEX}; "
            f"for a machine with GPUs elsewhere: --backend {build.backend}"
        )
        yield Reason(UNASKED, message)
    signs = ", ".join(_signs_of_a_builder(context.machine))
    if why.code == WITHOUT_GPU and signs:
        message = (
            f"this looks like a machine that builds environments for others ({signs}): "
            "describe the target machine with --backend cu126, --machine, or --gpu and --driver"
        )
        if context.machine.environment.container:
            message += f"; if it has GPUs, {_CONTAINER_FIX}"
        yield Reason("looks-like-a-builder", message)
    yield from _common_warnings(build, context)


def _signs_of_a_builder(machine: Machine) -> Iterator[str]:
    if machine.environment.container:
        yield f"a {machine.environment.container} container"
    yield from machine.signs
    for problem in machine.problems:
        if problem.code == "gpu-not-ours":
            yield problem.message


def _common_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield that a preference is not met, what is wrong with the machine, and which GPUs no build is chosen for."""
    preferred = context.demand.preferred_backend
    if preferred not in {None, build.backend} and not context.demand.backends:
        yield Reason(
            "preference-unmet",
            f"{preferred} is preferred by the request, but {build.backend} is taken: "
            f"--backend {preferred} forces it",
        )
    machine = context.machine
    for problem in machine.problems:
        if not problem.blocking:
            yield problem.reason
    for gpu in machine.gpus:
        if vendor_of(gpu, machine) != context.rules.vendor:
            name = f"GPU {gpu.index} ({gpu.label if gpu.name else 'unknown'})"
            message = f"{name} is not used: it is not from {context.rules.name}"
            yield Reason("gpu-not-supported", message)
