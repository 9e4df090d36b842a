"""What is wrong with single GPUs: the rest of the machine works without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinstall.failures.problems import FixContext, finding_for, fix_of
from gpuinstall.finding import Finding
from gpuinstall.vendors.nvidia.evidence import (
    BusCard,
    DriverSpan,
    NvidiaEvidence,
    drivers,
    drivers_of,
)
from gpuinstall.vendors.nvidia.gpus import DetectedGpu, is_same
from gpuinstall.vendors.nvidia.libraries import NO_PERMISSION, NvmlGpu
from gpuinstall.versions import ComputeCapability, DriverVersion

_KERNEL_FILES = {"proc": "/proc/driver/nvidia/version", "sysfs": "/sys/module/nvidia/version"}


def with_driver(evidence: NvidiaEvidence) -> tuple[FixContext, bool]:
    """Let fixes name the driver that all cards on the bus need; say also whether that is one no longer made.

    It is the last branch of the oldest ones where all are old.
    """
    capabilities = [card.chip.capability for card in evidence.cards if card.chip]
    lasts = [
        last for chip in capabilities if (last := drivers_of(chip, evidence.facts.host.os).last)
    ]
    legacy = bool(lasts) and all(
        capability < drivers().kernel_modules.open_from for capability in capabilities
    )
    return evidence.fix_context.knowing(
        branch=min(lasts) if legacy else drivers().recommended_branch
    ), legacy


def fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault of the whole machine."""
    return finding_for(
        code, message, evidence.fix_context, why=why, evidence=evidence_line(evidence)
    )


def driver_fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault that another driver repairs."""
    context, legacy = with_driver(evidence)
    return finding_for(
        code, message, context, why=why, evidence=evidence_line(evidence), legacy=legacy
    )


def held_by_nouveau(evidence: NvidiaEvidence, card: BusCard, gpus: tuple[int, ...] = ()) -> Finding:
    """The kernel's own driver holds a card: CUDA cannot have it."""
    wanted, legacy = with_driver(evidence)
    install = fix_of("driver-missing", wanted, legacy=legacy) or ""
    context = evidence.fix_context.knowing(install=install.replace(" && sudo reboot", ""))
    message, why = (
        f"{card.name} is held by nouveau",
        "the kernel's own driver claimed the card first",
    )
    return finding_for(
        "nouveau-holds-gpu", message, context, why=why, evidence=evidence_line(evidence), gpus=gpus
    )


def evidence_line(evidence: NvidiaEvidence) -> str:
    """The facts that a diagnosis rests on, in one line."""
    module, nvml, cuda = evidence.kernel.module, evidence.nvml, evidence.cuda
    no_module = not module and evidence.facts.host.os == "linux" and not evidence.facts.wsl
    facts = [
        f"{card.name}{f' (held by {card.holder})' if card.holder else ''} on the bus"
        for card in evidence.cards
    ]
    facts[2:] = [f"{len(facts) - 2} more"] if len(facts) > 2 else []
    facts += [f"{_KERNEL_FILES[module.found_via]} {module.version}"] if module else []
    facts += ["no NVIDIA kernel module"] if no_module else []
    libraries = (
        (nvml, nvml.library or nvml.by, len(nvml.gpus), f"NVML error {nvml.init}"),
        (cuda, cuda.path or "libcuda.so.1", len(cuda.devices), f"cuInit returned {cuda.init}"),
    )
    for library, name, listed, refusal in libraries:
        if library.fault is not None:
            facts.append(f"{name}: {library.error or 'cannot be loaded'}")
        elif library.init is not None:
            facts.append(
                f"{name}: {library.error or refusal if library.init else f'{listed} listed'}"
            )
    return " · ".join(facts)


LOST_CARD = 15


def card_faults(
    evidence: NvidiaEvidence, detected: Iterable[DetectedGpu], *, driver_works: bool
) -> Iterator[Finding]:
    """Name what is wrong with single GPUs; cards that only the bus shows are judged where the driver works."""
    for listed in evidence.nvml.gpus:
        yield from faults_of_listed(evidence, listed)
    if not driver_works:
        return
    yield from filter(None, (hidden_from_cuda(evidence, listed) for listed in evidence.nvml.gpus))
    cards = {card.address: card for card in evidence.cards}
    for gpu, address in detected:
        if gpu.found_via == "pci" and address in cards:
            yield fault_of_unlisted(evidence, cards[address], gpu.index)


def faults_of_listed(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Iterator[Finding]:
    """Say that NVML does not reach a GPU, or that no program can use it as it is."""
    number = f"GPU {gpu.index}"
    if gpu.error == LOST_CARD:
        why = "it does not respond on the bus: power, slot, heat or firmware (NVML error 15)"
        yield _fault(evidence, gpu.index, "gpu-lost", f"{number} is lost", why)
    elif gpu.error == NO_PERMISSION:
        why = "this user has no permission for its device node"
        yield _fault(evidence, gpu.index, "gpu-not-permitted", f"{number} may not be opened", why)
    elif gpu.error is not None:
        why = f"the driver lists it but cannot reach it (NVML error {gpu.error})"
        yield _fault(evidence, gpu.index, "gpu-unreachable", f"{number} does not answer", why)
    else:
        if gpu.is_withheld:
            message, why = (
                f"{number} has MIG instances, none of which may be used",
                "/dev/nvidia-caps has none for this process",
            )
            yield _fault(evidence, gpu.index, "gpu-not-permitted", message, why)
        elif gpu.mig and not gpu.slices:
            message, why = (
                f"{number} is in MIG mode without an instance",
                "CUDA uses MIG instances only",
            )
            yield _fault(evidence, gpu.index, "mig-without-instances", message, why)
        if gpu.prohibited:
            message, why = f"{number} is closed to all programs", "its compute mode is Prohibited"
            yield _fault(evidence, gpu.index, "compute-mode-prohibited", message, why)
        if gpu.remap_failed:
            message, why = (
                f"the memory of {number} has an error that cannot be remapped",
                "a memory cell is damaged",
            )
            yield _fault(evidence, gpu.index, "row-remap-failed", message, why)


def hidden_from_cuda(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding | None:
    """NVML lists what CUDA does not. With MIG, or in a job, CUDA shows a process less than there is.

    A device that CUDA does not identify may be any of the cards: the preflight decides.
    """
    devices = evidence.cuda.devices
    shown = any(is_same(device, gpu.uuid, gpu.bus_id) for device in devices)
    if gpu.error is not None or shown or not _must_list_all(evidence):
        return None
    message, why = (
        f"NVML lists GPU {gpu.index}, and CUDA does not",
        f"CUDA counts {len(devices)} devices",
    )
    return _fault(evidence, gpu.index, "gpu-hidden-from-cuda", message, why)


def fault_of_unlisted(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding:
    """Say why the driver does not list a card of the bus: nouveau has it, it is not for this chip, or it failed."""
    if card.device.driver == "nouveau":
        return held_by_nouveau(evidence, card, (index,))
    if ignored := ignored_by_driver(evidence, card, index):
        return ignored
    message = f"{card.name} is on the bus, but the driver does not list it"
    return _fault(
        evidence, index, "gpu-lost", message, "it has fallen off the bus or failed to start"
    )


def ignored_by_driver(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding | None:
    """The driver is not one for this chip: of another time, or of the other flavour."""
    module, driver = evidence.kernel.module, evidence.driver
    if card.chip is None or driver is None:
        return None
    span = drivers_of(card.chip.capability, evidence.facts.host.os)
    reason = _unfit(span, driver) or _wrong_flavour(
        card.chip.capability, module.open if module else None
    )
    if reason is None:
        return None
    (code, why), legacy = reason, span.last is not None
    context = evidence.fix_context.knowing(branch=span.last or drivers().recommended_branch)
    message, facts = f"driver {driver} ignores {card.name}", evidence_line(evidence)
    return finding_for(
        code, message, context, why=why, evidence=facts, gpus=(index,), legacy=legacy
    )


def _fault(evidence: NvidiaEvidence, gpu: int, code: str, message: str, why: str) -> Finding:
    context = evidence.fix_context.knowing(gpu=gpu)
    return finding_for(
        code, message, context, why=why, evidence=evidence_line(evidence), gpus=(gpu,)
    )


def _must_list_all(evidence: NvidiaEvidence) -> bool:
    """Say whether CUDA should list every GPU of NVML, lists fewer, and says which."""
    devices, gpus = evidence.cuda.devices, evidence.nvml.gpus
    narrowed = evidence.facts.container.job is not None and evidence.visible is not None
    sliced = any(gpu.mig for gpu in gpus) or any(
        (device.uuid or "").startswith("MIG-") for device in devices
    )
    identified = all(device.uuid or device.bus_id for device in devices)
    return (
        evidence.cuda_works
        and identified
        and not narrowed
        and not sliced
        and len(devices) < len(gpus)
    )


def _unfit(span: DriverSpan, driver: DriverVersion) -> tuple[str, str] | None:
    if span.last is not None and driver.branch > span.last:
        return "driver-dropped-gpu", f"branch {span.last} is the last that supports it"
    if span.first is not None and driver.parts < span.first.parts:
        first = f"{span.first} is the first driver that supports it"
        return (
            "driver-older-than-gpu",
            f"the first driver for it is newer than {span.after}" if span.after else first,
        )
    return None


def _wrong_flavour(capability: ComputeCapability, is_open: bool | None) -> tuple[str, str] | None:
    if is_open and capability < drivers().kernel_modules.open_from:
        return "open-module-on-old-gpu", "the open kernel module supports Turing and newer only"
    if is_open is False and capability >= drivers().kernel_modules.open_only_from:
        return "closed-module-on-new-gpu", "Blackwell and newer require the open kernel module"
    return None
