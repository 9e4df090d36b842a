"""The driver's rules: which builds it runs, which GPUs it drives."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Build
    from gpuinstall.machine import Gpu
    from gpuinstall.plan.case import PlanContext
    from gpuinstall.versions import DriverVersion


class Ignored(NamedTuple):
    """Why a driver ignores a GPU, and the driver that does not."""

    reason: Reason
    fix: str


def runs_on_driver(build: Build, case: PlanContext) -> Reason | None:
    """VersionPins the floor of the build's CUDA major; where only the driver's CUDA is known, its major decides."""
    if build.toolkit is None:
        return None
    major = build.toolkit.major
    floor = case.floors.get(major)
    if case.driver_version is None and case.driver_cuda is not None:
        fits = case.driver_cuda.major >= major
    else:
        fits = floor is not None and case.reaches(floor)
    if fits:
        return None
    return Reason("driver-too-old", f"CUDA {major}.x needs driver {floor} or newer")


def shaky(build: Build, case: PlanContext) -> Reason | None:
    """Warn where a build runs by minor-version compatibility that is known to be incomplete."""
    first, last, cuda = case.catalog.drivers.partially_supported
    branch = case.driver_version.branch if case.driver_version else case.driver_branch
    if build.toolkit is None or build.toolkit < cuda or branch is None or not first <= branch <= last:
        return None
    message = (
        f"{case.driver} runs CUDA {build.toolkit} builds, but some kernels (optimizers) may fail (F19): 530 is safe"
    )
    return Reason("driver-barely-new-enough", message)


def old_compiler(build: Build, case: PlanContext) -> Reason | None:
    """Warn where the build's run-time compilers do not know a chip that its kernels run on."""
    for gpu in case.gpus:
        major = gpu.compute_capability and case.catalog.drivers.compilers.get(gpu.compute_capability)
        if major and build.toolkit and build.toolkit.major < major:
            message = f"the run-time compilers of CUDA {build.toolkit} do not know {gpu.label}: torch.compile may fail"
            return Reason("run-time-compiler-too-old", message)
    return None


def ignored_by_driver(gpu: Gpu, case: PlanContext) -> Ignored | None:
    """Say why the driver does not drive a GPU: it is from before the GPU's generation, or has dropped it."""
    generation = gpu.compute_capability and case.catalog.drivers.generation(gpu.compute_capability)
    if not generation or case.driver_branch is None:
        return None
    chip = f"{generation.name} GPUs such as {gpu.label}"
    last = generation.last_branch
    if last is not None and case.driver_branch > last:
        message = f"{case.driver} no longer drives {chip}; {last} is the last that does"
        return Ignored(Reason("driver-dropped-gpu", message), f"install driver {last}")
    floor = generation.floor and case.floor(generation.floor)
    if floor and not _reaches(floor, case):
        message = f"{case.driver} does not know {chip}; {floor} is the first that does"
        return Ignored(Reason("driver-older-than-gpu", message), f"update the NVIDIA driver to {floor} or newer")
    return None


def _reaches(floor: DriverVersion, case: PlanContext) -> bool:
    return case.reaches(floor) if case.driver_version else (case.driver_branch or 0) >= floor.branch
