"""No driver that answers, while another source shows a GPU: what exactly is missing. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.probe.fault import fault, fault_of_driver, held_by_nouveau
from gpuinstall.probe.libcuda import LibcudaFacts
from gpuinstall.probe.nvml import NvmlFacts

if TYPE_CHECKING:
    from gpuinstall.machine import Problem
    from gpuinstall.probe.evidence import Evidence

DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 9, 12
NO_DEVICE = 100


def no_driver(evidence: Evidence) -> Problem | None:
    """NVML 9 or 12, or no NVML and no libcuda that finds a device, while another source shows a GPU.

    A Jetson's NVML is new and says little: what its chip needs is decided by its L4T release.
    """
    tegra = evidence.jetson is not None and not evidence.cards
    if tegra or not evidence.shows_gpu or not (_is_refused(evidence) or _is_absent(evidence)):
        return None
    if evidence.wsl:
        message = "WSL has a GPU, and NVIDIA's driver does not answer in it"
        why = "the Windows driver is missing, too old, or not lent to this WSL"
        return fault(evidence, "wsl-driver-unreachable", message, why)
    if evidence.host.os == "windows":
        why = "Windows lists the adapter, and NVIDIA's driver does not answer"
        return fault_of_driver(evidence, "driver-missing", f"{subject(evidence)} has no working driver", why)
    return _no_module(evidence) if evidence.kernel.module is None else _no_libraries(evidence)


def lent_nothing(evidence: Evidence, message: str) -> Problem:
    """A container has a GPU, and not the libraries to use it."""
    lent = evidence.surroundings.capabilities
    why = f"NVIDIA_DRIVER_CAPABILITIES is {lent!r}" if lent else "the container toolkit put no driver into it"
    return fault(evidence, "libraries-not-in-container", message, why)


def subject(evidence: Evidence) -> str:
    """Name the first card in a sentence."""
    return evidence.cards[0].name if evidence.cards else "the GPU of this machine"


def _is_refused(evidence: Evidence) -> bool:
    return evidence.nvml.init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND) and evidence.nvml.fault is None


def _is_absent(evidence: Evidence) -> bool:
    """NVML missing beside a libcuda that works is a healthy compute-only container.

    Where a recording has no answer of either library, a kernel without the module has the last word.
    """
    cuda = evidence.cuda
    if evidence.nvml == NvmlFacts() and cuda == LibcudaFacts():
        return evidence.host.os == "linux" and evidence.kernel.module is None
    asked = cuda.fault in ("missing", "unloadable") or cuda.init == NO_DEVICE
    return evidence.nvml.fault == "missing" and asked


def _no_libraries(evidence: Evidence) -> Problem:
    version = evidence.kernel.module.version if evidence.kernel.module else ""
    if evidence.surroundings.container and not evidence.has_libraries:
        return lent_nothing(evidence, "the container has a GPU and not the driver's libraries")
    if evidence.has_libraries and evidence.refused:
        message = f"NVIDIA's driver {version} is loaded and cannot be opened"
        return fault(evidence, "device-nodes-unusable", message, "; ".join(evidence.refused))
    message = f"the NVIDIA kernel module {version} is loaded, and the driver's libraries are not installed"
    why = "neither libnvidia-ml.so.1 nor libcuda.so.1 can be used"
    return fault(evidence, "driver-libraries-missing", message, why)


def _no_module(evidence: Evidence) -> Problem:
    holder = next((card for card in evidence.cards if card.device.driver == "nouveau"), None)
    if holder is not None:
        return held_by_nouveau(evidence, holder)
    if evidence.surroundings.container and not evidence.has_libraries:
        return lent_nothing(evidence, "the container has a GPU and no driver")
    return _kept_out(evidence) or _not_installed(evidence)


def _kept_out(evidence: Evidence) -> Problem | None:
    """Something forbids the module."""
    kernel = evidence.kernel
    if kernel.blocked_by:
        why = f"{kernel.blocked_by} keeps its module out"
        return fault(evidence, "gpu-switched-off", f"{subject(evidence)} is switched off", why)
    if kernel.secure_boot and kernel.on_disk:
        message = "the NVIDIA kernel module is installed and not loaded"
        why = "Secure Boot is on, and the module's key is not enrolled"
        return fault(evidence, "module-blocked-by-secure-boot", message, why)
    return None


def _not_installed(evidence: Evidence) -> Problem:
    kernel = evidence.kernel
    if evidence.nvml.init == LIBRARY_NOT_FOUND and not kernel.on_disk:
        message, why = "the NVIDIA driver is installed in part", "its libraries do not find one another"
        return fault(evidence, "driver-libraries-missing", message, why)
    if evidence.has_libraries or evidence.nvml.init == DRIVER_NOT_LOADED or kernel.on_disk:
        message = f"the NVIDIA kernel module is not loaded into kernel {kernel.release or evidence.host.release}"
        why = "it is there, and was not loaded" if kernel.on_disk else "it was built for another kernel, or not at all"
        return fault(evidence, "module-not-loaded", message, why)
    why = "neither its kernel module nor its libraries are there"
    return fault_of_driver(evidence, "driver-missing", f"{subject(evidence)} has no NVIDIA driver", why)
