"""NVIDIA's preflight: a small kernel on every GPU, its result checked; an outcome for each, a problem for each cause.

Each card has a child process of its own (:mod:`gpuinstall.machine.nvidia.libcuda_child`) that sees only that card; a
MIG slice is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.machine.children import DRIVER_SECONDS, death, last_answer, run_children
from gpuinstall.machine.nvidia.cuda_causes import (
    CudaCause,
    CudaContext,
    cuda_cause,
    cuda_evidence,
    finding_of_cause,
    known_cause,
)
from gpuinstall.machine.nvidia.libraries import (
    child_environment,
    is_visible,
    job_devices,
    libcuda_command,
)
from gpuinstall.machine.prober import OUTCOMES, GpuProof, Preflight, ProofOutcome
from gpuinstall.machine.vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.base.process import Finished
    from gpuinstall.base.reporter import Reporter

KERNEL = Path(__file__).with_name("kernel.ptx")

_BUILDS_RUN = "builds with machine code for the GPU work without it"

# Why no kernel ran, and what is no fault of the machine, by CUresult.
UNCOMPILED = {
    218: f"the driver's PTX compiler refuses PTX that every release compiles: is it of another driver? {_BUILDS_RUN}",
    221: f"libnvidia-ptxjitcompiler.so.1 is missing here; {_BUILDS_RUN}",
    222: f"the driver's PTX compiler does not know this PTX; {_BUILDS_RUN}",
    223: f"compiling PTX is switched off here; {_BUILDS_RUN}",
}

# What leaves a card unproven and is no fault of it, by CUresult: busy, or a libcuda without a function that is called.
UNPROVEN = {
    2: ("gpu-memory-full", "it has no memory free"),
    46: ("gpu-busy", "another process holds it"),
    807: ("mps-unreachable", "the MPS server is not ready"),
    808: ("mps-unreachable", "the MPS server serves no further process"),
    809: ("mps-unreachable", "the MPS server has no connection left"),
    500: ("libcuda-incomplete", "its libcuda lacks a function that the preflight calls"),
}


@dataclass(frozen=True)
class PreflightFinding:
    """How one child ended."""

    index: int
    outcome: ProofOutcome
    cause: CudaCause | None = None
    facts: str | None = None
    at_start: bool = False
    """Whether nothing about its own card had been asked yet."""


def run_preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Run a kernel on every usable GPU at once.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    planned = list(trials(machine, os.environ))
    command = libcuda_command("preflight", str(KERNEL))
    environments = [child_environment(os.environ, visible) for _, visible in planned]
    children = [(command, environment) for environment in environments]
    waiting = f"the driver initialises its GPUs, up to {DRIVER_SECONDS:.0f} s"
    ended = run_children(children, DRIVER_SECONDS, lambda: reporter.wait(waiting))
    findings = []
    for (gpu, _), finished in zip(planned, ended, strict=True):
        findings.append(judge_trial(gpu, machine, finished))
    return Preflight(proofs_of(findings), problems_of(findings, FixContext.of_machine(machine)))


def trials(machine: Machine, environ: Mapping[str, str]) -> Iterator[tuple[Gpu, str]]:
    """Yield what is tried: every MIG slice or card that this process was given and that the probe found usable.

    Each is a card and what its child finds in CUDA_VISIBLE_DEVICES.
    """
    if machine.blocking:
        return
    given = job_devices(environ)
    ours = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) in {"nvidia", None}]
    for ordinal, gpu in enumerate(ours):
        if gpu.index in machine.faulty:
            continue
        slices = [part.uuid for part in gpu.mig_devices]
        for name in slices or [gpu.uuid or str(ordinal)]:
            if given is None or is_visible(given, ordinal, gpu, name):
                yield gpu, name


def judge_trial(gpu: Gpu, machine: Machine, finished: Finished) -> PreflightFinding:
    """Return what one child's answer shows, or its death."""
    answer = last_answer(finished)
    if answer is None:
        return PreflightFinding(
            gpu.index,
            outcome="failed",
            cause=known_cause("driver-hangs" if finished.status is None else "driver-crashes"),
            facts=f"libcuda {death(finished)}",
            at_start=True,
        )
    if answer.get("path") is None:
        return PreflightFinding(
            gpu.index,
            outcome="failed",
            cause=known_cause("libcuda-missing"),
            facts=str(answer.get("error")),
            at_start=True,
        )
    context = CudaContext.of(machine, answer["path"])
    return _judge_answer(
        gpu.index,
        answer,
        replace(context, unsliced=gpu.mig and not gpu.mig_devices),
    )


def _judge_answer(index: int, answer: Mapping[str, Any], context: CudaContext) -> PreflightFinding:
    wrong = answer.get("wrong")
    if wrong == 0:
        return PreflightFinding(index, "proven")
    if wrong:
        return PreflightFinding(
            index,
            outcome="failed",
            cause=known_cause("gpu-computes-wrong"),
            facts=f"{wrong} of its words are wrong",
        )
    return _judge_refusal(index, answer, context)


def _judge_refusal(index: int, answer: Mapping[str, Any], context: CudaContext) -> PreflightFinding:
    """Return what a refused call shows, with what setting memory showed ``instead``."""
    status = answer["status"]
    facts = cuda_evidence(status, context)
    instead = answer.get("instead")
    if instead == {"wrong": 0}:
        return PreflightFinding(index, "memory-only", _cause_without_kernel(status), facts)
    if instead is not None and (status in UNCOMPILED or "wrong" in instead):
        return _judge_answer(index, instead, context)
    at_start = answer["call"] == "cuInit"
    if status in UNPROVEN and not at_start:
        code, reason = UNPROVEN[status]
        cause = replace(known_cause(code), message=f"{{where}} could not be tested: {reason}")
        return PreflightFinding(index, "unproven", cause, facts)
    return PreflightFinding(index, "failed", cuda_cause(status, context), facts, at_start)


def _cause_without_kernel(status: int) -> CudaCause:
    without_kernel = known_cause("kernel-not-proven")
    if status in UNCOMPILED:
        return replace(without_kernel, why=UNCOMPILED[status])
    return CudaCause(
        code="gpu-memory-full",
        message=without_kernel.message,
        why="too little of its memory is free; other processes hold it",
    )


def proofs_of(findings: Sequence[PreflightFinding]) -> tuple[GpuProof, ...]:
    """Return the worst of what its slices showed, for each GPU."""
    outcomes: dict[int, list[ProofOutcome]] = defaultdict(list)
    for finding in findings:
        outcomes[finding.index].append(finding.outcome)
    proofs = []
    for index, shown in outcomes.items():
        worst = max(shown, key=OUTCOMES.index)
        proofs.append(GpuProof(index, worst))
    return tuple(proofs)


def problems_of(
    findings: Sequence[PreflightFinding], fix_context: FixContext
) -> tuple[Finding, ...]:
    """Return one problem for each cause: of the GPUs that show it, or of the machine if no child got any further."""
    groups: dict[CudaCause, list[PreflightFinding]] = defaultdict(list)
    for finding in findings:
        if finding.cause is not None:
            groups[finding.cause].append(finding)
    problems = []
    for cause, alike in groups.items():
        gpus = tuple(dict.fromkeys(finding.index for finding in alike))
        if len(alike) == len(findings) and all(finding.at_start for finding in alike):
            gpus = ()
        is_hidden = gpus and cause.code == "cuda-no-device"
        problem = finding_of_cause(
            replace(cause, code="gpu-hidden-from-cuda") if is_hidden else cause,
            gpus=gpus,
            evidence=alike[0].facts,
            fix_context=fix_context,
            blocking=alike[0].outcome == "failed",
        )
        problems.append(problem)
    return tuple(problems)
