"""NVIDIA's preflight: a small kernel on every GPU, its result checked; an outcome for each, a problem for each cause.

Each card has a child process of its own (:mod:`gpuinstall.machine.nvidia.libcuda_child`) that sees only that card; a
MIG slice is a card here. Neither a toolkit nor torch is needed: the driver compiles the PTX.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.base.values import Value, field, replace
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.machine.children import (
    DRIVER_SECONDS,
    fault_of,
    how_it_ended,
    json_lines,
    run_children,
)
from gpuinstall.machine.nvidia.diagnosis import explain_refusal
from gpuinstall.machine.nvidia.libraries import (
    child_command,
    child_environment,
    job_devices,
)
from gpuinstall.machine.prober import (
    OUTCOMES,
    Preflight,
    ProofOutcome,
    is_visible,
)
from gpuinstall.machine.symptoms import KnownFacts, Symptom, finding_of, symptoms
from gpuinstall.machine.vendors import vendor_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Gpu, Machine
    from gpuinstall.base.process import Finished
    from gpuinstall.base.reporter import Reporter

_FAULTS = {"timeout": "driver-hangs", "crash": "driver-crashes"}
"""The codes of what the end of a child shows that gave no answer."""
KERNEL = Path(__file__).with_name("kernel.ptx")


class GpuTrial(Value):
    """How one child ended."""

    gpu: int
    """Its index."""
    outcome: ProofOutcome
    symptom: Symptom | None = None
    """What is wrong."""
    circumstances: KnownFacts = field(default_factory=dict)
    evidence: str = ""
    at_start: bool = False
    """Whether nothing about its own card had been asked yet."""


def run_preflight(machine: Machine, reporter: Reporter) -> Preflight:
    """Run a kernel on every usable GPU at once.

    A machine with a blocking problem is not tried, nor are its GPUs with one, nor cards outside a scheduler's job.
    """
    planned = list(trials(machine, os.environ))
    command = child_command("libcuda_child", "preflight", str(KERNEL))
    children = [
        (command, child_environment(os.environ, visible)) for _, visible in planned
    ]
    waiting = f"the driver initialises its GPUs, up to {DRIVER_SECONDS:.0f} s"
    ended = run_children(children, DRIVER_SECONDS, lambda: reporter.wait(waiting))
    tried = [
        judge_trial(gpu, machine, finished)
        for (gpu, _), finished in zip(planned, ended, strict=True)
    ]
    return Preflight(
        outcomes_of(tried), problems_of(tried, FixContext.of_machine(machine))
    )


def trials(
    machine: Machine,
    environ: Mapping[str, str],
) -> Iterator[tuple[Gpu, str]]:
    """Yield what is tried: every MIG slice or card that this process was given and that the probe found usable.

    Each is a card and what its child finds in CUDA_VISIBLE_DEVICES.
    """
    if machine.blocking:
        return
    given = job_devices(environ)
    # One of no known maker counts as NVIDIA's: a Jetson's GPU has no PCI id.
    ours = [gpu for gpu in machine.gpus if vendor_of(gpu, machine) in {"nvidia", None}]
    # CUDA counts the cards that it was given from 0, whatever NVML calls them.
    for ordinal, gpu in enumerate(ours):
        if gpu.index in machine.faulty:
            continue
        slices = [part.uuid for part in gpu.mig_devices]
        for name in slices or [gpu.uuid or str(ordinal)]:
            if given is None or is_visible(given, ordinal, gpu, name):
                yield gpu, name


def judge_trial(
    gpu: Gpu,
    machine: Machine,
    finished: Finished,
) -> GpuTrial:
    """Return what one child's answer shows, or its death.

    Args:
        gpu: The card that the child was to see, or whose slice.
        machine: The machine, whose driver and other cards explain a refusal.
        finished: How the child ended, and what it wrote.
    """
    answers = json_lines(finished)
    if not answers:
        error = f"libcuda: {how_it_ended(finished, DRIVER_SECONDS)}"
        code = _FAULTS.get(fault_of(finished))
        if code:
            return _failed(gpu, code, error, at_start=True)
        symptom = Symptom("driver-not-asked", why=error, blocking=False)
        return GpuTrial(gpu.index, "unproven", symptom)
    answer = answers[-1]
    if "fault" in answer:
        return _failed(gpu, "libcuda-missing", answer["error"], at_start=True)
    wrong = answer.get("wrong")
    if wrong is not None:
        if wrong == 0:
            return GpuTrial(gpu.index, "proven")
        return _failed(gpu, "gpu-computes-wrong", f"{wrong} of its words are wrong")
    place = {
        "container": machine.environment.container,
        "wsl": machine.environment.wsl,
        "without-slices": gpu.mig and not gpu.mig_devices,
    }
    refusal = explain_refusal(
        answer["status"],
        answer["path"],
        machine.driver.version if machine.driver else None,
        [other.compute_capability for other in machine.gpus],
        place,
    )
    is_start = answer["call"] == "cuInit"
    # At cuInit nothing was asked of the card yet, so that another's use of it explains nothing.
    harmless = None
    if not is_start:
        harmless = next(symptoms("preflight", refusal.circumstances), None)
    return GpuTrial(
        gpu.index,
        "unproven" if harmless else "failed",
        harmless or refusal.symptom,
        refusal.circumstances,
        refusal.evidence,
        at_start=is_start,
    )


def _failed(
    gpu: Gpu,
    code: str,
    evidence: str,
    *,
    at_start: bool = False,
) -> GpuTrial:
    return GpuTrial(
        gpu.index, "failed", Symptom(code), evidence=evidence, at_start=at_start
    )


def outcomes_of(tried: Sequence[GpuTrial]) -> dict[int, ProofOutcome]:
    """Return the worst of what its slices showed, for each GPU."""
    outcomes: dict[int, ProofOutcome] = {trial.gpu: "proven" for trial in tried}
    for trial in sorted(tried, key=lambda trial: OUTCOMES.index(trial.outcome)):
        outcomes[trial.gpu] = trial.outcome
    return outcomes


def problems_of(
    tried: Sequence[GpuTrial], fix_context: FixContext
) -> tuple[Finding, ...]:
    """Return one problem for each cause: of the GPUs that show it, or of the machine if no child got any further."""
    alike: dict[Symptom, list[GpuTrial]] = {}
    for trial in tried:
        if trial.symptom:
            alike.setdefault(trial.symptom, []).append(trial)
    problems = []
    for cause, trials_of_cause in alike.items():
        symptom = cause
        gpus = tuple(dict.fromkeys(trial.gpu for trial in trials_of_cause))
        if trials_of_cause == [*tried] and all(trial.at_start for trial in tried):
            gpus = ()
        if gpus and symptom.code == "cuda-no-device":
            symptom = replace(symptom, code="gpu-hidden-from-cuda")
        first = trials_of_cause[0]
        problem = finding_of(
            symptom,
            first.circumstances,
            fix_context,
            gpus=gpus,
            evidence=first.evidence,
        )
        problems.append(problem)
    return tuple(problems)
