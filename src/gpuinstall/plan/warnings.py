"""What a plan says beside its reasons: nothing here stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.catalog.build import CPU
from gpuinstall.plan.driver import old_compiler, shaky
from gpuinstall.plan.gpus import foreign_gpus
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Build
    from gpuinstall.plan.case import PlanContext

_CONTAINER_FIX = "start it with the NVIDIA Container Toolkit (docker run --gpus all)"


def cuda_warnings(build: Build, case: PlanContext) -> tuple[Reason, ...]:
    """Warn of a CUDA build for the GPUs of ``case``."""
    found = (shaky(build, case), old_compiler(build, case))
    return (*(reason for reason in found if reason is not None), *_of_the_machine(case))


def cpu_warnings(build: Build, why: Reason, case: PlanContext) -> tuple[Reason, ...]:
    """Warn of a CPU build, or of the CUDA build that takes its place."""
    found = []
    if build.backend != CPU:
        found.append(Reason("cuda-build-without-gpu", f"no source has a CPU build: {build.name} is some 3 GB, not 0.2"))
    if why.code == "no-gpu" and (signs := _signs_of_a_builder(case)):
        found.append(_builder(signs, case))
    return (*found, *_of_the_machine(case))


def _of_the_machine(case: PlanContext) -> tuple[Reason, ...]:
    problems = [Reason(problem.code, problem.message) for problem in case.machine.problems if not problem.blocking]
    foreign = [
        Reason("gpu-not-supported", f"GPU {gpu.index} ({gpu.label}) is not used: it is not from NVIDIA")
        for gpu in foreign_gpus(case.machine)
    ]
    return (*problems, *foreign)


def _signs_of_a_builder(case: PlanContext) -> list[str]:
    machine = case.machine
    container = [f"a {machine.environment.container} container"] if machine.environment.container else []
    others = [problem.message for problem in machine.problems if problem.code == "gpu-not-ours"]
    return [*container, *machine.signs, *others]


def _builder(signs: list[str], case: PlanContext) -> Reason:
    fix = f"; if it has GPUs, {_CONTAINER_FIX}" if case.machine.environment.container else ""
    message = (
        f"this looks like a machine that prepares environments for others ({', '.join(signs)}): "
        f"--backend cu126, --machine or --gpu with --driver name the one that is meant{fix}"
    )
    return Reason("looks-like-a-builder", message)
