"""NVIDIA's preflight, which runs a small kernel on every GPU.

One child process per GPU or MIG slice runs ``libcuda_child`` and sees no other GPU. The
driver compiles the kernel's PTX, so no toolkit or torch is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.process import Finished
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.values import replace
from gpuinstall.catalog.failures.problems import FixContext
from gpuinstall.machine.children import (
    DRIVER_SECONDS,
    classify_fault,
    describe_end,
    json_lines,
    run_children,
)
from gpuinstall.machine.nvidia.diagnosis import CudaFault, explain_cuda_error
from gpuinstall.machine.nvidia.libraries import (
    VISIBLE,
    create_child_command,
    create_child_environment,
)
from gpuinstall.machine.prober import OUTCOMES, GpuPart, Preflight, PreflightOutcome
from gpuinstall.machine.symptoms import Symptom, create_finding, symptoms

KERNEL = Path(__file__).with_name("kernel.ptx")


class GpuTrial(NamedTuple):
    """Result of a preflight on one GPU or MIG slice."""

    gpu: int
    """The GPU's index."""
    cause: CudaFault | None = None
    """The reason why the preflight did not verify the GPU."""
    at_start: bool = False
    """Whether the child process failed before it used its GPU."""

    @property
    def outcome(self) -> PreflightOutcome:
        """The outcome. A non-blocking cause makes it unproven."""
        if self.cause is None:
            return "proven"
        return "failed" if self.cause.symptom.blocking else "unproven"


def run_preflight(
    machine: Machine,
    parts: Sequence[GpuPart],
    reporter: Reporter,
) -> Preflight:
    """Run a small kernel on GPUs and MIG slices in parallel."""
    command = create_child_command("libcuda_child", "preflight", str(KERNEL))
    environment = create_child_environment()
    children = [(command, environment | {VISIBLE: part.name}) for part in parts]
    waiting = (
        f"waiting up to {DRIVER_SECONDS:.0f} s for the driver to initialize its GPUs"
    )
    ended = run_children(children, DRIVER_SECONDS, lambda: reporter.wait(waiting))
    tried = [
        classify_trial(part.gpu, machine, finished)
        for part, finished in zip(parts, ended, strict=True)
    ]
    return Preflight(
        combine_outcomes(tried),
        create_trial_problems(tried, FixContext.of_machine(machine)),
    )


def classify_trial(
    gpu: Gpu,
    machine: Machine,
    finished: Finished,
) -> GpuTrial:
    """Classify the result of one child process of the preflight.

    Args:
        gpu: The GPU that the child used, as a whole or a slice.
        machine: The machine, whose driver and other GPUs explain an error.
        finished: The exit status and output of the child.
    """
    answers = json_lines(finished)
    if not answers:
        error = f"CUDA: {describe_end(finished, DRIVER_SECONDS)}"
        symptom = {
            "timeout": Symptom("driver-hangs"),
            "crash": Symptom("driver-crashes"),
            "unasked": Symptom("driver-not-asked", why=error, blocking=False),
        }[classify_fault(finished)]
        hangs = symptom.code == "driver-hangs"
        return GpuTrial(gpu.index, CudaFault(symptom, {}, error), at_start=hangs)
    answer = answers[-1]
    if "fault" in answer:
        cause = CudaFault(Symptom("libcuda-missing"), {}, answer["error"])
        return GpuTrial(gpu.index, cause, at_start=True)
    if "wrong" in answer:
        wrong = answer["wrong"]
        evidence = f"{wrong} words of its result are wrong"
        cause = CudaFault(Symptom("gpu-kernel-failed"), {}, evidence)
        return GpuTrial(gpu.index, cause if wrong else None)
    place = {
        machine.os: True,
        "container": machine.environment.container,
        "wsl": machine.environment.wsl,
        "without-slices": gpu.mig and not gpu.mig_devices,
    }
    cause = explain_cuda_error(
        answer["status"],
        answer["path"],
        machine.driver.version if machine.driver else None,
        [other.compute_capability for other in machine.gpus],
        place,
    )
    # If cuInit fails, none of the harmless causes applies, because each of them is about a single GPU.
    if answer["call"] == "cuInit":
        return GpuTrial(gpu.index, cause, at_start=True)
    harmless = next(symptoms("preflight", cause.circumstances), cause.symptom)
    return GpuTrial(gpu.index, cause._replace(symptom=harmless))


def combine_outcomes(tried: Sequence[GpuTrial]) -> dict[int, PreflightOutcome]:
    """Return the outcome of each GPU, which is the worst among its slices."""
    outcomes: dict[int, PreflightOutcome] = {}
    for trial in tried:
        known = outcomes.get(trial.gpu, "proven")
        outcomes[trial.gpu] = max(known, trial.outcome, key=OUTCOMES.index)
    return outcomes


def create_trial_problems(
    tried: Sequence[GpuTrial], fix_context: FixContext
) -> tuple[Finding, ...]:
    """Return one finding for each cause of failed preflights."""
    alike: dict[Symptom, dict[int, CudaFault]] = {}
    for trial in tried:
        if trial.cause:
            causes = alike.setdefault(trial.cause.symptom, {})
            causes.setdefault(trial.gpu, trial.cause)
    is_machines = len(alike) == 1 and all(trial.at_start for trial in tried)
    problems = []
    for symptom, causes in alike.items():
        gpus = () if is_machines else tuple(causes)
        is_hidden = gpus and symptom.code == "cuda-no-device"
        cause = next(iter(causes.values()))
        problem = create_finding(
            replace(symptom, code="gpu-hidden-from-cuda") if is_hidden else symptom,
            cause.circumstances,
            fix_context,
            gpus=gpus,
            evidence=cause.evidence,
        )
        problems.append(problem)
    return tuple(problems)
