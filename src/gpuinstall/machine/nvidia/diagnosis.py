"""What is wrong with the machine as a whole: the first fault that the evidence shows. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gpuinstall.base.finding import Finding
from gpuinstall.machine.nvidia.card_diagnosis import (
    driver_fault,
    evidence_line,
    fault,
    held_by_nouveau,
)
from gpuinstall.machine.nvidia.cuda_causes import CudaContext, count_blackwells, cuda_refusal
from gpuinstall.machine.nvidia.evidence import NvidiaEvidence
from gpuinstall.machine.nvidia.libraries import NO_PERMISSION, LibcudaFacts, NvmlFacts

# NVML's numbers.
DRIVER_NOT_LOADED = 9
LIBRARY_NOT_FOUND = 12
MISMATCH = 18
UNKNOWN = 999

NO_DEVICE = 100
"""CUDA's number."""
LOST_CARD_STOPS = (3, NO_DEVICE, UNKNOWN)
"""What cuInit may return for all cards if one is lost: not initialized, no device, unknown."""
WITHOUT_GPUS = ("", "-1", "NoDevFiles")
"""What a scheduler writes into CUDA_VISIBLE_DEVICES for a job without GPUs."""


def diagnose_machine(evidence: NvidiaEvidence) -> Finding | None:
    """Return what keeps the whole machine from working; None if nothing does, or if there is no GPU."""
    return next((finding for faults in FAULTS for finding in faults(evidence)), None)


def _broken_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """A library of the driver hangs, crashes, is of another release than the module, or may not open it."""
    nvml = evidence.nvml
    cuda = evidence.cuda
    if nvml.fault in ("timeout", "crash"):
        # It is asked about one card after the other, and may fail at one.
        card = "" if nvml.at is None else f" when asked about GPU {nvml.at}"
        yield _dying_library(evidence, "NVML", card, nvml)
    if cuda.fault in ("timeout", "crash") and evidence.shows_gpu:
        yield _dying_library(evidence, "libcuda", "", cuda)
    if nvml.init == MISMATCH:
        yield _mismatch(evidence)
    if nvml.init == NO_PERMISSION:
        refused = "; ".join(evidence.refused)
        yield fault(
            evidence,
            "device-nodes-unusable",
            message="this user may not open the NVIDIA driver",
            why=refused or "this user has no permission for the device nodes in /dev",
        )


def _dying_library(
    evidence: NvidiaEvidence,
    name: str,
    card: str,
    library: NvmlFacts | LibcudaFacts,
) -> Finding:
    if library.fault == "crash":
        return driver_fault(
            evidence,
            "driver-crashes",
            message=f"{name} crashes{card}",
            why=library.error or "",
        )
    return fault(
        evidence,
        "driver-hangs",
        message=f"{name} does not answer{card}",
        why="a GPU or its kernel module no longer responds, or many GPUs start without persistence mode",
    )


def _mismatch(evidence: NvidiaEvidence) -> Finding:
    module = evidence.kernel.module
    kernel = f" ({module.version})" if module else ""
    release = (evidence.nvml.library or "").partition(".so.")[2]
    library = f" ({release})" if "." in release else ""
    why = "the driver was updated and the machine has not been restarted since"
    if evidence.container:
        why = "the image contains its own driver libraries, or the host's driver was updated while the container ran"
    return fault(
        evidence,
        "driver-library-mismatch",
        message=f"the NVIDIA kernel module{kernel} and the driver's libraries{library} differ",
        why=why,
    )


def _silent_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """No driver answers while a source shows a GPU: Windows', the container's, or one whose module is loaded."""
    if not _is_silent(evidence):
        return
    if evidence.facts.wsl:
        yield fault(
            evidence,
            "wsl-driver-unreachable",
            message="WSL has a GPU, but NVIDIA's driver does not respond in it",
            why="the Windows driver is missing, too old, or not available to this WSL",
        )
    if evidence.facts.host.os == "windows":
        yield driver_fault(
            evidence,
            "driver-missing",
            message=f"{_first_card(evidence)} has no working driver",
            why="Windows lists the adapter, but NVIDIA's driver does not respond",
        )
    module = evidence.kernel.module
    if module is None:
        yield from _without_module(evidence)
        return
    if evidence.container and not evidence.has_libraries:
        yield _lent_nothing(evidence, "the container has a GPU and not the driver's libraries")
    if evidence.has_libraries and evidence.refused:
        yield fault(
            evidence,
            "device-nodes-unusable",
            message=f"NVIDIA's driver {module.version} is loaded but cannot be opened",
            why="; ".join(evidence.refused),
        )
    yield fault(
        evidence,
        "driver-libraries-missing",
        message=f"the NVIDIA kernel module {module.version} is loaded, but the driver's libraries are not installed",
        why="neither libnvidia-ml.so.1 nor libcuda.so.1 can be used",
    )


def _without_module(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """Linux has not loaded the module: its own driver came first, or it is forbidden, unsigned or not there."""
    kernel = evidence.kernel
    init = evidence.nvml.init
    for card in evidence.cards:
        if card.device.driver == "nouveau":
            yield held_by_nouveau(evidence, card)
    if evidence.container and not evidence.has_libraries:
        yield _lent_nothing(evidence, "the container has a GPU and no driver")
    # Written by the tools that switch a laptop's card off.
    if kernel.blocked_by:
        yield fault(
            evidence,
            "gpu-switched-off",
            message=f"{_first_card(evidence)} is switched off",
            why=f"{kernel.blocked_by} blocks its module",
        )
    if kernel.secure_boot and kernel.on_disk:
        yield fault(
            evidence,
            "module-blocked-by-secure-boot",
            message="the NVIDIA kernel module is installed but not loaded",
            why="Secure Boot is on, and the module's key is not enrolled",
        )
    if init == LIBRARY_NOT_FOUND and not kernel.on_disk:
        yield fault(
            evidence,
            "driver-libraries-missing",
            message="the NVIDIA driver is only partly installed",
            why="its libraries do not find each other",
        )
    if evidence.has_libraries or init == DRIVER_NOT_LOADED or kernel.on_disk:
        release = kernel.release or evidence.facts.host.release
        not_built = "it was built for another kernel, or not at all"
        yield fault(
            evidence,
            "module-not-loaded",
            message=f"the NVIDIA kernel module is not loaded into kernel {release}",
            why="it exists but was not loaded" if kernel.on_disk else not_built,
        )
    yield driver_fault(
        evidence,
        "driver-missing",
        message=f"{_first_card(evidence)} has no NVIDIA driver",
        why="neither its kernel module nor its libraries were found",
    )


def _failing_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """NVML fails for a reason that no other fact explains, libcuda is missing, or nothing is listed."""
    nvml = evidence.nvml
    cuda = evidence.cuda
    if nvml.init == UNKNOWN and evidence.container:
        yield fault(
            evidence,
            "gpu-withdrawn-from-container",
            message="this container has lost its GPUs",
            why="systemd rewrote the container's device rules while it ran",
        )
    if nvml.init and nvml.init not in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        yield fault(
            evidence,
            "nvml-unknown-error" if nvml.init == UNKNOWN else "nvml-error",
            message=f"NVML cannot be initialized (error {nvml.init})",
            why="; ".join(evidence.refused) or "the driver is loaded but fails",
        )
    if cuda.fault in ("missing", "unloadable") and nvml.gpus:
        if evidence.container:
            yield _lent_nothing(evidence, "the container has NVML but not libcuda")
        yield fault(
            evidence,
            "libcuda-missing",
            message="NVML sees a GPU, but libcuda cannot be loaded",
            why=cuda.error or "libcuda.so.1 is not installed",
        )
    gpus = evidence.cards or nvml.gpus or cuda.devices or evidence.jetson
    nodes = evidence.nodes
    if not gpus and evidence.shows_gpu and (nvml.works or evidence.cuda_works):
        yield fault(
            evidence,
            "no-device-found",
            message="the NVIDIA driver finds no GPU",
            why=f"there is /dev/{nodes[0]}, but no GPU behind it" if nodes else "there is /dev/dxg",
        )


def _refusing_driver(evidence: NvidiaEvidence) -> Iterator[Finding]:
    """CUDA does not start while a GPU is seen, and no fault of the cards explains it."""
    init = evidence.cuda.init
    if not init or not evidence.shows_gpu or _is_explained(evidence, init):
        return
    finding = cuda_refusal(init, _cuda_context(evidence))
    fabric = str(evidence.fabric) if evidence.fabric else None
    facts = (finding.evidence, fabric, evidence_line(evidence))
    yield replace(finding, evidence=" · ".join(filter(None, facts)))


def _is_explained(evidence: NvidiaEvidence, init: int) -> bool:
    gpus = evidence.nvml.gpus
    lost = [gpu for gpu in gpus if gpu.error is not None]
    # One lost card may keep CUDA from starting for all; the others are tried without it, each by itself.
    if evidence.nvml.works and init in LOST_CARD_STOPS and 0 < len(lost) < len(gpus):
        return True
    if init != NO_DEVICE:
        return False
    if evidence.facts.container.job is not None and evidence.visible in WITHOUT_GPUS:
        return True
    # Each card has a fault of its own, or the driver lists none of those on the bus.
    have_faults = all(gpu.error is not None or gpu.is_withheld for gpu in gpus)
    return evidence.nvml.works and bool(evidence.cards or gpus) and have_faults


FAULTS = (_broken_driver, _silent_driver, _failing_driver, _refusing_driver)
"""The first that one of them yields is the machine's."""


def _is_silent(evidence: NvidiaEvidence) -> bool:
    """NVML 9 or 12, or no NVML and no libcuda that finds a device, while another source shows a GPU."""
    # A Jetson's NVML is new and tells little: what its chip needs is decided by its L4T release.
    is_tegra = evidence.jetson is not None and not evidence.cards
    if is_tegra or not evidence.shows_gpu:
        return False
    nvml = evidence.nvml
    is_refused = nvml.fault is None and nvml.init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND)
    return is_refused or _is_absent(evidence)


def _is_absent(evidence: NvidiaEvidence) -> bool:
    """NVML missing beside a libcuda that works is a healthy compute-only container.

    If a recording has no answer of either library, a kernel without the module has the last word.
    """
    cuda = evidence.cuda
    if not evidence.nvml.was_asked and cuda == LibcudaFacts():
        return evidence.facts.host.os == "linux" and evidence.kernel.module is None
    without_cuda = cuda.fault in ("missing", "unloadable") or cuda.init == NO_DEVICE
    return evidence.nvml.fault == "missing" and without_cuda


def _lent_nothing(evidence: NvidiaEvidence, message: str) -> Finding:
    """A container has a GPU, and not the libraries to use it."""
    capabilities = evidence.toolkit.capabilities
    why = "the container toolkit did not add the driver"
    if capabilities:
        why = f"NVIDIA_DRIVER_CAPABILITIES is {capabilities!r}"
    return fault(
        evidence,
        "libraries-not-in-container",
        message=message,
        why=why,
    )


def _first_card(evidence: NvidiaEvidence) -> str:
    return evidence.cards[0].name if evidence.cards else "the GPU of this machine"


def _cuda_context(evidence: NvidiaEvidence) -> CudaContext:
    gpus = evidence.nvml.gpus
    refused = evidence.refused
    return CudaContext(
        wsl=evidence.facts.wsl is not None,
        container=evidence.container,
        fix_context=evidence.fix_context,
        driver=evidence.driver,
        library=evidence.cuda.path,
        blackwells=count_blackwells(gpu.compute_capability for gpu in gpus),
        unsliced=bool(gpus) and all(gpu.mig and not gpu.slices for gpu in gpus),
        # CUDA's own node is refused and the one that it shares with NVML is not.
        without_uvm=len(refused) == 1 and refused[0].startswith("/dev/nvidia-uvm"),
        switches=evidence.fabric.switches if evidence.fabric else None,
    )
