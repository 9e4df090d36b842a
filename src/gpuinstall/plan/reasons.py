"""Why this build: two or three sentences, and one for every build that was passed over."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.plan.candidates import closest, codes_of, missing_code, preference, preferred
from gpuinstall.plan.code import Code
from gpuinstall.plan.cover import best_cover
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import Reason, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.plan.candidates import Candidate
    from gpuinstall.plan.case import PlanContext

_ELSEWHERE = Reason("no-code", "it runs on other GPUs of this machine")
_NO_GPU_HERE = Reason("no-gpu-here", "this machine was given no NVIDIA GPU: unproven until verify runs where they are")
_NOT_BLOCKING = {*NOT_THERE, "other-torch", "other-backend", "not-allowed"}


def reasons_for(
    best: Candidate, candidates: list[Candidate], rejected: tuple[Rejection, ...], case: PlanContext
) -> tuple[Reason, ...]:
    """Say why the best is the best, what a newer driver would give, and what fewer or other GPUs would give."""
    served = replace(case, gpus=tuple(case.gpus[place] for place in best.covers))
    found = (
        None if case.gpus else _NO_GPU_HERE,
        newest_reason(best, rejected, served),
        _newer_driver(best, rejected, served),
        _backend(best, candidates, rejected, case),
        _other_gpus(best, candidates, case),
    )
    return tuple(reason for reason in found if reason is not None)


def newest_reason(best: Candidate, rejected: Iterable[Rejection], case: PlanContext) -> Reason:
    """Say that it is the newest torch, or what keeps a newer one away."""
    torch = best.build.torch
    newer = [found for found in rejected if found.build.torch > torch]
    unknown = next((found.build.name for found in newer if found.build.unknown), None)
    if unknown:
        known = f"{torch} is the newest torch that the catalogue of {case.catalog.date} knows"
        return Reason("newest-known", f"{known}; {unknown} is on the index")
    if any(found.code == "unreachable" for found in newer):
        return Reason("newest-reachable", f"{torch} is the newest torch in the sources that can be reached")
    blocking = closest(found for found in newer if found.code not in _NOT_BLOCKING)
    if blocking is None:
        return _newest_asked_for(best, newer)
    if blocking.code == "driver-too-old":
        return Reason("newest-for-driver", f"{torch} is the newest torch that {case.driver} runs")
    if blocking.code == "no-code":
        return _newest_with_code(blocking, case)
    message = f"{torch} is the newest that fits; {blocking.build.name}: {blocking.message}"
    return Reason(f"newest-but-{blocking.code}", message)


def passed_over(
    best: Candidate, candidates: list[Candidate], rejected: list[Rejection], case: PlanContext
) -> tuple[Rejection, ...]:
    """Give every build but the best its reason, in the order of the catalogue."""
    others = [_lesser(candidate, best, case) for candidate in candidates if candidate is not best]
    return tuple(sorted((*rejected, *others), key=lambda found: case.places[id(found.build)]))


def older(candidate: Candidate, best: Candidate) -> Rejection:
    """Reject a build that fits because a newer torch does too."""
    return Rejection(candidate.build, "older-torch", f"{best.build.name} fits too and is newer")


def _lesser(candidate: Candidate, best: Candidate, case: PlanContext) -> Rejection:
    if candidate.covers != best.covers:
        return Rejection(candidate.build, *(missing_code(candidate, case.gpus) or _ELSEWHERE))
    if candidate.build.torch < best.build.torch:
        return older(candidate, best)
    return Rejection(
        candidate.build, "less-preferred", f"{best.build.name} is preferred: {_merit(candidate, best, case)}"
    )


def _merit(candidate: Candidate, best: Candidate, case: PlanContext) -> str:
    _, ptx, compiler, above, _ = preference(candidate, case)
    _, best_ptx, best_compiler, best_above, _ = preference(best, case)
    if ptx and not best_ptx:
        return "it needs no PTX compiled at first use"
    if compiler and not best_compiler:
        return "its run-time compilers know the GPU"
    if above and not best_above:
        return f"its toolkit is not above the driver's CUDA {case.driver_cuda}"
    return f"its toolkit is {'closer to the driver' if above else 'newer'}"


def _newest_asked_for(best: Candidate, newer: list[Rejection]) -> Reason:
    torch = best.build.torch
    if any(found.code == "other-backend" for found in newer):
        return Reason("newest-of-backend", f"{torch} is the newest torch that has a {best.build.backend} build")
    asked = " that was asked for" if any(found.code == "other-torch" for found in newer) else ""
    return Reason("newest-torch", f"{torch} is the newest torch{asked}")


def _newest_with_code(blocking: Rejection, case: PlanContext) -> Reason:
    chips = " and ".join(chip.sm for chip in sorted(case.chips))
    name = blocking.build.name
    lowest = min(blocking.build.sass, default=None)
    begins = lowest is not None and any(chip < lowest.capability for chip in case.chips)
    ends = f"begins at {lowest}" if begins else "has none"
    return Reason("newest-with-code", f"the newest torch with code for {chips}: {name} {ends}")


def _newer_driver(best: Candidate, rejected: tuple[Rejection, ...], case: PlanContext) -> Reason | None:
    for found in rejected:
        build = found.build
        if found.code != "driver-too-old" or build.torch <= best.build.torch or build.toolkit is None:
            continue
        if all(isinstance(code, Code) for code in codes_of(build, case)):
            floor = case.floors[build.toolkit.major]
            return Reason("newer-driver", f"torch {build.torch} would need driver {floor} or newer")
    return None


def _backend(
    best: Candidate, candidates: list[Candidate], rejected: tuple[Rejection, ...], case: PlanContext
) -> Reason | None:
    torch = best.build.torch
    for found in rejected:
        if found.build.torch == torch and found.code in {"no-companion", "not-allowed"}:
            return Reason("backend", f"not {found.build.name}: {found.message}")
    rivals = [
        other
        for other in candidates
        if other.build.torch == torch and other.covers == best.covers and other is not best
    ]
    if not rivals:
        return None
    rival = preferred(rivals, case)
    return Reason("backend", f"{best.build.backend} and not {rival.build.backend}: {_merit(rival, best, case)}")


def _other_gpus(best: Candidate, candidates: list[Candidate], case: PlanContext) -> Reason | None:
    everywhere = range(len(case.gpus))
    others = set(everywhere) - set(best.covers)
    if others:
        covers = {candidate.covers for candidate in candidates if others & set(candidate.covers)}
        return _would_give("other-choice", best_cover(covers, case.gpus), candidates, case) if covers else None
    gains = [
        (found, cover)
        for chip in case.chips
        if (cover := tuple(place for place in everywhere if case.gpus[place].compute_capability != chip))
        and (found := _best_for(cover, candidates, case)).build.torch > best.build.torch
    ]
    if not gains:
        return None
    _, cover = min(gains, key=lambda gain: (preference(gain[0], case), -len(gain[1])))
    return _would_give("fewer-gpus", cover, candidates, case)


def _would_give(code: str, cover: tuple[int, ...], candidates: list[Candidate], case: PlanContext) -> Reason:
    gpus = [case.gpus[place] for place in cover]
    names = " and ".join(dict.fromkeys(gpu.label for gpu in gpus))
    indices = ",".join(str(gpu.index) for gpu in gpus)
    found = _best_for(cover, candidates, case)
    return Reason(code, f"--gpus {indices} ({names}) would give torch {found.build.name}")


def _best_for(cover: tuple[int, ...], candidates: list[Candidate], case: PlanContext) -> Candidate:
    return preferred([candidate for candidate in candidates if set(cover) <= set(candidate.covers)], case)
