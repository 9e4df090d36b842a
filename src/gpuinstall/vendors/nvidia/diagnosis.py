"""What is wrong with the machine as a whole: the first predicate that the evidence fulfils. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.vendors.nvidia.card_diagnosis import driver_fault, evidence_line, fault, held_by_nouveau
from gpuinstall.vendors.nvidia.libraries import NO_PERMISSION, LibcudaFacts
from gpuinstall.vendors.nvidia.preflight import CudaContext, blackwells, cuda_refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuinstall.finding import Finding
    from gpuinstall.vendors.nvidia.evidence import NvidiaEvidence

    Condition = Callable[[NvidiaEvidence], bool]
    Predicate = Callable[[NvidiaEvidence], Finding | None]

# NVML's numbers, and CUDA's for no device.
DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH, UNKNOWN = 9, 12, 18, 999
NO_DEVICE = 100


def diagnose_machine(evidence: NvidiaEvidence) -> Finding | None:
    """Name what keeps the whole machine from working; None where nothing does, or where there is no GPU."""
    predicates = (predicate for condition, predicate in PREDICATES if condition(evidence))
    return next((finding for predicate in predicates if (finding := predicate(evidence))), None)


def driver_dies(evidence: NvidiaEvidence) -> Finding | None:
    """A library of the driver hangs or crashes; libcuda's fault counts only where a GPU is seen."""
    nvml, cuda = evidence.nvml, evidence.cuda
    if nvml.fault in ("timeout", "crash"):
        fault_of, words = nvml.fault, nvml.error
        library, card = "NVML", "" if nvml.at is None else f" when asked about GPU {nvml.at}"
    elif cuda.fault in ("timeout", "crash") and evidence.shows_gpu:
        fault_of, words, library, card = cuda.fault, cuda.error, "libcuda", ""
    else:
        return None
    if fault_of == "crash":
        return driver_fault(evidence, "driver-crashes", f"{library} crashes{card}", words or "")
    why = "a GPU or its kernel module no longer responds, or many GPUs start without persistence mode"
    return fault(evidence, "driver-hangs", f"{library} does not answer{card}", why)


def versions_differ(evidence: NvidiaEvidence) -> Finding | None:
    """The kernel module is of another release than the libraries."""
    if evidence.nvml.init != MISMATCH:
        return None
    module, release = evidence.kernel.module, (evidence.nvml.library or "").partition(".so.")[2]
    kernel, library = f" ({module.version})" if module else "", f" ({release})" if "." in release else ""
    message = f"the NVIDIA kernel module{kernel} and the driver's libraries{library} differ"
    if evidence.container:
        why = "the image contains its own driver libraries, or the host's driver was updated while the container ran"
    else:
        why = "the driver was updated and the machine has not been restarted since"
    return fault(evidence, "driver-library-mismatch", message, why)


def driver_not_permitted(evidence: NvidiaEvidence) -> Finding | None:
    """NVML may not open the driver."""
    if evidence.nvml.init != NO_PERMISSION:
        return None
    why = "; ".join(evidence.refused) or "this user has no permission for the device nodes in /dev"
    return fault(evidence, "device-nodes-unusable", "this user may not open the NVIDIA driver", why)


def windows_driver_missing(evidence: NvidiaEvidence) -> Finding | None:
    """Windows, or the Windows around WSL, has the GPU and no driver that answers."""
    if evidence.facts.wsl:
        message = "WSL has a GPU, but NVIDIA's driver does not respond in it"
        why = "the Windows driver is missing, too old, or not available to this WSL"
        return fault(evidence, "wsl-driver-unreachable", message, why)
    if evidence.facts.host.os == "windows":
        why = "Windows lists the adapter, but NVIDIA's driver does not respond"
        return driver_fault(evidence, "driver-missing", f"{_subject(evidence)} has no working driver", why)
    return None


def nouveau_holds_card(evidence: NvidiaEvidence) -> Finding | None:
    """No module is loaded, and the kernel's own driver has a card."""
    holder = next((card for card in evidence.cards if card.device.driver == "nouveau"), None)
    return held_by_nouveau(evidence, holder) if holder else None


def container_lacks_libraries(evidence: NvidiaEvidence) -> Finding | None:
    """A container has a GPU, and none of the driver's libraries."""
    if not evidence.container or evidence.has_libraries:
        return None
    without = "no driver" if evidence.kernel.module is None else "not the driver's libraries"
    return _lent_nothing(evidence, f"the container has a GPU and {without}")


def nodes_refused(evidence: NvidiaEvidence) -> Finding | None:
    """The module is loaded and the libraries are there: the nodes between them are not to be opened."""
    if not evidence.kernel.module or not evidence.has_libraries or not evidence.refused:
        return None
    message = f"NVIDIA's driver {evidence.kernel.module.version} is loaded but cannot be opened"
    return fault(evidence, "device-nodes-unusable", message, "; ".join(evidence.refused))


def libraries_missing(evidence: NvidiaEvidence) -> Finding | None:
    """The module is loaded, and no library of the driver can be used."""
    if evidence.kernel.module is None:
        return None
    message = f"the NVIDIA kernel module {evidence.kernel.module.version} is loaded, but the driver's libraries are not"
    why = "neither libnvidia-ml.so.1 nor libcuda.so.1 can be used"
    return fault(evidence, "driver-libraries-missing", f"{message} installed", why)


def module_forbidden(evidence: NvidiaEvidence) -> Finding | None:
    """A file forbids the module, as the tools that switch a laptop's card off write one."""
    if not evidence.kernel.blocked_by:
        return None
    why = f"{evidence.kernel.blocked_by} blocks its module"
    return fault(evidence, "gpu-switched-off", f"{_subject(evidence)} is switched off", why)


def blocked_by_secure_boot(evidence: NvidiaEvidence) -> Finding | None:
    """The module is on the disk, and Secure Boot is on."""
    if not evidence.kernel.secure_boot or not evidence.kernel.on_disk:
        return None
    message = "the NVIDIA kernel module is installed but not loaded"
    why = "Secure Boot is on, and the module's key is not enrolled"
    return fault(evidence, "module-blocked-by-secure-boot", message, why)


def installed_in_part(evidence: NvidiaEvidence) -> Finding | None:
    """NVML itself lacks a library, and there is no module on the disk."""
    if evidence.nvml.init != LIBRARY_NOT_FOUND or evidence.kernel.on_disk:
        return None
    message, why = "the NVIDIA driver is only partly installed", "its libraries do not find each other"
    return fault(evidence, "driver-libraries-missing", message, why)


def module_not_loaded(evidence: NvidiaEvidence) -> Finding | None:
    """Libraries, or a module on the disk, show that the driver was installed."""
    kernel = evidence.kernel
    installed = evidence.has_libraries or evidence.nvml.init == DRIVER_NOT_LOADED or kernel.on_disk
    if not installed:
        return None
    message = f"the NVIDIA kernel module is not loaded into kernel {kernel.release or evidence.facts.host.release}"
    why = "it exists but was not loaded" if kernel.on_disk else "it was built for another kernel, or not at all"
    return fault(evidence, "module-not-loaded", message, why)


def driver_missing(evidence: NvidiaEvidence) -> Finding:
    """There is a GPU, and nothing of a driver."""
    why = "neither its kernel module nor its libraries were found"
    return driver_fault(evidence, "driver-missing", f"{_subject(evidence)} has no NVIDIA driver", why)


def nvml_fails(evidence: NvidiaEvidence) -> Finding | None:
    """NVML cannot be initialized, for a reason that no other fact explains."""
    init = evidence.nvml.init
    if not init or init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND):
        return None
    if init == UNKNOWN and evidence.container:
        why = "systemd rewrote the container's device rules while it ran"
        return fault(evidence, "gpu-withdrawn-from-container", "this container has lost its GPUs", why)
    code = "nvml-unknown-error" if init == UNKNOWN else "nvml-error"
    why = "; ".join(evidence.refused) or "the driver is loaded but fails"
    return fault(evidence, code, f"NVML cannot be initialized (error {init})", why)


def libcuda_missing(evidence: NvidiaEvidence) -> Finding | None:
    """NVML lists GPUs, and libcuda cannot be loaded."""
    if evidence.cuda.fault not in ("missing", "unloadable") or not evidence.nvml.gpus:
        return None
    if evidence.container:
        return _lent_nothing(evidence, "the container has NVML but not libcuda")
    message = "NVML sees a GPU, but libcuda cannot be loaded"
    return fault(evidence, "libcuda-missing", message, evidence.cuda.error or "libcuda.so.1 is not installed")


def nothing_listed(evidence: NvidiaEvidence) -> Finding | None:
    """Device nodes or /dev/dxg show a GPU, the driver answers, and lists none."""
    listed = evidence.cards or evidence.nvml.gpus or evidence.cuda.devices or evidence.jetson
    if listed or not evidence.shows_gpu or not (evidence.nvml.works or evidence.cuda_works):
        return None
    why = f"there is /dev/{evidence.nodes[0]}, but no GPU behind it" if evidence.nodes else "there is /dev/dxg"
    return fault(evidence, "no-device-found", "the NVIDIA driver finds no GPU", why)


def cuda_refuses(evidence: NvidiaEvidence) -> Finding | None:
    """CUDA does not start while a GPU is seen, and no fault of the cards explains it."""
    init, gpus = evidence.cuda.init, evidence.nvml.gpus
    if not init or not evidence.shows_gpu:
        return None
    # Each card has a fault of its own, or the driver lists none of those on the bus.
    explained = evidence.nvml.works and (evidence.cards or gpus) and all(gpu.error is not None for gpu in gpus)
    without_gpus = evidence.facts.container.job is not None and evidence.visible in ("", "-1", "NoDevFiles")
    if init == NO_DEVICE and (explained or without_gpus):
        return None
    finding = cuda_refusal(init, _cuda_context(evidence))
    facts = (finding.evidence, str(evidence.fabric) if evidence.fabric else None, evidence_line(evidence))
    return replace(finding, evidence=" · ".join(fact for fact in facts if fact))


def always(_: NvidiaEvidence) -> bool:
    """On every machine."""
    return True


def no_module_is_loaded(evidence: NvidiaEvidence) -> bool:
    """No driver answers, and Linux has not loaded its module."""
    return no_driver_answers(evidence) and evidence.kernel.module is None


def no_driver_answers(evidence: NvidiaEvidence) -> bool:
    """NVML 9 or 12, or no NVML and no libcuda that finds a device, while another source shows a GPU.

    A Jetson's NVML is new and says little: what its chip needs is decided by its L4T release.
    """
    tegra = evidence.jetson is not None and not evidence.cards
    refused = evidence.nvml.init in (DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND) and evidence.nvml.fault is None
    return not tegra and evidence.shows_gpu and (refused or _is_absent(evidence))


# The first that holds names the fault; those with a condition are asked where it is met.
PREDICATES: tuple[tuple[Condition, Predicate], ...] = (
    (always, driver_dies),
    (always, versions_differ),
    (always, driver_not_permitted),
    (no_driver_answers, windows_driver_missing),
    (no_module_is_loaded, nouveau_holds_card),
    (no_driver_answers, container_lacks_libraries),
    (no_driver_answers, nodes_refused),
    (no_driver_answers, libraries_missing),
    (no_module_is_loaded, module_forbidden),
    (no_module_is_loaded, blocked_by_secure_boot),
    (no_module_is_loaded, installed_in_part),
    (no_module_is_loaded, module_not_loaded),
    (no_module_is_loaded, driver_missing),
    (always, nvml_fails),
    (always, libcuda_missing),
    (always, nothing_listed),
    (always, cuda_refuses),
)


def _lent_nothing(evidence: NvidiaEvidence, message: str) -> Finding:
    """A container has a GPU, and not the libraries to use it."""
    lent = evidence.toolkit.capabilities
    why = f"NVIDIA_DRIVER_CAPABILITIES is {lent!r}" if lent else "the container toolkit did not add the driver"
    return fault(evidence, "libraries-not-in-container", message, why)


def _subject(evidence: NvidiaEvidence) -> str:
    """Name the first card in a sentence."""
    return evidence.cards[0].name if evidence.cards else "the GPU of this machine"


def _is_absent(evidence: NvidiaEvidence) -> bool:
    """NVML missing beside a libcuda that works is a healthy compute-only container.

    Where a recording has no answer of either library, a kernel without the module has the last word.
    """
    cuda = evidence.cuda
    if not evidence.nvml.was_asked and cuda == LibcudaFacts():
        return evidence.facts.host.os == "linux" and evidence.kernel.module is None
    without_cuda = cuda.fault in ("missing", "unloadable") or cuda.init == NO_DEVICE
    return evidence.nvml.fault == "missing" and without_cuda


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
    )
