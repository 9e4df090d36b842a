"""Why this build, in two or three sentences; one for every build that was passed over; and what to mind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.finding import Reason, Rejection
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
from gpuinstall.vendors import vendor_of
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog import Build
    from gpuinstall.plan.candidates import Candidate, GpuPositions
    from gpuinstall.plan.context import PlanContext

_ELSEWHERE = Reason("no-code", "it runs on this machine's other GPUs")
_AN_INDEX = "https://index.example/whl"
_CONTAINER_FIX = "start it with the NVIDIA Container Toolkit (docker run --gpus all)"

_REQUESTED = {"other-torch", "other-backend", "not-allowed"}
"""The codes of builds that are rejected for the request alone."""


def reasons_for(
    best: Candidate,
    candidates: list[Candidate],
    rejected: tuple[Rejection[Build], ...],
    context: PlanContext,
) -> tuple[Reason, ...]:
    """Return why the best is the best, what a newer driver would give, and what fewer or other GPUs would give."""
    served = replace(context, gpus=tuple(context.gpus[position] for position in best.covers))
    here = (
        f"there is no {context.rules.name} GPU here: unproven until gpuinstall verify runs on one"
    )
    reasons = (
        None if context.gpus else Reason("no-gpu-here", here),
        learned_reason(best, context),
        newest_reason(best, rejected, served),
        *held_back_programs(context),
        _newer_driver(best, rejected, served),
        _backend(best, candidates, rejected, context),
        _other_gpus(best, candidates, context),
    )
    return tuple(reason for reason in reasons if reason is not None)


def learned_reason(best: Candidate, context: PlanContext) -> Reason | None:
    """Return where what is known of a build comes from if the catalogue does not have it."""
    build = best.build
    if build.learned is None:
        return None
    unlisted = f"the catalogue of {context.catalog.date} does not have it"
    return Reason("learned", f"{build.name} was read from its wheel on {build.learned}: {unlisted}")


def held_back_programs(context: PlanContext) -> list[Reason]:
    """Return which programs could not be the newest."""
    return [
        Reason(PROGRAM_HELD_BACK, text)
        for text in (context.settled.held_back if context.settled else ())
    ]


def in_order(
    rejected: Iterable[Rejection[Build]], context: PlanContext
) -> tuple[Rejection[Build], ...]:
    """Return rejected builds in the order of the catalogue."""
    positions = {build: position for position, build in enumerate(context.builds)}
    return tuple(sorted(rejected, key=lambda rejection: positions[rejection.candidate]))


def reject_lesser(
    candidates: list[Candidate], best: Candidate, context: PlanContext
) -> list[Rejection[Build]]:
    """Reject the builds that run too: the programs want another torch or cannot have it, or the best is better."""
    others = (candidate for candidate in candidates if candidate is not best)
    return [
        Rejection(candidate.build, _why_lesser(candidate, best, context)) for candidate in others
    ]


def _why_lesser(candidate: Candidate, best: Candidate, context: PlanContext) -> Reason:
    build, settled = candidate.build, context.settled
    if settled and build.torch > settled.torch:
        return Reason(HELD_BACK, settled.why)
    if settled and build.torch == settled.torch and build.backend.tag in settled.unserved:
        return Reason("programs-conflict", settled.unserved[build.backend.tag])
    if candidate.covers != best.covers:
        return missing_code(candidate, context.gpus) or _ELSEWHERE
    if build.torch < best.build.torch:
        return Reason("older-torch", f"{best.build.name} fits too and is newer")
    return Reason(
        "less-preferred", f"{best.build.name} is preferred: {_merit(candidate, best, context)}"
    )


def gpu_warnings(build: Build, context: PlanContext) -> tuple[Reason, ...]:
    """Return the warnings of a build for the GPUs of the context."""
    blind = f"{build.name} does not list its GPU code; verify decides"
    unsaid = Reason("architectures-unknown", blind) if build.lists_no_code else None
    companions = context.companions.built_for_the_cpu(build)
    own = filter(None, [unsaid, companions, unmet_preference(build, context)])
    return (*context.rules.warnings(build, context.gpus), *own, *_of_the_machine(context))


def cpu_warnings(build: Build, why: Reason, context: PlanContext) -> tuple[Reason, ...]:
    """Return the warnings of a CPU build, or of the build for GPUs that takes its place."""
    warnings, machine = [], context.machine
    if build.backend != CPU:
        message = (
            f"no reachable source has a CPU build: {build.name} is 3 GB instead of 0.2; "
            f"for the CPU build, use an index that has it: --backend cpu --torch-index {_AN_INDEX}; "
            f"for a machine with GPUs elsewhere: --backend {build.backend}"
        )
        warnings.append(Reason(UNASKED, message))
    container = (
        [f"a {machine.environment.container} container"] if machine.environment.container else []
    )
    others = [problem.message for problem in machine.problems if problem.code == "gpu-not-ours"]
    if why.code == "no-gpu" and (signs := [*container, *machine.signs, *others]):
        message = (
            f"this looks like a machine that builds environments for others ({', '.join(signs)}): "
            "describe the target machine with --backend cu126, --machine, or --gpu and --driver"
        )
        fix = f"; if it has GPUs, {_CONTAINER_FIX}" if container else ""
        warnings.append(Reason("looks-like-a-builder", message + fix))
    return (*warnings, *filter(None, [unmet_preference(build, context)]), *_of_the_machine(context))


def newest_reason(
    best: Candidate, rejected: Iterable[Rejection[Build]], context: PlanContext
) -> Reason:
    """Return that it is the newest torch, or what keeps a newer one away.

    The driver does if another driver would run a newer one, the chip if none would.
    """
    newer = [rejection for rejection in rejected if rejection.candidate.torch > best.build.torch]
    if hidden := _newest_seen(best, newer, context):
        return hidden
    there = [rejection for rejection in newer if rejection.reason.code not in NOT_THERE]
    coded = [one for one in there if one.candidate.unread or has_code(one.candidate, context)]
    running = [rejection for rejection in coded if runs(rejection.candidate, context)]
    if blocking := _closest_of_requested(running, context):
        return _newest_but(best, blocking)
    if any(rejection.reason.code in context.rules.driver_reasons for rejection in coded):
        newest = f"{best.build.torch} is the newest torch{_asked(running)}"
        return Reason("newest-for-driver", f"{newest} that {context.rules.driver} runs")
    if blocking := _closest_of_requested(coded, context):
        return _newest_but(best, blocking)
    if blocking := _closest_of_requested(there, context):
        return _newest_with_code(best, blocking, _asked(coded), context)
    return _newest_requested(best, newer, context)


def _closest_of_requested(
    rejected: list[Rejection[Build]], context: PlanContext
) -> Rejection[Build] | None:
    """Return the build that came closest of those that the request does not exclude."""
    return closest((one for one in rejected if one.reason.code not in _REQUESTED), context.rules)


def unmet_preference(build: Build, context: PlanContext) -> Reason | None:
    """Return that the backend which the request prefers was not taken, and what would force it."""
    wanted = context.demand.preferred_backend
    if wanted is None or wanted == build.backend or context.demand.backends:
        return None
    exists = any(other.torch == build.torch and other.backend == wanted for other in context.builds)
    why = "it does not run here" if exists else f"it has no build of torch {build.torch}"
    if wanted == CPU:
        why = "this machine has GPUs"
    return Reason(
        "preference-unmet",
        f"{wanted} is preferred by the request, but {why}: {build.backend} is taken; --backend {wanted} forces it",
    )


def _merit(candidate: Candidate, best: Candidate, context: PlanContext) -> str:
    if best.build.backend == context.demand.preferred_backend != candidate.build.backend:
        return "the request prefers it"
    return context.rules.merit(maker_key(best, context), maker_key(candidate, context))


def _newer_driver(
    best: Candidate, rejected: tuple[Rejection[Build], ...], context: PlanContext
) -> Reason | None:
    for rejection in rejected:
        build = rejection.candidate
        if rejection.reason.code != "driver-too-old" or build.torch <= best.build.torch:
            continue
        if all(isinstance(code, Code) for code in codes_of(build, context)):
            return Reason(
                "newer-driver", f"torch {build.torch} would need {context.rules.driver_for(build)}"
            )
    return None


def _backend(
    best: Candidate,
    candidates: list[Candidate],
    rejected: tuple[Rejection[Build], ...],
    context: PlanContext,
) -> Reason | None:
    torch = best.build.torch
    for rejection in rejected:
        build, reason = rejection.candidate, rejection.reason
        if build.torch == torch and reason.code in {
            "no-companion",
            "not-allowed",
            "programs-conflict",
        }:
            return Reason("backend", f"not {build.name}: {reason.message}")
    peers = (
        other for other in candidates if other.build.torch == torch and other.covers == best.covers
    )
    rivals = [other for other in peers if other is not best]
    if not rivals:
        return None
    rival = preferred(rivals, context)
    return Reason(
        "backend",
        f"{best.build.backend} and not {rival.build.backend}: {_merit(rival, best, context)}",
    )


def _other_gpus(
    best: Candidate, candidates: list[Candidate], context: PlanContext
) -> Reason | None:
    everywhere = range(len(context.gpus))
    others = set(everywhere) - set(best.covers)
    if others:
        covers = {candidate.covers for candidate in candidates if others & set(candidate.covers)}
        return (
            _would_give("other-choice", gpus_to_serve(covers, context), candidates, context)
            if covers
            else None
        )
    gains = [
        (other, cover)
        for name in context.architectures
        if (
            cover := tuple(
                position for position in everywhere if context.architecture_names[position] != name
            )
        )
        and (other := _best_for(cover, candidates, context)).build.torch > best.build.torch
    ]
    if not gains:
        return None
    _, cover = min(gains, key=lambda gain: (preference_key(gain[0], context), -len(gain[1])))
    return _would_give("fewer-gpus", cover, candidates, context)


def _would_give(
    code: str, cover: GpuPositions, candidates: list[Candidate], context: PlanContext
) -> Reason:
    gpus = [context.gpus[position] for position in cover]
    names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
    indices = ",".join(str(gpu.index) for gpu in gpus)
    candidate = _best_for(cover, candidates, context)
    return Reason(code, f"--gpus {indices} ({names}) would give torch {candidate.build.name}")


def _best_for(cover: GpuPositions, candidates: list[Candidate], context: PlanContext) -> Candidate:
    return preferred(
        [candidate for candidate in candidates if set(cover) <= set(candidate.covers)], context
    )


def _of_the_machine(context: PlanContext) -> tuple[Reason, ...]:
    problems = [problem.reason for problem in context.machine.problems if not problem.blocking]
    foreign = [
        gpu
        for gpu in context.machine.gpus
        if vendor_of(gpu, context.machine) != context.rules.vendor
    ]
    not_used = f"is not used: it is not from {context.rules.name}"
    names = [f"GPU {gpu.index} ({gpu.label if gpu.name else 'unknown'})" for gpu in foreign]
    return (*problems, *(Reason("gpu-not-supported", f"{name} {not_used}") for name in names))


def _newest_seen(
    best: Candidate, newer: list[Rejection[Build]], context: PlanContext
) -> Reason | None:
    """Return that a newer one is not what the programs want, unknown, or in no source that answers."""
    torch = best.build.torch
    builds: dict[str, Build] = {}
    for rejection in newer:
        build, reason = rejection.candidate, rejection.reason
        builds.setdefault(reason.code, build)
        if reason.code == HELD_BACK:
            newest = f"torch {build.torch} would run here"
            return Reason(
                HELD_BACK, f"{reason.message}; without it {newest}" if reason.message else newest
            )
    if unknown := builds.get("not-in-catalogue"):
        newest = f"{torch} is the newest torch that the catalogue of {context.catalog.date} knows"
        return Reason("newest-known", f"{newest}; {unknown.name} is on the index")
    if "unreachable" in builds:
        return Reason("newest-reachable", f"{torch} is the newest torch in the reachable sources")
    return None


def _newest_requested(
    best: Candidate, newer: list[Rejection[Build]], context: PlanContext
) -> Reason:
    torch, limits = best.build.torch, _REQUESTED & {rejection.reason.code for rejection in newer}
    if limits == {"other-backend"}:
        return Reason(
            "newest-of-backend",
            f"{torch} is the newest torch that has a {best.build.backend} build",
        )
    if limits == {"not-allowed"}:
        return Reason(
            "newest-allowed", f"{torch} is the newest torch that the allowed backends have"
        )
    rules, newest = (
        context.rules,
        f"{torch} is the newest torch" + " that was requested" * bool(limits),
    )
    elsewhere = (
        not newer
        and best.build.backend.kind == rules.kind
        and any(other > torch for other in context.ages)
    )
    return Reason("newest-torch", newest + f" with a build for {rules.name} GPUs" * elsewhere)


def _asked(rejected: list[Rejection[Build]]) -> str:
    """Return the restriction of a sentence if there is a newer torch that was not requested."""
    return " asked for" if any(one.reason.code in _REQUESTED for one in rejected) else ""


def _newest_but(best: Candidate, blocking: Rejection[Build]) -> Reason:
    reason = blocking.reason
    message = (
        f"{best.build.torch} is the newest that fits; {blocking.candidate.name}: {reason.message}"
    )
    return Reason(f"newest-but-{reason.code}", message)


def _newest_with_code(
    best: Candidate, blocking: Rejection[Build], restriction: str, context: PlanContext
) -> Reason:
    """Return which chip a newer build has no code for, whatever it was rejected for."""
    build = blocking.candidate
    lacking = next((code for code in codes_of(build, context) if isinstance(code, Reason)), None)
    if lacking is None or lacking.code != "no-code":
        return _newest_but(best, Rejection(build, lacking) if lacking else blocking)
    gpus = sorted(context.architectures.values(), key=context.rules.rank)
    chips = " and ".join(context.rules.architecture(gpu) or gpu.label for gpu in gpus)
    ends = context.rules.lacks(build, gpus)
    message = f"the newest torch{restriction} with code for {chips}: {build.name} {ends}"
    return Reason("newest-with-code", message)
