"""What is wrong with single GPUs: the rest of the machine works without them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.probe.chips import BLACKWELL, TURING, drivers_of
from gpuinstall.probe.diagnosis import NO_PERMISSION
from gpuinstall.probe.evidence import NEWEST_BRANCH
from gpuinstall.probe.fault import held_by_nouveau, seen
from gpuinstall.probe.gpus import is_same
from gpuinstall.probe.problems import problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.machine import Problem
    from gpuinstall.probe.evidence import Card, Evidence
    from gpuinstall.probe.gpus import Sighting
    from gpuinstall.probe.nvml import NvmlGpu
    from gpuinstall.versions import ComputeCapability, DriverVersion

LOST = 15


def card_faults(evidence: Evidence, sightings: Iterable[Sighting], *, driver_works: bool) -> Iterator[Problem]:
    """Name what is wrong with single GPUs; cards that only the bus shows are judged where the driver works."""
    for gpu in evidence.nvml.gpus:
        yield from _refused(evidence, gpu) if gpu.error is not None else _spoiled(evidence, gpu)
    if driver_works:
        yield from _hidden(evidence)
        cards = {card.address: card for card in evidence.cards}
        unseen = (sighting for sighting in sightings if sighting.gpu.found_via == "pci" and sighting.address in cards)
        yield from (_unlisted(evidence, cards[each.address or ""], each.gpu.index) for each in unseen)


def _refused(evidence: Evidence, gpu: NvmlGpu) -> Iterator[Problem]:
    number, facts = gpu.index, seen(evidence)
    if gpu.error == LOST:
        why = "it does not answer on the bus: power, slot, heat or firmware"
        yield problem(
            "gpu-lost",
            f"GPU {number} is lost",
            evidence.place,
            why=why,
            seen=f"NVML error 15 · {facts}",
            gpus=(number,),
        )
    elif gpu.error == NO_PERMISSION:
        why = "its device node does not admit this user"
        yield problem(
            "gpu-not-permitted", f"GPU {number} may not be opened", evidence.place, why=why, seen=facts, gpus=(number,)
        )
    else:
        message, why = (
            f"GPU {number} does not answer (NVML error {gpu.error})",
            "the driver lists it and cannot reach it",
        )
        yield problem("gpu-unreachable", message, evidence.place, why=why, seen=facts, gpus=(number,))


def _spoiled(evidence: Evidence, gpu: NvmlGpu) -> Iterator[Problem]:
    number, place = gpu.index, evidence.place.knowing(place=gpu.index)
    if gpu.mig and not gpu.slices:
        message, why = (
            f"GPU {number} is in MIG mode without an instance",
            "CUDA sees only MIG's slices, and there are none",
        )
        yield problem("mig-without-instances", message, place, why=why, gpus=(number,))
    if gpu.prohibited:
        message, why = f"GPU {number} is closed to every program", "its compute mode is Prohibited"
        yield problem("compute-mode-prohibited", message, place, why=why, gpus=(number,))
    if gpu.remap_failed:
        message, why = f"the memory of GPU {number} has an error that cannot be remapped", "a memory cell is damaged"
        yield problem("row-remap-failed", message, place, why=why, gpus=(number,))


def _hidden(evidence: Evidence) -> Iterator[Problem]:
    """NVML lists what CUDA does not. With MIG, or in a job, CUDA shows a process less than there is."""
    devices, nvml = evidence.cuda.devices, evidence.nvml.gpus
    narrowed = evidence.surroundings.job is not None and evidence.visible is not None
    sliced = any(gpu.mig for gpu in nvml) or any((device.uuid or "").startswith("MIG-") for device in devices)
    if not evidence.cuda_works or narrowed or sliced or len(devices) >= len(nvml):
        return
    for gpu in nvml:
        if gpu.error is None and not any(is_same(device, gpu.uuid, gpu.bus_id) for device in devices):
            message, why = (
                f"NVML lists GPU {gpu.index}, and CUDA does not",
                f"cuDeviceGetCount is {len(devices)}, NVML's {len(nvml)}",
            )
            yield problem(
                "gpu-hidden-from-cuda", message, evidence.place, why=why, seen=seen(evidence), gpus=(gpu.index,)
            )


def _unlisted(evidence: Evidence, card: Card, index: int) -> Problem:
    module = evidence.kernel.module
    capability = card.chip.capability if card.chip else None
    driver = (module and module.version) or evidence.nvml.driver
    if card.device.driver == "nouveau":
        return held_by_nouveau(evidence, card, (index,))
    if capability is not None and driver is not None:
        ignored = _ignored(evidence, card, index, capability, driver)
        if ignored is not None:
            return ignored
    message, why = (
        f"{card.name} is on the bus, and the driver does not list it",
        "it has fallen off the bus or failed to start",
    )
    return problem("gpu-lost", message, evidence.place, why=why, seen=seen(evidence), gpus=(index,))


def _ignored(
    evidence: Evidence, card: Card, index: int, capability: ComputeCapability, driver: DriverVersion
) -> Problem | None:
    span, module = drivers_of(capability, evidence.host.os), evidence.kernel.module
    branch, flavour = str(span.last or NEWEST_BRANCH), "" if capability < TURING else "-open"
    if span.last is not None and driver.branch > span.last and driver.branch >= 390:
        code, why = "driver-dropped-gpu", f"branch {span.last} is the last that drives it"
    elif span.first is not None and driver.parts < span.first.parts:
        code, why = "driver-older-than-gpu", f"{span.first} is the first driver that knows it"
    elif module is not None and module.open and capability < TURING:
        code, why = "open-module-on-old-gpu", "the open kernel module drives Turing and newer only"
    elif module is not None and module.open is False and capability >= BLACKWELL:
        code, why = "closed-module-on-new-gpu", "from Blackwell on only the open kernel module drives a card"
    else:
        return None
    return problem(
        code,
        f"driver {driver} ignores {card.name}",
        evidence.place.knowing(branch=branch, flavour=flavour),
        why=why,
        seen=seen(evidence),
        gpus=(index,),
        legacy=span.last is not None,
    )
