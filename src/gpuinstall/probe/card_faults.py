"""What is wrong with single GPUs: the rest of the machine works without them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import problem
from gpuinstall.probe.chips import BLACKWELL, TURING, drivers_of
from gpuinstall.probe.evidence import NEWEST_BRANCH
from gpuinstall.probe.fault import held_by_nouveau, seen
from gpuinstall.probe.gpus import is_same
from gpuinstall.probe.nvml import NO_PERMISSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.machine import Problem
    from gpuinstall.probe.chips import DriverSpan
    from gpuinstall.probe.evidence import Card, Evidence
    from gpuinstall.probe.gpus import DetectedGpu
    from gpuinstall.probe.nvml import NvmlGpu
    from gpuinstall.versions import ComputeCapability, DriverVersion

LOST = 15


def card_faults(evidence: Evidence, sightings: Iterable[DetectedGpu], *, driver_works: bool) -> Iterator[Problem]:
    """Name what is wrong with single GPUs; cards that only the bus shows are judged where the driver works."""
    for gpu in evidence.nvml.gpus:
        yield from _spoiled(evidence, gpu) if gpu.error is None else (_refused(evidence, gpu.index, gpu.error),)
    if driver_works:
        yield from _hidden(evidence)
        cards = {card.address: card for card in evidence.cards}
        unseen = (sighting for sighting in sightings if sighting.gpu.found_via == "pci" and sighting.address in cards)
        yield from (_unlisted(evidence, cards[each.address or ""], each.gpu.index) for each in unseen)


def _fault(evidence: Evidence, gpu: int, code: str, message: str, why: str) -> Problem:
    place = evidence.place.knowing(gpu=gpu)
    return problem(code, message, place, why=why, seen=seen(evidence), gpus=(gpu,))


def _refused(evidence: Evidence, gpu: int, error: int) -> Problem:
    if error == LOST:
        why = "it does not answer on the bus: power, slot, heat or firmware (NVML error 15)"
        return _fault(evidence, gpu, "gpu-lost", f"GPU {gpu} is lost", why)
    if error == NO_PERMISSION:
        why = "its device node does not admit this user"
        return _fault(evidence, gpu, "gpu-not-permitted", f"GPU {gpu} may not be opened", why)
    why = f"the driver lists it and cannot reach it (NVML error {error})"
    return _fault(evidence, gpu, "gpu-unreachable", f"GPU {gpu} does not answer", why)


def _spoiled(evidence: Evidence, gpu: NvmlGpu) -> Iterator[Problem]:
    number = gpu.index
    if gpu.mig and not gpu.slices:
        message, why = f"GPU {number} is in MIG mode without an instance", "CUDA sees MIG's instances only"
        yield _fault(evidence, number, "mig-without-instances", message, why)
    if gpu.prohibited:
        message, why = f"GPU {number} is closed to every program", "its compute mode is Prohibited"
        yield _fault(evidence, number, "compute-mode-prohibited", message, why)
    if gpu.remap_failed:
        message, why = f"the memory of GPU {number} has an error that cannot be remapped", "a memory cell is damaged"
        yield _fault(evidence, number, "row-remap-failed", message, why)


def _hidden(evidence: Evidence) -> Iterator[Problem]:
    """NVML lists what CUDA does not. With MIG, or in a job, CUDA shows a process less than there is.

    A device that CUDA does not identify may be any of the cards: the preflight decides.
    """
    devices, gpus = evidence.cuda.devices, evidence.nvml.gpus
    narrowed = evidence.surroundings.job is not None and evidence.visible is not None
    sliced = any(gpu.mig for gpu in gpus) or any((device.uuid or "").startswith("MIG-") for device in devices)
    identified = all(device.uuid or device.bus_id for device in devices)
    if not evidence.cuda_works or narrowed or sliced or len(devices) >= len(gpus) or not identified:
        return
    for gpu in gpus:
        if gpu.error is None and not any(is_same(device, gpu.uuid, gpu.bus_id) for device in devices):
            message, why = f"NVML lists GPU {gpu.index}, and CUDA does not", f"CUDA counts {len(devices)} devices"
            yield _fault(evidence, gpu.index, "gpu-hidden-from-cuda", message, why)


def _unlisted(evidence: Evidence, card: Card, gpu: int) -> Problem:
    if card.device.driver == "nouveau":
        return held_by_nouveau(evidence, card, (gpu,))
    ignored = _ignored(evidence, card, gpu)
    if ignored is not None:
        return ignored
    message = f"{card.name} is on the bus, and the driver does not list it"
    return _fault(evidence, gpu, "gpu-lost", message, "it has fallen off the bus or failed to start")


def _ignored(evidence: Evidence, card: Card, gpu: int) -> Problem | None:
    """The driver is not one for this chip: of another time, or of the other flavour."""
    module = evidence.kernel.module
    driver = module.version if module else evidence.nvml.driver
    if card.chip is None or driver is None:
        return None
    span = drivers_of(card.chip.capability, evidence.host.os)
    found = _unfit(span, driver) or _wrong_flavour(card.chip.capability, module.open if module else None)
    if found is None:
        return None
    place = evidence.place.knowing(branch=span.last or NEWEST_BRANCH)
    message, facts, legacy = f"driver {driver} ignores {card.name}", seen(evidence), span.last is not None
    return problem(found[0], message, place, why=found[1], seen=facts, gpus=(gpu,), legacy=legacy)


def _unfit(span: DriverSpan, driver: DriverVersion) -> tuple[str, str] | None:
    if span.last is not None and driver.branch > span.last:
        return "driver-dropped-gpu", f"branch {span.last} is the last that drives it"
    if span.first is not None and driver.parts < span.first.parts:
        return "driver-older-than-gpu", f"{span.first} is the first driver that knows it"
    return None


def _wrong_flavour(capability: ComputeCapability, is_open: bool | None) -> tuple[str, str] | None:
    if is_open and capability < TURING:
        return "open-module-on-old-gpu", "the open kernel module drives Turing and newer only"
    if is_open is False and capability >= BLACKWELL:
        return "closed-module-on-new-gpu", "from Blackwell on only the open kernel module drives a card"
    return None
