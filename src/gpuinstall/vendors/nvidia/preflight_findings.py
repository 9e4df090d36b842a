"""What the preflight's children found: an outcome for each card, a problem for each cause. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import death
from gpuinstall.vendors.nvidia.cuda_errors import CAUSES, LOOK_FOR_XID, Cause
from gpuinstall.vendors.nvidia.cuda_refusals import CudaContext, cause_of, evidence_line, problem
from gpuinstall.vendors.nvidia.libcuda import last_answer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine, Problem
    from gpuinstall.process import Finished
    from gpuinstall.vendors.prober import ProofOutcome

NO_DEVICE = 100

NO_LIBRARY = Cause(
    code="libcuda-missing",
    message="libcuda, the driver's CUDA library, cannot be loaded",
    why="the driver was installed without its compute part, or a container was given only its utilities",
    fix="ldconfig -p | grep libcuda\nin a container: set NVIDIA_DRIVER_CAPABILITIES=compute,utility and start it anew",
    id="F01",
)

HANGS = Cause(
    code="driver-hangs",
    message="the driver does not answer for {where}",
    why="a card that is lost, or a fabric that does not come up, keeps its driver waiting",
    fix=LOOK_FOR_XID,
    id="F08",
    needs=("root", "reboot"),
)

CRASHES = replace(
    HANGS,
    code="driver-crashes",
    message="the driver's CUDA library crashes on {where}",
    why="its files are damaged or of several releases, or the card answers nonsense",
    id=None,
)

COMPUTES_WRONG = replace(
    HANGS,
    code="gpu-computes-wrong",
    message="a small kernel computes wrong numbers on {where}",
    why="the card's memory or its cores are faulty, or it is clocked too high",
)

_NO_KERNEL = Cause(
    code="kernel-not-proven",
    message="no kernel ran on {where}; memory was set and read back instead",
    why="libnvidia-ptxjitcompiler.so.1 is missing here; builds with machine code for the GPU do not need it",
    id="F67",
)

# No fault of the machine, by CUresult.
UNCOMPILED = {
    221: _NO_KERNEL,
    222: replace(
        _NO_KERNEL,
        why="the driver's PTX compiler does not know this PTX; builds with machine code for the GPU do not need it",
    ),
    223: replace(
        _NO_KERNEL,
        why="compiling PTX is switched off here; builds with machine code for the GPU do not need it",
    ),
}

MEMORY_FULL = replace(
    CAUSES[2], message=_NO_KERNEL.message, why="too little of its memory is free; other processes hold it"
)

# What leaves a card unproven and is no fault of it, by CUresult: busy, or a libcuda without a function that is called.
UNPROVEN = {
    2: replace(CAUSES[2], message="nothing was proven on {where}: it has no memory free"),
    46: replace(CAUSES[46], message="nothing was proven on {where}: another process holds it"),
    500: replace(
        _NO_KERNEL,
        message="nothing was proven on {where}: its libcuda lacks a function that the preflight calls",
        why="this libcuda is not a whole one; the kernels after the installation decide",
        id=None,
    ),
}


@dataclass(frozen=True)
class PreflightFinding:
    """How one child ended; ``at_start`` where nothing about its own card had been asked yet."""

    index: int
    outcome: ProofOutcome
    cause: Cause | None = None
    facts: str | None = None
    at_start: bool = False


def judge(gpu: Gpu, machine: Machine, finished: Finished) -> PreflightFinding:
    """Judge one child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        cause = HANGS if finished.status is None else CRASHES
        return PreflightFinding(gpu.index, "failed", cause, f"libcuda {death(finished)}", at_start=True)
    if answer.get("path") is None:
        return PreflightFinding(gpu.index, "failed", NO_LIBRARY, str(answer.get("error")), at_start=True)
    unsliced = gpu.mig and not gpu.mig_devices
    return _answered(gpu.index, answer, replace(CudaContext.of(machine, answer["path"]), unsliced=unsliced))


def problems_of(findings: Sequence[PreflightFinding]) -> tuple[Problem, ...]:
    """Make one problem of each cause: of the GPUs that show it, or of the machine where no child got any further."""
    return tuple(_problem(cause, alike, len(findings)) for cause, alike in _by_cause(findings).items())


def _answered(index: int, answer: Mapping[str, Any], context: CudaContext) -> PreflightFinding:
    if "wrong" in answer:
        return _computed(index, answer["wrong"])
    status, instead = answer["status"], answer.get("instead")
    if instead == {"wrong": 0}:
        cause = UNCOMPILED.get(status, MEMORY_FULL)
        return PreflightFinding(index, "memory-only", cause, evidence_line(status, context))
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _answered(index, instead, context)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        return PreflightFinding(index, "unproven", UNPROVEN[status], evidence_line(status, context))
    return PreflightFinding(index, "failed", cause_of(status, context), evidence_line(status, context), at_start)


def _computed(index: int, wrong: int) -> PreflightFinding:
    if not wrong:
        return PreflightFinding(index, "proven")
    return PreflightFinding(index, "failed", COMPUTES_WRONG, f"{wrong} of its words are wrong")


def _by_cause(findings: Iterable[PreflightFinding]) -> dict[Cause, list[PreflightFinding]]:
    groups: dict[Cause, list[PreflightFinding]] = {}
    for each in findings:
        if each.cause is not None:
            groups.setdefault(each.cause, []).append(each)
    return groups


def _problem(cause: Cause, alike: Sequence[PreflightFinding], tried: int) -> Problem:
    everywhere = len(alike) == tried and all(each.at_start for each in alike)
    gpus = () if everywhere else tuple(dict.fromkeys(each.index for each in alike))
    if gpus and cause.code == CAUSES[NO_DEVICE].code:
        cause = replace(cause, code="gpu-hidden-from-cuda")
    return problem(cause, gpus, alike[0].facts, blocking=alike[0].outcome == "failed")
