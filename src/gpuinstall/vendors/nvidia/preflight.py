"""NVIDIA's preflight: a small kernel on every GPU, its result checked; an outcome for each, a problem for each cause.

Each card has a child process of its own (:mod:`gpuinstall.vendors.nvidia.libcuda_child`) that sees only that card; a
MIG slice is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.facts.children import death, last_answer, run_children, time_limit
from gpuinstall.failures.problems import FixContext
from gpuinstall.vendors import vendor_of
from gpuinstall.vendors.nvidia.cuda_refusals import (
    CudaCause,
    CudaContext,
    cuda_cause,
    cuda_evidence,
    known_cause,
    problem_of_cause,
)
from gpuinstall.vendors.nvidia.libcuda import child_environment, is_visible, job_devices, libcuda_command
from gpuinstall.vendors.prober import OUTCOMES, GpuProof, Preflight, ProofOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.finding import Finding
    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.process import Finished
    from gpuinstall.reporter import Reporter

KERNEL = Path(__file__).with_name("kernel.ptx")

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
class Trial:
    """One child: the card that it is about, and what it finds in CUDA_VISIBLE_DEVICES."""

    gpu: Gpu
    visible: str


def run_preflight(machine: Machine, reporter: Reporter, *, seconds: float | None = None) -> Preflight:
    """Run a kernel on every usable GPU at once, for at most 5 s and 5 s more for each.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    planned = trials(machine, os.environ)
    limit = time_limit(len(planned)) if seconds is None else seconds
    command = libcuda_command("preflight", str(KERNEL))
    children = [(command, child_environment(os.environ, trial.visible)) for trial in planned]
    ended = run_children(children, limit, lambda: reporter.wait(f"the driver starts its GPUs, for up to {limit:.0f} s"))
    findings = [judge_trial(trial.gpu, machine, finished) for trial, finished in zip(planned, ended, strict=True)]
    return Preflight(proofs_of(findings), problems_of(findings, FixContext.of_machine(machine)))


def trials(machine: Machine, environ: Mapping[str, str]) -> tuple[Trial, ...]:
    """Choose what is tried: every MIG slice or card that this process was given and that the probe found usable."""
    if machine.blocking:
        return ()
    ours = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) in {"nvidia", None}]
    given = job_devices(environ)
    return tuple(
        Trial(gpu, name)
        for ordinal, gpu in enumerate(ours)
        if gpu.index not in machine.faulty
        for name in _names(gpu, ordinal)
        if given is None or is_visible(given, ordinal, gpu, name)
    )


def proofs_of(findings: Sequence[PreflightFinding]) -> tuple[GpuProof, ...]:
    """Give each GPU the worst of what its slices showed."""
    worst: dict[int, ProofOutcome] = {}
    for finding in findings:
        worst[finding.index] = max(worst.get(finding.index, "proven"), finding.outcome, key=OUTCOMES.index)
    return tuple(GpuProof(index, outcome) for index, outcome in worst.items())


@dataclass(frozen=True)
class PreflightFinding:
    """How one child ended; ``at_start`` where nothing about its own card had been asked yet."""

    index: int
    outcome: ProofOutcome
    cause: CudaCause | None = None
    facts: str | None = None
    at_start: bool = False


def judge_trial(gpu: Gpu, machine: Machine, finished: Finished) -> PreflightFinding:
    """Judge one child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        cause = known_cause("driver-hangs" if finished.status is None else "driver-crashes")
        return PreflightFinding(gpu.index, "failed", cause, f"libcuda {death(finished)}", at_start=True)
    if answer.get("path") is None:
        cause = known_cause("libcuda-missing")
        return PreflightFinding(gpu.index, "failed", cause, str(answer.get("error")), at_start=True)
    unsliced = gpu.mig and not gpu.mig_devices
    return _answered(gpu.index, answer, replace(CudaContext.of(machine, answer["path"]), unsliced=unsliced))


def problems_of(findings: Sequence[PreflightFinding], fix_context: FixContext) -> tuple[Finding, ...]:
    """Make one problem of each cause: of the GPUs that show it, or of the machine where no child got any further."""
    groups: dict[CudaCause, list[PreflightFinding]] = {}
    for finding in findings:
        if finding.cause is not None:
            groups.setdefault(finding.cause, []).append(finding)
    return tuple(_problem(cause, alike, len(findings), fix_context) for cause, alike in groups.items())


def _names(gpu: Gpu, ordinal: int) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES must hold for each part of a GPU that a kernel can run on."""
    return tuple(part.uuid for part in gpu.mig_devices) or (gpu.uuid or str(ordinal),)


def _answered(index: int, answer: Mapping[str, Any], context: CudaContext) -> PreflightFinding:
    if wrong := answer.get("wrong"):
        return PreflightFinding(index, "failed", known_cause("gpu-computes-wrong"), f"{wrong} of its words are wrong")
    if wrong == 0:
        return PreflightFinding(index, "proven")
    status, instead = answer["status"], answer.get("instead")
    if instead == {"wrong": 0}:
        return PreflightFinding(index, "memory-only", _no_kernel(status), cuda_evidence(status, context))
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _answered(index, instead, context)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        code, message = UNPROVEN[status]
        cause = replace(known_cause(code), message=message)
        return PreflightFinding(index, "unproven", cause, cuda_evidence(status, context))
    return PreflightFinding(index, "failed", cuda_cause(status, context), cuda_evidence(status, context), at_start)


def _no_kernel(status: int) -> CudaCause:
    no_kernel = known_cause("kernel-not-proven")
    if status in UNCOMPILED:
        return replace(no_kernel, why=UNCOMPILED[status])
    return CudaCause("gpu-memory-full", no_kernel.message, "too little of its memory is free; other processes hold it")


def _problem(cause: CudaCause, alike: Sequence[PreflightFinding], tried: int, fix_context: FixContext) -> Finding:
    everywhere = len(alike) == tried and all(finding.at_start for finding in alike)
    gpus = () if everywhere else tuple(dict.fromkeys(finding.index for finding in alike))
    if gpus and cause.code == "cuda-no-device":
        cause = replace(cause, code="gpu-hidden-from-cuda")
    return problem_of_cause(cause, gpus, alike[0].facts, fix_context, blocking=alike[0].outcome == "failed")
