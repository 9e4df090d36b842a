"""Why this build, in two or three sentences; one for every build that was passed over; and what to mind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.backend import CPU
from gpuinstall.base.finding import Reason, Rejection
from gpuinstall.machine.protocol import Code
from gpuinstall.machine.vendors import vendor_of
from gpuinstall.plan.candidates import (
    closest,
    codes_of,
    gpus_to_serve,
    has_code,
    maker_key,
    missing_code,
    preference_key,
    preferred,
    runs,
)
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import HELD_BACK, PROGRAM_HELD_BACK, UNASKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.base.machine import Machine
    from gpuinstall.catalog import Build
    from gpuinstall.plan.candidates import Candidate
    from gpuinstall.plan.context import GpuPositions, PlanContext
    from gpuinstall.plan.values import RejectedBuild

_ELSEWHERE = Reason("no-code", "it runs on this machine's other GPUs")
_AN_INDEX = "https://index.example/whl"
_CONTAINER_FIX = "start it with the NVIDIA Container Toolkit (docker run --gpus all)"

_REQUESTED = {"other-torch", "other-backend", "not-allowed"}
"""The codes of builds that are rejected for the request alone."""

_AGAINST_A_BACKEND = {"no-companion", "not-allowed", "programs-conflict"}
"""The codes of builds that might have been preferred."""


def reasons_for(
    best: Candidate,
    candidates: list[Candidate],
    rejected: tuple[RejectedBuild, ...],
    context: PlanContext,
) -> tuple[Reason, ...]:
    """Return why the best is the best, what a newer driver would give, and what fewer or other GPUs would give."""
    served = context.with_gpus_at(best.covers)
    reasons = (
        _no_gpu_here(context),
        learned_reason(best, context),
        newest_reason(best, rejected, served),
        *held_back_programs(context),
        _newer_driver(best, rejected, served),
        _backend(best, candidates, rejected, context),
        _other_gpus(best, candidates, context),
    )
    return tuple(filter(None, reasons))


def _no_gpu_here(context: PlanContext) -> Reason | None:
    if context.gpus:
        return None
    name = context.rules.name
    return Reason(
        "no-gpu-here",
        f"there is no {name} GPU here: unproven until gpuinstall verify runs on one",
    )


def learned_reason(best: Candidate, context: PlanContext) -> Reason | None:
    """Return where what is known of a build comes from if the catalogue does not have it."""
    build = best.build
    if build.learned is None:
        return None
    unlisted = f"the catalogue of {context.catalog.date} does not have it"
    return Reason("learned", f"{build.name} was read from its wheel on {build.learned}: {unlisted}")


def newest_reason(
    best: Candidate,
    rejected: tuple[RejectedBuild, ...],
    context: PlanContext,
) -> Reason:
    """Return that it is the newest torch, or what keeps a newer one away.

    The driver does if another driver would run a newer one, the chip if none would.
    """
    newer = _newer_than(best, rejected)
    unavailable = _newest_seen(best, newer, context)
    if unavailable:
        return unavailable
    there = [rejection for rejection in newer if rejection.reason.code not in NOT_THERE]
    coded = []
    running = []
    for rejection in there:
        build = rejection.candidate
        if build.unread or has_code(build, context):
            coded.append(rejection)
            if runs(build, context):
                running.append(rejection)
    obstacle = _closest_of_requested(running, context)
    if obstacle:
        return _newest_but(best, obstacle)
    if any(rejection.reason.code in context.rules.driver_reasons for rejection in coded):
        newest = f"{best.build.torch} is the newest torch{_asked_for(running)}"
        # The driver runs a newer one that has no code for the chip.
        uncoded = [rejection.candidate for rejection in there if rejection not in coded]
        if any(context.rules.against_driver(build) is None for build in uncoded):
            newest += f" with code for {_chips(context)}"
        return Reason("newest-for-driver", f"{newest} that {context.rules.driver} runs")
    obstacle = _closest_of_requested(coded, context)
    if obstacle:
        return _newest_but(best, obstacle)
    obstacle = _closest_of_requested(there, context)
    if obstacle:
        return _newest_with_code(best, obstacle, _asked_for(coded), context)
    return _newest_requested(best, newer, context)


def _newer_than(best: Candidate, rejected: tuple[RejectedBuild, ...]) -> list[RejectedBuild]:
    """Return the builds of a newer torch, which come first in the order of the catalogue."""
    newer = []
    for rejection in rejected:
        if rejection.candidate.torch <= best.build.torch:
            break
        newer.append(rejection)
    return newer


def _newest_seen(
    best: Candidate,
    newer: list[RejectedBuild],
    context: PlanContext,
) -> Reason | None:
    """Return that a newer one is not what the programs want, unknown, or in no source that answers."""
    torch = best.build.torch
    first_by_code: dict[str, RejectedBuild] = {}
    for rejection in newer:
        first_by_code.setdefault(rejection.reason.code, rejection)
    held_back = first_by_code.get(HELD_BACK)
    if held_back:
        newest = f"torch {held_back.candidate.torch} would run here"
        why = held_back.reason.message
        return Reason(HELD_BACK, f"{why}; without it {newest}" if why else newest)
    unknown = first_by_code.get("not-in-catalogue")
    if unknown:
        newest = f"{torch} is the newest torch that the catalogue of {context.catalog.date} knows"
        return Reason("newest-known", f"{newest}; {unknown.candidate.name} is on the index")
    if "unreachable" in first_by_code:
        return Reason("newest-reachable", f"{torch} is the newest torch in the reachable sources")
    return None


def _closest_of_requested(
    rejected: list[RejectedBuild],
    context: PlanContext,
) -> RejectedBuild | None:
    """Return the build that came closest of those that the request does not exclude."""
    requested = [rejection for rejection in rejected if rejection.reason.code not in _REQUESTED]
    return closest(requested, context.rules)


def _asked_for(rejected: list[RejectedBuild]) -> str:
    """Return the restriction of a sentence if there is a newer torch that was not requested."""
    is_restricted = any(rejection.reason.code in _REQUESTED for rejection in rejected)
    return " asked for" if is_restricted else ""


def _newest_but(best: Candidate, obstacle: RejectedBuild) -> Reason:
    code, message = obstacle.reason
    newest = f"{best.build.torch} is the newest that fits"
    return Reason(f"newest-but-{code}", f"{newest}; {obstacle.candidate.name}: {message}")


def _newest_with_code(
    best: Candidate,
    obstacle: RejectedBuild,
    restriction: str,
    context: PlanContext,
) -> Reason:
    """Return which chip a newer build has no code for, whatever it was rejected for."""
    build = obstacle.candidate
    for code in codes_of(build, context):
        if isinstance(code, Reason):
            if code.code == "no-code":
                break
            return _newest_but(best, Rejection(build, code))
    else:
        return _newest_but(best, obstacle)
    newest = f"the newest torch{restriction} with code for {_chips(context)}"
    return Reason(
        "newest-with-code", f"{newest}: {build.name} {context.rules.lacks(build, context.gpus)}"
    )


def _chips(context: PlanContext) -> str:
    gpus = sorted(context.gpus, key=context.rules.rank)
    chips = [context.rules.architecture(gpu) or gpu.label for gpu in gpus]
    return " and ".join(dict.fromkeys(chips))


def _newest_requested(
    best: Candidate,
    newer: list[RejectedBuild],
    context: PlanContext,
) -> Reason:
    torch = best.build.torch
    backend = best.build.backend
    newest = f"{torch} is the newest torch"
    limits = _REQUESTED & {rejection.reason.code for rejection in newer}
    if limits == {"other-backend"}:
        return Reason("newest-of-backend", f"{newest} that has a {backend} build")
    if limits == {"not-allowed"}:
        return Reason("newest-allowed", f"{newest} that the allowed backends have")
    if limits:
        newest += " that was requested"
    is_elsewhere = any(other > torch for other in context.terms.ages)
    if not newer and is_elsewhere and backend.kind == context.rules.kind:
        newest += f" with a build for {context.rules.name} GPUs"
    return Reason("newest-torch", newest)


def held_back_programs(context: PlanContext) -> list[Reason]:
    """Return which programs could not be the newest."""
    if context.program_constraints is None:
        return []
    return [Reason(PROGRAM_HELD_BACK, text) for text in context.program_constraints.held_back]


def _newer_driver(
    best: Candidate,
    rejected: tuple[RejectedBuild, ...],
    context: PlanContext,
) -> Reason | None:
    for rejection in _newer_than(best, rejected):
        build = rejection.candidate
        if rejection.reason.code != "driver-too-old":
            continue
        if all(isinstance(code, Code) for code in codes_of(build, context)):
            driver = context.rules.driver_for(build)
            return Reason("newer-driver", f"torch {build.torch} would need {driver}")
    return None


def _backend(
    best: Candidate,
    candidates: list[Candidate],
    rejected: tuple[RejectedBuild, ...],
    context: PlanContext,
) -> Reason | None:
    torch = best.build.torch
    for rejection in rejected:
        build = rejection.candidate
        if rejection.reason.code in _AGAINST_A_BACKEND and build.torch == torch:
            return Reason("backend", f"not {build.name}: {rejection.reason.message}")
    rivals = [
        other
        for other in candidates
        if other is not best and other.age == best.age and other.covers == best.covers
    ]
    if not rivals:
        return None
    rival = preferred(rivals, context)
    merit = _merit(rival, best, context)
    return Reason("backend", f"{best.build.backend} and not {rival.build.backend}: {merit}")


def _other_gpus(
    best: Candidate,
    candidates: list[Candidate],
    context: PlanContext,
) -> Reason | None:
    """Return what the GPUs that are left out would give, or the rest if one architecture were left out."""
    everywhere = context.every_position
    left_out = set(everywhere).difference(best.covers)
    if left_out:
        covers = [each.covers for each in candidates if not left_out.isdisjoint(each.covers)]
        if not covers:
            return None
        return _would_give("other-choice", gpus_to_serve(covers, context), candidates, context)
    gains = []
    names = list(map(context.rules.architecture, context.gpus))
    for name in dict.fromkeys(names):
        cover = tuple(each for each in everywhere if names[each] != name)
        if cover:
            other = _best_for(cover, candidates, context)
            if other.age < best.age:
                gains.append((preference_key(other, context), -len(cover), cover))
    if not gains:
        return None
    *_, cover = min(gains, key=lambda gain: gain[:2])
    return _would_give("fewer-gpus", cover, candidates, context)


def _would_give(
    code: str,
    cover: GpuPositions,
    candidates: list[Candidate],
    context: PlanContext,
) -> Reason:
    gpus = [context.gpus[position] for position in cover]
    names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
    indices = ",".join(str(gpu.index) for gpu in gpus)
    candidate = _best_for(cover, candidates, context)
    return Reason(code, f"--gpus {indices} ({names}) would give torch {candidate.build.name}")


def _best_for(
    cover: GpuPositions,
    candidates: list[Candidate],
    context: PlanContext,
) -> Candidate:
    return preferred([each for each in candidates if set(cover) <= set(each.covers)], context)


def in_order(rejected: Iterable[RejectedBuild], context: PlanContext) -> tuple[RejectedBuild, ...]:
    """Return rejected builds in the order of the catalogue."""
    positions = context.terms.positions
    return tuple(sorted(rejected, key=lambda rejection: positions[rejection.candidate]))


def reject_lesser(
    candidates: list[Candidate],
    best: Candidate,
    context: PlanContext,
) -> list[RejectedBuild]:
    """Reject the builds that run too: the programs want another torch or cannot have it, or the best is better."""
    older = Reason("older-torch", f"{best.build.name} fits too and is newer")
    rejected = []
    for candidate in candidates:
        if candidate is not best:
            reason = _why_lesser(candidate, best, context) or older
            rejected.append(Rejection(candidate.build, reason))
    return rejected


def _why_lesser(
    candidate: Candidate,
    best: Candidate,
    context: PlanContext,
) -> Reason | None:
    """Return why a build is not the one; None if it is older."""
    constraints = context.program_constraints
    if constraints:
        build = candidate.build
        tag = build.backend.tag
        if build.torch > constraints.torch:
            return Reason(HELD_BACK, constraints.why)
        if build.torch == constraints.torch and tag in constraints.unserved:
            return Reason("programs-conflict", constraints.unserved[tag])
    if candidate.covers != best.covers:
        return missing_code(candidate.codes, context) or _ELSEWHERE
    if candidate.age > best.age:
        return None
    merit = _merit(candidate, best, context)
    return Reason("less-preferred", f"{best.build.name} is preferred: {merit}")


def _merit(
    candidate: Candidate,
    best: Candidate,
    context: PlanContext,
) -> str:
    if best.build.backend == context.demand.preferred_backend != candidate.build.backend:
        return "the request prefers it"
    return context.rules.merit(maker_key(best, context), maker_key(candidate, context))


def gpu_warnings(build: Build, context: PlanContext) -> tuple[Reason, ...]:
    """Return the warnings of a build for the GPUs of the context."""
    warnings = list(context.rules.warnings(build, context.gpus))
    if build.lists_no_code:
        blind = f"{build.name} does not list its GPU code; verify decides"
        warnings.append(Reason("architectures-unknown", blind))
    companions = context.terms.companions.built_for_the_cpu(build)
    if companions:
        warnings.append(companions)
    return (*warnings, *_common_warnings(build, context))


def cpu_warnings(
    build: Build,
    why: Reason,
    context: PlanContext,
) -> tuple[Reason, ...]:
    """Return the warnings of a CPU build, or of the build for GPUs that takes its place."""
    warnings = []
    if build.backend != CPU:
        message = (
            f"no reachable source has a CPU build: {build.name} is 3 GB instead of 0.2; "
            f"for the CPU build, use an index that has it: --backend cpu --torch-index {_AN_INDEX}; "
            f"for a machine with GPUs elsewhere: --backend {build.backend}"
        )
        warnings.append(Reason(UNASKED, message))
    signs = _signs_of_a_builder(context.machine)
    if why.code == "no-gpu" and signs:
        message = (
            f"this looks like a machine that builds environments for others ({', '.join(signs)}): "
            "describe the target machine with --backend cu126, --machine, or --gpu and --driver"
        )
        if context.machine.environment.container:
            message += f"; if it has GPUs, {_CONTAINER_FIX}"
        warnings.append(Reason("looks-like-a-builder", message))
    return (*warnings, *_common_warnings(build, context))


def _signs_of_a_builder(machine: Machine) -> list[str]:
    signs = list(machine.signs)
    container = machine.environment.container
    if container:
        signs.insert(0, f"a {container} container")
    return signs + [each.message for each in machine.problems if each.code == "gpu-not-ours"]


def _common_warnings(build: Build, context: PlanContext) -> Iterator[Reason]:
    """Yield that a preference is not met, what is wrong with the machine, and which GPUs no build is chosen for."""
    preference = _unmet_preference(build, context)
    if preference:
        yield preference
    machine = context.machine
    for problem in machine.problems:
        if not problem.blocking:
            yield problem.reason
    for gpu in machine.gpus:
        if vendor_of(gpu, machine) != context.rules.vendor:
            name = f"GPU {gpu.index} ({gpu.label if gpu.name else 'unknown'})"
            message = f"{name} is not used: it is not from {context.rules.name}"
            yield Reason("gpu-not-supported", message)


def _unmet_preference(build: Build, context: PlanContext) -> Reason | None:
    """Return that the backend which the request prefers was not taken, and what would force it."""
    wanted = context.demand.preferred_backend
    if wanted is None or wanted == build.backend or context.demand.backends:
        return None
    if wanted == CPU:
        why = "this machine has GPUs"
    elif any(
        other.torch == build.torch and other.backend == wanted for other in context.terms.builds
    ):
        why = "it does not run here"
    else:
        why = f"it has no build of torch {build.torch}"
    return Reason(
        "preference-unmet",
        f"{wanted} is preferred by the request, but {why}: "
        f"{build.backend} is taken; --backend {wanted} forces it",
    )
