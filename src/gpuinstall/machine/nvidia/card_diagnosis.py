"""What is wrong with single GPUs: the rest of the machine works without them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuinstall.base.finding import Finding
from gpuinstall.base.versions import ComputeCapability, DriverVersion
from gpuinstall.catalog.failures.problems import FixContext, finding_for, fix_of
from gpuinstall.machine.nvidia.evidence import BusCard, NvidiaEvidence, drivers
from gpuinstall.machine.nvidia.gpus import DetectedGpu, is_same
from gpuinstall.machine.nvidia.libraries import NO_PERMISSION, LibcudaFacts, NvmlFacts, NvmlGpu

LOST_CARD = 15
"""NVML's number."""

_KERNEL_FILES = {"proc": "/proc/driver/nvidia/version", "sysfs": "/sys/module/nvidia/version"}


def fault(
    evidence: NvidiaEvidence,
    code: str,
    *,
    message: str,
    why: str,
    gpus: tuple[int, ...] = (),
    context: FixContext | None = None,
    legacy: bool = False,
) -> Finding:
    """Return a fault of these GPUs, or of the whole machine."""
    return finding_for(
        code,
        message,
        context or evidence.fix_context,
        why=why,
        evidence=evidence_line(evidence),
        gpus=gpus,
        legacy=legacy,
    )


def driver_fault(evidence: NvidiaEvidence, code: str, *, message: str, why: str) -> Finding:
    """Return a fault of the whole machine that another driver repairs."""
    context, legacy = _with_driver(evidence)
    return fault(
        evidence,
        code,
        message=message,
        why=why,
        context=context,
        legacy=legacy,
    )


def held_by_nouveau(evidence: NvidiaEvidence, card: BusCard, gpus: tuple[int, ...] = ()) -> Finding:
    """Return that the kernel's own driver has a card: CUDA cannot use it."""
    context, legacy = _with_driver(evidence)
    install = fix_of("driver-missing", context, legacy=legacy) or ""
    return fault(
        evidence,
        "nouveau-holds-gpu",
        message=f"{card.name} is held by nouveau",
        why="the kernel's own driver claimed the card first",
        gpus=gpus,
        context=evidence.fix_context.knowing(install=install.replace(" && sudo reboot", "")),
    )


def _with_driver(evidence: NvidiaEvidence) -> tuple[FixContext, bool]:
    """Return where a fix applies, with the driver that all cards on the bus need; also whether it is no longer made.

    It is the last branch of the oldest ones if all are old.
    """
    chips = [card.chip.capability for card in evidence.cards if card.chip]
    branches = [branch for branch in map(_last_branch, chips) if branch]
    legacy = bool(branches) and all(chip < drivers().kernel_modules.open_from for chip in chips)
    branch = min(branches) if legacy else drivers().recommended_branch
    return evidence.fix_context.knowing(branch=branch), legacy


def _last_branch(chip: ComputeCapability) -> int | None:
    generation = drivers().generation(chip)
    return generation.last_branch if generation else None


def evidence_line(evidence: NvidiaEvidence) -> str:
    """Return the facts that a diagnosis rests on, in one line."""
    nvml = evidence.nvml
    cuda = evidence.cuda
    facts = (
        *_cards_on_the_bus(evidence.cards),
        _kernel_module(evidence),
        _library(
            nvml,
            name=nvml.library or "nvml",
            count=len(nvml.gpus),
            refusal=f"NVML error {nvml.init}",
        ),
        _library(
            cuda,
            name=cuda.path or "libcuda.so.1",
            count=len(cuda.devices),
            refusal=f"cuInit returned {cuda.init}",
        ),
    )
    return " · ".join(filter(None, facts))


def _cards_on_the_bus(cards: tuple[BusCard, ...]) -> Iterator[str]:
    for card in cards[:2]:
        holder = f" (held by {card.holder})" if card.holder else ""
        yield f"{card.name}{holder} on the bus"
    if len(cards) > 2:
        yield f"{len(cards) - 2} more"


def _kernel_module(evidence: NvidiaEvidence) -> str | None:
    module = evidence.kernel.module
    if module:
        return f"{_KERNEL_FILES[module.found_via]} {module.version}"
    is_linux = evidence.facts.host.os == "linux" and not evidence.facts.wsl
    return "no NVIDIA kernel module" if is_linux else None


def _library(
    library: NvmlFacts | LibcudaFacts,
    *,
    name: str,
    count: int,
    refusal: str,
) -> str | None:
    if library.fault is not None:
        return f"{name}: {library.error or 'cannot be loaded'}"
    if library.init is None:
        return None
    return f"{name}: {library.error or refusal}" if library.init else f"{name}: {count} listed"


def card_faults(
    evidence: NvidiaEvidence,
    detected: Iterable[DetectedGpu],
    *,
    driver_works: bool,
) -> Iterator[Finding]:
    """Yield what is wrong with single GPUs; cards that only the bus shows are judged if the driver works."""
    gpus = evidence.nvml.gpus
    for gpu in gpus:
        yield from _faults_by_nvml(evidence, gpu)
    if not driver_works:
        return
    for gpu in gpus:
        yield from _hidden_from_cuda(evidence, gpu)
    cards = {card.address: card for card in evidence.cards}
    for card, address in detected:
        if card.found_via == "pci" and address in cards:
            yield _fault_of_unlisted(evidence, cards[address], card.index)


def _faults_by_nvml(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Iterator[Finding]:
    """Yield that NVML does not reach a GPU, else why no program can use it as it is."""
    if gpu.error is not None:
        yield _unreached(evidence, gpu)
        return
    if gpu.is_withheld:
        yield _fault(
            evidence,
            gpu.index,
            "gpu-not-permitted",
            message=f"GPU {gpu.index} has MIG instances, none of which may be used",
            why="/dev/nvidia-caps has none for this process",
        )
    elif gpu.mig and not gpu.slices:
        yield _fault(
            evidence,
            gpu.index,
            "mig-without-instances",
            message=f"GPU {gpu.index} is in MIG mode without an instance",
            why="CUDA uses MIG instances only",
        )
    if gpu.prohibited:
        yield _fault(
            evidence,
            gpu.index,
            "compute-mode-prohibited",
            message=f"GPU {gpu.index} is closed to all programs",
            why="its compute mode is Prohibited",
        )
    if gpu.remap_failed:
        yield _fault(
            evidence,
            gpu.index,
            "row-remap-failed",
            message=f"the memory of GPU {gpu.index} has an error that cannot be remapped",
            why="a memory cell is damaged",
        )


def _unreached(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Finding:
    if gpu.error == LOST_CARD:
        return _fault(
            evidence,
            gpu.index,
            "gpu-lost",
            message=f"GPU {gpu.index} is lost",
            why="it does not respond on the bus: power, slot, heat or firmware (NVML error 15)",
        )
    if gpu.error == NO_PERMISSION:
        return _fault(
            evidence,
            gpu.index,
            "gpu-not-permitted",
            message=f"GPU {gpu.index} may not be opened",
            why="this user has no permission for its device node",
        )
    return _fault(
        evidence,
        gpu.index,
        "gpu-unreachable",
        message=f"GPU {gpu.index} does not answer",
        why=f"the driver lists it but cannot reach it (NVML error {gpu.error})",
    )


def _hidden_from_cuda(evidence: NvidiaEvidence, gpu: NvmlGpu) -> Iterator[Finding]:
    """Yield that NVML lists what CUDA does not. With MIG, or in a job, CUDA shows a process less than there is.

    A device that CUDA does not identify may be any of the cards: the preflight decides.
    """
    devices = evidence.cuda.devices
    is_shown = any(is_same(device, gpu.uuid, gpu.bus_id) for device in devices)
    if gpu.error is None and not is_shown and _must_list_all(evidence):
        yield _fault(
            evidence,
            gpu.index,
            "gpu-hidden-from-cuda",
            message=f"NVML lists GPU {gpu.index}, and CUDA does not",
            why=f"CUDA counts {len(devices)} devices",
        )


def _must_list_all(evidence: NvidiaEvidence) -> bool:
    """Whether CUDA should list every GPU of NVML, lists fewer, and tells which."""
    devices = evidence.cuda.devices
    gpus = evidence.nvml.gpus
    if not evidence.cuda_works or len(devices) >= len(gpus):
        return False
    is_narrowed = evidence.facts.container.job is not None and evidence.visible is not None
    has_slices = any(gpu.mig for gpu in gpus) or any(
        (device.uuid or "").startswith("MIG-") for device in devices
    )
    are_identified = all(device.uuid or device.bus_id for device in devices)
    return are_identified and not is_narrowed and not has_slices


def _fault(
    evidence: NvidiaEvidence,
    index: int,
    code: str,
    *,
    message: str,
    why: str,
) -> Finding:
    """Return a fault of one GPU, whose fix names it."""
    return fault(
        evidence,
        code,
        message=message,
        why=why,
        gpus=(index,),
        context=evidence.fix_context.knowing(gpu=index),
    )


def _fault_of_unlisted(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding:
    """Return why the driver does not list a card of the bus: nouveau has it, it is not for this chip, or it failed."""
    if card.device.driver == "nouveau":
        return held_by_nouveau(evidence, card, (index,))
    ignored = _ignored_by_driver(evidence, card, index)
    if ignored:
        return ignored
    return _fault(
        evidence,
        index,
        "gpu-lost",
        message=f"{card.name} is on the bus, but the driver does not list it",
        why="it has fallen off the bus or failed to start",
    )


def _ignored_by_driver(evidence: NvidiaEvidence, card: BusCard, index: int) -> Finding | None:
    """Return that the driver is not one for this chip: of another time, or of the other flavour."""
    driver = evidence.driver
    if card.chip is None or driver is None:
        return None
    chip = card.chip.capability
    module = evidence.kernel.module
    reason = _wrong_release(chip, driver, evidence.facts.host.os) or _wrong_flavour(
        chip, module.open if module else None
    )
    if reason is None:
        return None
    code, why = reason
    last = _last_branch(chip)
    return fault(
        evidence,
        code,
        message=f"driver {driver} ignores {card.name}",
        why=why,
        gpus=(index,),
        context=evidence.fix_context.knowing(branch=last or drivers().recommended_branch),
        legacy=last is not None,
    )


def _wrong_release(
    chip: ComputeCapability,
    driver: DriverVersion,
    system: str,
) -> tuple[str, str] | None:
    last = _last_branch(chip)
    if last is not None and driver.branch > last:
        return "driver-dropped-gpu", f"branch {last} is the last that supports it"
    floor = drivers().first_drivers.get(chip)
    if floor is None:
        return None
    first = floor.windows if system == "windows" else floor.linux
    if driver.parts >= first.parts:
        return None
    if floor.after:
        return "driver-older-than-gpu", f"the first driver for it is newer than {floor.after}"
    return "driver-older-than-gpu", f"{first} is the first driver that supports it"


def _wrong_flavour(chip: ComputeCapability, is_open: bool | None) -> tuple[str, str] | None:
    modules = drivers().kernel_modules
    if is_open and chip < modules.open_from:
        return "open-module-on-old-gpu", "the open kernel module supports Turing and newer only"
    if is_open is False and chip >= modules.open_only_from:
        return "closed-module-on-new-gpu", "Blackwell and newer require the open kernel module"
    return None
