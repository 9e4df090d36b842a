"""What the preflight's children found: an outcome for each card, a problem for each cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from gpuinstall.probe.child import death
from gpuinstall.probe.cuda_problems import Cause, Scene, cause_of, known_cause, problem, seen
from gpuinstall.probe.libcuda import last_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.failures.problems import FixContext
    from gpuinstall.machine import Gpu, Machine, Problem
    from gpuinstall.process import Finished

Outcome = Literal["proven", "memory-only", "unproven", "failed"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

_BUILDS_RUN = "builds with machine code for the GPU do not need it"

# Why no kernel ran, and what is no fault of the machine, by CUresult.
UNCOMPILED = {
    221: f"libnvidia-ptxjitcompiler.so.1 is missing here; {_BUILDS_RUN}",
    222: f"the driver's PTX compiler does not know this PTX; {_BUILDS_RUN}",
    223: f"compiling PTX is switched off here; {_BUILDS_RUN}",
}

# What leaves a card unproven and is no fault of it, by CUresult: busy, or a libcuda without a function that is called.
UNPROVEN = {
    2: ("gpu-memory-full", "nothing was proven on {where}: it has no memory free"),
    46: ("gpu-busy", "nothing was proven on {where}: another process holds it"),
    500: ("libcuda-incomplete", "nothing was proven on {where}: its libcuda lacks a function that the preflight calls"),
}


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
        cause = known_cause("driver-hangs" if finished.status is None else "driver-crashes")
        return Finding(gpu.index, "failed", cause, f"libcuda {death(finished)}", at_start=True)
    if answer.get("path") is None:
        return Finding(gpu.index, "failed", known_cause("libcuda-missing"), str(answer.get("error")), at_start=True)
    unsliced = gpu.mig and not gpu.mig_devices
    return _answered(gpu.index, answer, replace(Scene.of(machine, answer["path"]), unsliced=unsliced))


def problems_of(findings: Sequence[Finding], context: FixContext) -> tuple[Problem, ...]:
    """Make one problem of each cause: of the GPUs that show it, or of the machine where no child got any further."""
    return tuple(_problem(cause, alike, len(findings), context) for cause, alike in _by_cause(findings).items())


def _answered(index: int, answer: Mapping[str, Any], scene: Scene) -> Finding:
    if "wrong" in answer:
        return _computed(index, answer["wrong"])
    status, instead = answer["status"], answer.get("instead")
    if instead == {"wrong": 0}:
        return Finding(index, "memory-only", _no_kernel(status), seen(status, scene))
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _answered(index, instead, scene)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        return Finding(index, "unproven", _unproven(status), seen(status, scene))
    return Finding(index, "failed", cause_of(status, scene), seen(status, scene), at_start)


def _computed(index: int, wrong: int) -> Finding:
    if not wrong:
        return Finding(index, "proven")
    return Finding(index, "failed", known_cause("gpu-computes-wrong"), f"{wrong} of its words are wrong")


def _no_kernel(status: int) -> Cause:
    no_kernel = known_cause("kernel-not-proven")
    if status in UNCOMPILED:
        return replace(no_kernel, why=UNCOMPILED[status])
    why = "too little of its memory is free; other processes hold it"
    return Cause("gpu-memory-full", no_kernel.message, why)


def _unproven(status: int) -> Cause:
    code, message = UNPROVEN[status]
    return replace(known_cause(code), message=message)


def _by_cause(findings: Iterable[Finding]) -> dict[Cause, list[Finding]]:
    groups: dict[Cause, list[Finding]] = {}
    for each in findings:
        if each.cause is not None:
            groups.setdefault(each.cause, []).append(each)
    return groups


def _problem(cause: Cause, alike: Sequence[Finding], tried: int, context: FixContext) -> Problem:
    everywhere = len(alike) == tried and all(each.at_start for each in alike)
    gpus = () if everywhere else tuple(dict.fromkeys(each.index for each in alike))
    if gpus and cause.code == "cuda-no-device":
        cause = replace(cause, code="gpu-hidden-from-cuda")
    return problem(cause, gpus, alike[0].facts, context, blocking=alike[0].outcome == "failed")
