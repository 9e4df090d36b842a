"""Whether a forward-compatibility libcuda counts on a machine, by what it and the system's own answered. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.base.finding import Reason
from gpuinstall.machine.nvidia.driver import MachineDriver

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.base.machine import Machine
    from gpuinstall.base.versions import CudaVersion
    from gpuinstall.catalog.drivers import Drivers
    from gpuinstall.machine.nvidia.libraries import LibcudaFacts

# What cuInit returns where the package is not allowed: cuda.h.
_REFUSALS = {
    803: "the driver and the libraries do not go together",
    804: "these GPUs do not support forward compatibility",
}


def compat_rejection(
    machine: Machine,
    system: LibcudaFacts,
    above: LibcudaFacts,
    tables: Drivers,
    environ: Mapping[str, str],
) -> Reason | None:
    """Return why the package is not used; None if nothing but a kernel on every GPU is still to be tried.

    Args:
        machine: The machine with its own driver.
        system: What the system's libcuda answered.
        above: What the package's libcuda answered.
        tables: What is known of drivers.
        environ: The variables of programs that are started here.
    """
    reasons = (
        *_system_reasons(machine, system, environ),
        *_version_reasons(system, above),
        *_gpu_reasons(machine, above.driver_version, tables),
        *_start_reasons(system, above),
    )
    return next(iter(reasons), None)


def unsupported(machine: Machine, tables: Drivers) -> Reason | None:
    """Return why no package is made for a machine, before any is fetched: the oldest serves the most GPUs."""
    oldest = min(tables.compat)
    return next(_gpu_reasons(machine, oldest.cuda, tables), None)


def _system_reasons(
    machine: Machine,
    system: LibcudaFacts,
    environ: Mapping[str, str],
) -> Iterator[Reason]:
    """Yield what stands in the way before the package is looked at."""
    for problem in machine.blocking:
        yield Reason(
            "cuda-compat-below", f"the driver itself does not work: {problem.message}"
        )
    if system.fault or system.init:
        cause = system.error or f"its cuInit returned {system.init}"
        yield Reason(
            "cuda-compat-below", f"the system's libcuda does not work: {cause}"
        )
    if any(name.startswith("CUDA_INJECTION") for name in environ):
        # What a profiler injects keeps the system's libcuda loaded: two of them in one process.
        yield Reason(
            "cuda-compat-injection", "a profiler injects itself (CUDA_INJECTION64_PATH)"
        )


def _version_reasons(system: LibcudaFacts, above: LibcudaFacts) -> Iterator[Reason]:
    """Yield that it does not load, or brings nothing newer."""
    if above.fault:
        yield Reason(
            "cuda-compat-unloadable", f"its libcuda does not work: {above.error}"
        )
    elif above.path == system.path:
        yield Reason(
            "cuda-compat-unloadable", f"the loader takes {system.path} all the same"
        )
    elif above.driver_version is None or system.driver_version is None:
        yield Reason(
            "cuda-compat-unloadable", "its libcuda does not report its version"
        )
    elif above.driver_version <= system.driver_version:
        yield Reason(
            "cuda-compat-not-newer",
            f"the driver serves CUDA {system.driver_version}, and it CUDA {above.driver_version}",
        )


def _gpu_reasons(
    machine: Machine,
    cuda: CudaVersion | None,
    tables: Drivers,
) -> Iterator[Reason]:
    """Yield the GPUs that it is not made for."""
    if machine.driver is None:
        return
    driver = replace(machine.driver, cuda=cuda, compat=True)
    machine_driver = MachineDriver(replace(machine, driver=driver), tables)
    for gpu in machine.gpus:
        if gpu.compute_capability:
            fault = machine_driver.compat_fault(gpu.label, gpu.compute_capability)
            if fault:
                yield fault.reason


def _start_reasons(system: LibcudaFacts, above: LibcudaFacts) -> Iterator[Reason]:
    """Yield that it does not start, or shows fewer devices than the system's own."""
    if above.init:
        meaning = _REFUSALS.get(above.init)
        text = f"its cuInit returned {above.init}"
        yield Reason("cuda-compat-refused", f"{text}: {meaning}" if meaning else text)
        return
    shown = {device.uuid for device in above.devices}
    missing = {device.uuid for device in system.devices} - shown
    if missing:
        yield Reason(
            "cuda-compat-misses-gpu",
            f"it does not show {len(missing)} of {len(system.devices)} GPUs",
        )
