"""NVIDIA's preflight: a small kernel on every GPU, its result checked.

Each card has a child process of its own (:mod:`gpuinstall.vendors.nvidia.libcuda_child`) that sees only that card; a
MIG slice is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.facts.children import run_children, time_limit
from gpuinstall.failures.problems import FixContext
from gpuinstall.vendors import vendor_of
from gpuinstall.vendors.nvidia.libcuda import child_command, child_environment, is_visible, job_devices
from gpuinstall.vendors.nvidia.preflight_findings import judge, problems_of
from gpuinstall.vendors.prober import OUTCOMES, GpuProof, Preflight, ProofOutcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.machine import Gpu, Machine
    from gpuinstall.reporter import Reporter
    from gpuinstall.vendors.nvidia.preflight_findings import PreflightFinding

KERNEL = Path(__file__).with_name("kernel.ptx")


@dataclass(frozen=True)
class Trial:
    """One child: the card that it is about, and what it finds in CUDA_VISIBLE_DEVICES."""

    gpu: Gpu
    visible: str


def preflight(machine: Machine, reporter: Reporter, *, seconds: float | None = None) -> Preflight:
    """Run a kernel on every usable GPU at once, for at most 5 s and 5 s more for each.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    planned = trials(machine, os.environ)
    limit = time_limit(len(planned)) if seconds is None else seconds
    command = child_command("preflight", str(KERNEL))
    children = [(command, child_environment(os.environ, trial.visible)) for trial in planned]
    ended = run_children(children, limit, lambda: reporter.wait(f"the driver starts its GPUs, for up to {limit:.0f} s"))
    findings = [judge(trial.gpu, machine, finished) for trial, finished in zip(planned, ended, strict=True)]
    return Preflight(proofs_of(findings), problems_of(findings, FixContext.of_machine(machine)))


def trials(machine: Machine, environ: Mapping[str, str]) -> tuple[Trial, ...]:
    """Choose what is tried: every MIG slice or card that this process was given and that the probe found usable."""
    if machine.blocking:
        return ()
    unusable = {index for each in machine.problems if each.blocking for index in each.gpus}
    ours = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) in {"nvidia", None}]
    given = job_devices(environ)
    return tuple(
        Trial(gpu, name)
        for ordinal, gpu in enumerate(ours)
        if gpu.index not in unusable
        for name in _names(gpu, ordinal)
        if given is None or is_visible(given, ordinal, gpu, name)
    )


def proofs_of(findings: Sequence[PreflightFinding]) -> tuple[GpuProof, ...]:
    """Give each GPU the worst of what its slices showed."""
    worst: dict[int, ProofOutcome] = {}
    for each in findings:
        worst[each.index] = max(worst.get(each.index, "proven"), each.outcome, key=OUTCOMES.index)
    return tuple(GpuProof(index, outcome) for index, outcome in worst.items())


def _names(gpu: Gpu, ordinal: int) -> tuple[str, ...]:
    """What CUDA_VISIBLE_DEVICES must hold for each part of a GPU that a kernel can run on."""
    return tuple(part.uuid for part in gpu.mig_devices) or (gpu.uuid or str(ordinal),)
