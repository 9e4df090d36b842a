"""Whether a forward-compatibility libcuda counts on a machine, by what it and the system's own answered. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.base.finding import Reason
from gpuinstall.base.values import replace
from gpuinstall.machine.nvidia.driver import MachineDriver

if TYPE_CHECKING:
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
) -> Reason | None:
    """Return why the package is not used; None if nothing but a kernel on every GPU is still to be tried.

    Args:
        machine: The machine with its own driver.
        system: What the system's libcuda answered.
        above: What the package's libcuda answered.
        tables: What is known of drivers.
    """
    fault = None
    if machine.blocking:
        fault = f"the driver itself does not work: {machine.blocking[0].message}"
    elif system.fault or system.init or system.driver_version is None:
        cause = system.error or f"its cuInit returned {system.init}"
        fault = f"the system's libcuda does not work: {cause}"
    elif above.fault or above.driver_version is None:
        fault = f"its libcuda does not work: {above.error}"
    elif above.path == system.path:
        fault = f"the loader takes {system.path} all the same"
    # An older libcuda above a newer driver was seen to end in 803 (NVIDIA-NeMo/labs-molt#44).
    elif above.driver_version <= system.driver_version:
        return Reason(
            "cuda-compat-not-newer",
            f"the driver serves CUDA {system.driver_version}, and it CUDA {above.driver_version}",
        )
    else:
        # Its start proves too little: the libraries of 590 start on Volta and older, and fail at a context
        # (Yggdrasil#14178).
        unsupported_gpu = _unsupported_gpu(machine, above.driver_version, tables)
        if unsupported_gpu:
            return unsupported_gpu
        fault = _start_fault(system, above)
    return Reason("cuda-compat-unusable", fault) if fault else None


def unsupported(machine: Machine, tables: Drivers) -> Reason | None:
    """Return why no package is made for a machine, before any is fetched: the oldest serves the most GPUs."""
    return _unsupported_gpu(machine, tables.compat[0].cuda, tables)


def _unsupported_gpu(
    machine: Machine,
    cuda: CudaVersion,
    tables: Drivers,
) -> Reason | None:
    """Return for which GPU a package that serves a CUDA is not made.

    Args:
        machine: The machine with its own driver.
        cuda: The CUDA of the package.
        tables: What is known of drivers.
    """
    if machine.driver is None:
        return None
    driver = replace(machine.driver, cuda=cuda, compat=True)
    machine_driver = MachineDriver(replace(machine, driver=driver), tables)
    for gpu in machine.gpus:
        if gpu.compute_capability:
            fault = machine_driver.fault(gpu.compute_capability, gpu.label)
            if fault:
                return fault.reason
    return None


def _start_fault(
    system: LibcudaFacts,
    above: LibcudaFacts,
) -> str | None:
    """Return that it does not start, or shows fewer devices than the system's own."""
    if above.init:
        meaning = _REFUSALS.get(above.init, "no reason is known")
        return f"its cuInit returned {above.init}: {meaning}"
    shown = {device.uuid for device in above.devices}
    missing = {device.uuid for device in system.devices} - shown
    if missing:
        return f"it does not show {len(missing)} of {len(system.devices)} GPUs"
    return None
