"""What the preflight's children found: an outcome for each card, a problem for each cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpuinstall.probe.child import death
from gpuinstall.probe.cuda_errors import CAUSES
from gpuinstall.probe.cuda_problems import Scene, cause_of, problem, seen
from gpuinstall.probe.libcuda import last_answer
from gpuinstall.probe.preflight_causes import (
    COMPUTES_WRONG,
    CRASHES,
    HANGS,
    MEMORY_FULL,
    NO_LIBRARY,
    UNCOMPILED,
    UNPROVEN,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine, Problem
    from gpuinstall.probe.cuda_errors import Cause
    from gpuinstall.process import Finished

Outcome = Literal["proven", "memory-only", "unproven", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

NO_DEVICE = 100


@dataclass(frozen=True)
class Finding:
    """How one child ended; ``at_start`` where nothing about its own card had been asked yet."""

    index: int
    outcome: Outcome
    cause: Cause | None = None
    facts: str | None = None
    at_start: bool = False


def finding(gpu: Gpu, machine: Machine, finished: Finished) -> Finding:
    """Judge one child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        cause = HANGS if finished.status is None else CRASHES
        return Finding(gpu.index, "failed", cause, f"libcuda {death(finished)}", at_start=True)
    if answer.get("path") is None:
        return Finding(gpu.index, "failed", NO_LIBRARY, str(answer.get("error")), at_start=True)
    unsliced = gpu.mig and not gpu.mig_devices
    return _answered(gpu.index, answer, replace(Scene.of(machine, answer["path"]), unsliced=unsliced))


def problems_of(findings: Sequence[Finding]) -> tuple[Problem, ...]:
    """Make one problem of each cause: of the GPUs that show it, or of the machine where no child got any further."""
    return tuple(_problem(cause, alike, len(findings)) for cause, alike in _by_cause(findings).items())


def _answered(index: int, answer: Mapping[str, Any], scene: Scene) -> Finding:
    if "wrong" in answer:
        return _computed(index, answer["wrong"])
    status, instead = answer["status"], answer.get("instead")
    if instead == {"wrong": 0}:
        return Finding(index, "memory-only", UNCOMPILED.get(status, MEMORY_FULL), seen(status, scene))
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _answered(index, instead, scene)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        return Finding(index, "unproven", UNPROVEN[status], seen(status, scene))
    return Finding(index, "failed", cause_of(status, scene), seen(status, scene), at_start)


def _computed(index: int, wrong: int) -> Finding:
    if not wrong:
        return Finding(index, "proven")
    return Finding(index, "failed", COMPUTES_WRONG, f"{wrong} of its words are wrong")


def _by_cause(findings: Iterable[Finding]) -> dict[Cause, list[Finding]]:
    groups: dict[Cause, list[Finding]] = {}
    for each in findings:
        if each.cause is not None:
            groups.setdefault(each.cause, []).append(each)
    return groups


def _problem(cause: Cause, alike: Sequence[Finding], tried: int) -> Problem:
    everywhere = len(alike) == tried and all(each.at_start for each in alike)
    gpus = () if everywhere else tuple(dict.fromkeys(each.index for each in alike))
    if gpus and cause.code == CAUSES[NO_DEVICE].code:
        cause = replace(cause, code="gpu-hidden-from-cuda")
    return problem(cause, gpus, alike[0].facts, blocking=alike[0].outcome == "failed")
