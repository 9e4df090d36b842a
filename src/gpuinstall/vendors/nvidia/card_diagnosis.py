"""What is wrong with single GPUs: the rest of the machine works without them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import finding_for
from gpuinstall.vendors.nvidia.chips import drivers, drivers_of
from gpuinstall.vendors.nvidia.faults import evidence_line, held_by_nouveau
from gpuinstall.vendors.nvidia.gpus import is_same
from gpuinstall.vendors.nvidia.nvml import NO_PERMISSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.finding import Finding
    from gpuinstall.vendors.nvidia.chips import DriverSpan
    from gpuinstall.vendors.nvidia.evidence import BusCard, NvidiaEvidence
    from gpuinstall.vendors.nvidia.gpus import DetectedGpu
    from gpuinstall.vendors.nvidia.nvml import NvmlGpu
    from gpuinstall.versions import ComputeCapability, DriverVersion

LOST_CARD = 15


def card_faults(evidence: NvidiaEvidence, detected: Iterable[DetectedGpu], *, driver_works: bool) -> Iterator[Finding]:
    """Name what is wrong with single GPUs; cards that only the bus shows are judged where the driver works."""
    for gpu in evidence.nvml.gpus:
        yield from (finding for predicate in OF_LISTED_GPUS if (finding := predicate(evidence, gpu)))
    if not driver_works:
        return
    yield from (finding for gpu in evidence.nvml.gpus if (finding := hidden_from_cuda(evidence, gpu)))
    cards = {card.address: card for card in evidence.cards}
    for detection in detected:
        if detection.gpu.found_via == "pci" and detection.address in cards:
            card = cards[detection.address]
            yield next(
                finding
                for predicate in OF_UNLISTED_CARDS
                if (finding := predicate(evidence, card, detection.gpu.index))
            )


def lost(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """NVML lists it, and it has fallen off the bus."""
    if gpu.error != LOST_CARD:
        return None
    why = "it does not answer on the bus: power, slot, heat or firmware (NVML error 15)"
    return _fault(evidence, gpu.index, "gpu-lost", f"GPU {gpu.index} is lost", why)


def not_permitted(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """Its device node is refused."""
    if gpu.error != NO_PERMISSION:
        return None
    why = "its device node does not admit this user"
    return _fault(evidence, gpu.index, "gpu-not-permitted", f"GPU {gpu.index} may not be opened", why)


def unreachable(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """NVML refuses it for another reason."""
    if gpu.error in (None, LOST_CARD, NO_PERMISSION):
        return None
    why = f"the driver lists it and cannot reach it (NVML error {gpu.error})"
    return _fault(evidence, gpu.index, "gpu-unreachable", f"GPU {gpu.index} does not answer", why)


def without_mig_instances(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """MIG is on, and no instance was made."""
    if gpu.error is not None or not gpu.mig or gpu.slices:
        return None
    message, why = f"GPU {gpu.index} is in MIG mode without an instance", "CUDA sees MIG's instances only"
    return _fault(evidence, gpu.index, "mig-without-instances", message, why)


def prohibited(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """Its compute mode admits no program."""
    if gpu.error is not None or not gpu.prohibited:
        return None
    message, why = f"GPU {gpu.index} is closed to every program", "its compute mode is Prohibited"
    return _fault(evidence, gpu.index, "compute-mode-prohibited", message, why)


def memory_damaged(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """A row of its memory could not be replaced."""
    if gpu.error is not None or not gpu.remap_failed:
        return None
    message, why = f"the memory of GPU {gpu.index} has an error that cannot be remapped", "a memory cell is damaged"
    return _fault(evidence, gpu.index, "row-remap-failed", message, why)


OF_LISTED_GPUS = (lost, not_permitted, unreachable, without_mig_instances, prohibited, memory_damaged)


def hidden_from_cuda(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """NVML lists what CUDA does not. With MIG, or in a job, CUDA shows a process less than there is.

    A device that CUDA does not identify may be any of the cards: the preflight decides.
    """
    devices = evidence.cuda.devices
    shown = any(is_same(device, gpu.uuid, gpu.bus_id) for device in devices)
    if gpu.error is not None or shown or not _must_list_all(evidence):
        return None
    message, why = f"NVML lists GPU {gpu.index}, and CUDA does not", f"CUDA counts {len(devices)} devices"
    return _fault(evidence, gpu.index, "gpu-hidden-from-cuda", message, why)


def bound_to_nouveau(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding | None:
    """The kernel's own driver has it."""
    return held_by_nouveau(evidence, card, (index,)) if card.device.driver == "nouveau" else None


def ignored_by_driver(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding | None:
    """The driver is not one for this chip: of another time, or of the other flavour."""
    module, driver = evidence.kernel.module, evidence.driver
    if card.chip is None or driver is None:
        return None
    span = drivers_of(card.chip.capability, evidence.facts.host.os)
    reason = _unfit(span, driver) or _wrong_flavour(card.chip.capability, module.open if module else None)
    if reason is None:
        return None
    (code, why), legacy = reason, span.last is not None
    context = evidence.fix_context.knowing(branch=span.last or drivers().recommended_branch)
    message, facts = f"driver {driver} ignores {card.name}", evidence_line(evidence)
    return finding_for(code, message, context, why=why, evidence=facts, gpus=(index,), legacy=legacy)


def fallen_off_the_bus(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding:
    """Nothing else explains why the driver does not list it."""
    message = f"{card.name} is on the bus, and the driver does not list it"
    return _fault(evidence, index, "gpu-lost", message, "it has fallen off the bus or failed to start")


OF_UNLISTED_CARDS = (bound_to_nouveau, ignored_by_driver, fallen_off_the_bus)


def _fault(evidence: NvidiaEvidence, gpu: int, code: str, message: str, why: str) -> Finding:
    context = evidence.fix_context.knowing(gpu=gpu)
    return finding_for(code, message, context, why=why, evidence=evidence_line(evidence), gpus=(gpu,))


def _must_list_all(evidence: NvidiaEvidence) -> bool:
    """Say whether CUDA should list every GPU of NVML, lists fewer, and says which."""
    devices, gpus = evidence.cuda.devices, evidence.nvml.gpus
    narrowed = evidence.facts.container.job is not None and evidence.visible is not None
    sliced = any(gpu.mig for gpu in gpus) or any((device.uuid or "").startswith("MIG-") for device in devices)
    identified = all(device.uuid or device.bus_id for device in devices)
    return evidence.cuda_works and identified and not narrowed and not sliced and len(devices) < len(gpus)


def _unfit(span: DriverSpan, driver: DriverVersion) -> tuple[str, str] | None:
    if span.last is not None and driver.branch > span.last:
        return "driver-dropped-gpu", f"branch {span.last} is the last that drives it"
    if span.first is not None and driver.parts < span.first.parts:
        first = f"{span.first} is the first driver that knows it"
        return "driver-older-than-gpu", f"the first driver for it is newer than {span.after}" if span.after else first
    return None


def _wrong_flavour(capability: ComputeCapability, is_open: bool | None) -> tuple[str, str] | None:
    if is_open and capability < drivers().kernel_modules.open_from:
        return "open-module-on-old-gpu", "the open kernel module drives Turing and newer only"
    if is_open is False and capability >= drivers().kernel_modules.open_only_from:
        return "closed-module-on-new-gpu", "from Blackwell on only the open kernel module drives a card"
    return None
