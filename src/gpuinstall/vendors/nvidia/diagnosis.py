"""What is wrong with the machine as a whole: the first fault that the evidence shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuinstall.finding import Finding
from gpuinstall.vendors.nvidia.card_diagnosis import (
    driver_fault,
    evidence_line,
    fault,
    held_by_nouveau,
)
from gpuinstall.vendors.nvidia.evidence import NvidiaEvidence
from gpuinstall.vendors.nvidia.libraries import NO_PERMISSION, LibcudaFacts
from gpuinstall.vendors.nvidia.preflight import CudaContext, blackwells, cuda_refusal

# NVML's numbers, and CUDA's for no device.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH, UNKNOWN = 9, 12, 18, 999
NO_DEVICE = 100
LOST_CARD_STOPS = (3, 100, UNKNOWN)
"""What cuInit may return for all cards where one is lost: not initialized, no device, unknown."""


def diagnose_machine(evidence: NvidiaEvidence) -> Finding | None:
    """Name what keeps the whole machine from working; None where nothing does, or where there is no GPU."""
    return next((finding for faults in FAULTS for finding in faults(evidence)), None)


def _broken_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A library of the driver hangs, crashes, is of another release than the module, or may not open it."""
    nvml, cuda = evidence.nvml, evidence.cuda
    if nvml.fault in ("timeout", "crash"):
        yield _dying_library(evidence, "NVML", nvml.fault, nvml.error)
    if cuda.fault in ("timeout", "crash") and evidence.shows_gpu:
        yield _dying_library(evidence, "libcuda", cuda.fault, cuda.error)
    if nvml.init == MISMATCH:
        module, release = evidence.kernel.module, (nvml.library or "").partition(".so.")[2]
        kernel, library = (
            f" ({module.version})" if module else "",
            f" ({release})" if "." in release else "",
        )
        message = f"the NVIDIA kernel module{kernel} and the driver's libraries{library} differ"
        updated = "the driver was updated and the machine has not been restarted since"
        own = "the image contains its own driver libraries, or the host's driver was updated while the container ran"
        yield fault(
            evidence, "driver-library-mismatch", message, own if evidence.container else updated
        )
    if nvml.init == NO_PERMISSION:
        why = (
            "; ".join(evidence.refused)
            or "this user has no permission for the device nodes in /dev"
        )
        yield fault(
            evidence, "device-nodes-unusable", "this user may not open the NVIDIA driver", why
        )


def _silent_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """No driver answers while a source shows a GPU: Windows', the container's, or one whose module is loaded."""
    if not _is_silent(evidence):
        return
    module = evidence.kernel.module
    if evidence.facts.wsl:
        message = "WSL has a GPU, but NVIDIA's driver does not respond in it"
        why = "the Windows driver is missing, too old, or not available to this WSL"
        yield fault(evidence, "wsl-driver-unreachable", message, why)
    if evidence.facts.host.os == "windows":
        why = "Windows lists the adapter, but NVIDIA's driver does not respond"
        yield driver_fault(
            evidence, "driver-missing", f"{_subject(evidence)} has no working driver", why
        )
    if module is None and (
        holder := next((card for card in evidence.cards if card.device.driver == "nouveau"), None)
    ):
        yield held_by_nouveau(evidence, holder)
    if evidence.container and not evidence.has_libraries:
        without = "no driver" if module is None else "not the driver's libraries"
        yield _lent_nothing(evidence, f"the container has a GPU and {without}")
    if module and evidence.has_libraries and evidence.refused:
        message = f"NVIDIA's driver {module.version} is loaded but cannot be opened"
        yield fault(evidence, "device-nodes-unusable", message, "; ".join(evidence.refused))
    if module:
        message = f"the NVIDIA kernel module {module.version} is loaded, but the driver's libraries are not installed"
        why = "neither libnvidia-ml.so.1 nor libcuda.so.1 can be used"
        yield fault(evidence, "driver-libraries-missing", message, why)
    else:
        yield _idle_module(evidence)


def _idle_module(evidence: NvidiaEvidence) -> Finding:
    """No driver answers, and Linux has not loaded its module: forbidden, unsigned, of another kernel, or not there."""
    kernel, nvml = evidence.kernel, evidence.nvml
    if kernel.blocked_by:  # as the tools that switch a laptop's card off write it
        why = f"{kernel.blocked_by} blocks its module"
        return fault(evidence, "gpu-switched-off", f"{_subject(evidence)} is switched off", why)
    if kernel.secure_boot and kernel.on_disk:
        message = "the NVIDIA kernel module is installed but not loaded"
        why = "Secure Boot is on, and the module's key is not enrolled"
        return fault(evidence, "module-blocked-by-secure-boot", message, why)
    if nvml.init == LIBRARY_NOT_FOUND and not kernel.on_disk:
        message, why = (
            "the NVIDIA driver is only partly installed",
            "its libraries do not find each other",
        )
        return fault(evidence, "driver-libraries-missing", message, why)
    if evidence.has_libraries or nvml.init == DRIVER_NOT_LOADED or kernel.on_disk:
        message = f"the NVIDIA kernel module is not loaded into kernel {kernel.release or evidence.facts.host.release}"
        why = (
            "it exists but was not loaded"
            if kernel.on_disk
            else "it was built for another kernel, or not at all"
        )
        return fault(evidence, "module-not-loaded", message, why)
    why = "neither its kernel module nor its libraries were found"
    return driver_fault(
        evidence, "driver-missing", f"{_subject(evidence)} has no NVIDIA driver", why
    )


def _failing_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """NVML fails for a reason that no other fact explains, libcuda is missing, or nothing is listed."""
    nvml, cuda = evidence.nvml, evidence.cuda
    if nvml.init == UNKNOWN and evidence.container:
        why = "systemd rewrote the container's device rules while it ran"
        yield fault(
            evidence, "gpu-withdrawn-from-container", "this container has lost its GPUs", why
        )
    if nvml.init and nvml.init not in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        code = "nvml-unknown-error" if nvml.init == UNKNOWN else "nvml-error"
        why = "; ".join(evidence.refused) or "the driver is loaded but fails"
        yield fault(evidence, code, f"NVML cannot be initialized (error {nvml.init})", why)
    if cuda.fault in ("missing", "unloadable") and nvml.gpus:
        if evidence.container:
            yield _lent_nothing(evidence, "the container has NVML but not libcuda")
        message = "NVML sees a GPU, but libcuda cannot be loaded"
        yield fault(
            evidence, "libcuda-missing", message, cuda.error or "libcuda.so.1 is not installed"
        )
    listed = evidence.cards or nvml.gpus or cuda.devices or evidence.jetson
    if not listed and evidence.shows_gpu and (nvml.works or evidence.cuda_works):
        why = (
            f"there is /dev/{evidence.nodes[0]}, but no GPU behind it"
            if evidence.nodes
            else "there is /dev/dxg"
        )
        yield fault(evidence, "no-device-found", "the NVIDIA driver finds no GPU", why)


def _refusing_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """CUDA does not start while a GPU is seen, and no fault of the cards explains it."""
    init, gpus = evidence.cuda.init, evidence.nvml.gpus
    if not init or not evidence.shows_gpu:
        return
    # Each card has a fault of its own, or the driver lists none of those on the bus.
    has_fault = [gpu.error is not None or gpu.is_withheld for gpu in gpus]
    explained = evidence.nvml.works and (evidence.cards or gpus) and all(has_fault)
    without_gpus = evidence.facts.container.job is not None and evidence.visible in (
        "",
        "-1",
        "NoDevFiles",
    )
    if init == NO_DEVICE and (explained or without_gpus):
        return
    # One lost card may keep CUDA from starting for all; the others are tried without it, each by itself.
    lost = [gpu for gpu in gpus if gpu.error is not None]
    if evidence.nvml.works and init in LOST_CARD_STOPS and 0 < len(lost) < len(gpus):
        return
    finding = cuda_refusal(init, _cuda_context(evidence))
    facts = (
        finding.evidence,
        str(evidence.fabric) if evidence.fabric else None,
        evidence_line(evidence),
    )
    yield replace(finding, evidence=" · ".join(fact for fact in facts if fact))


FAULTS = (_broken_driver, _silent_driver, _failing_driver, _refusing_driver)
"""The first that one of them yields is the machine's."""


def _is_silent(evidence: NvidiaEvidence) -> bool:
    """NVML 9 or 12, or no NVML and no libcuda that finds a device, while another source shows a GPU.

    A Jetson's NVML is new and says little: what its chip needs is decided by its L4T release.
    """
    tegra = evidence.jetson is not None and not evidence.cards
    refused = (
        evidence.nvml.init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND) and evidence.nvml.fault is None
    )
    return not tegra and evidence.shows_gpu and (refused or _is_absent(evidence))


def _is_absent(evidence: NvidiaEvidence) -> bool:
    """NVML missing beside a libcuda that works is a healthy compute-only container.

    Where a recording has no answer of either library, a kernel without the module has the last word.
    """
    cuda = evidence.cuda
    if not evidence.nvml.was_asked and cuda == LibcudaFacts():
        return evidence.facts.host.os == "linux" and evidence.kernel.module is None
    without_cuda = cuda.fault in ("missing", "unloadable") or cuda.init == NO_DEVICE
    return evidence.nvml.fault == "missing" and without_cuda


def _dying_library(evidence: NvidiaEvidence, library: str, kind: str, error: str | None) -> Finding:
    """A library of the driver hangs or crashes; NVML perhaps when asked about one card."""
    gpu = evidence.nvml.at if library == "NVML" else None
    card = "" if gpu is None else f" when asked about GPU {gpu}"
    if kind == "crash":
        return driver_fault(evidence, "driver-crashes", f"{library} crashes{card}", error or "")
    why = (
        "a GPU or its kernel module no longer responds, or many GPUs start without persistence mode"
    )
    return fault(evidence, "driver-hangs", f"{library} does not answer{card}", why)


def _lent_nothing(evidence: NvidiaEvidence, message: str) -> Finding:
    """A container has a GPU, and not the libraries to use it."""
    lent = evidence.toolkit.capabilities
    why = (
        f"NVIDIA_DRIVER_CAPABILITIES is {lent!r}"
        if lent
        else "the container toolkit did not add the driver"
    )
    return fault(evidence, "libraries-not-in-container", message, why)


def _subject(evidence: NvidiaEvidence) -> str:
    """Name the first card in a sentence."""
    return evidence.cards[0].name if evidence.cards else "the GPU of this machine"


def _cuda_context(evidence: NvidiaEvidence) -> CudaContext:
    gpus, refused = evidence.nvml.gpus, evidence.refused
    # CUDA's own node is refused and the one that it shares with NVML is not.
    without_uvm = len(refused) == 1 and refused[0].startswith("/dev/nvidia-uvm")
    return CudaContext(
        wsl=evidence.facts.wsl is not None,
        container=evidence.container,
        fix_context=evidence.fix_context,
        driver=evidence.driver,
        library=evidence.cuda.path,
        blackwells=blackwells(gpu.compute_capability for gpu in gpus),
        unsliced=bool(gpus) and all(gpu.mig and not gpu.slices for gpu in gpus),
        uvm=False if without_uvm else None,
        switches=evidence.fabric.switches if evidence.fabric else None,
    )
