"""A fault as a problem: with the facts that it rests on, and the driver that these cards need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.failures.problems import FixContext, finding_for, fix_of
from gpuinstall.vendors.nvidia.chips import drivers, drivers_of

if TYPE_CHECKING:
    from gpuinstall.finding import Finding
    from gpuinstall.vendors.nvidia.evidence import BusCard, NvidiaEvidence

_KERNEL_FILES = {"proc": "/proc/driver/nvidia/version", "sysfs": "/sys/module/nvidia/version"}


def with_driver(evidence: NvidiaEvidence) -> tuple[FixContext, bool]:
    """Let fixes name the driver that all cards on the bus need; say also whether that is one no longer made.

    It is the last branch of the oldest ones where all are old.
    """
    capabilities = [card.chip.capability for card in evidence.cards if card.chip]
    lasts = [last for chip in capabilities if (last := drivers_of(chip, evidence.facts.host.os).last)]
    legacy = bool(lasts) and all(capability < drivers().kernel_modules.open_from for capability in capabilities)
    return evidence.fix_context.knowing(branch=min(lasts) if legacy else drivers().recommended_branch), legacy


def fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault of the whole machine."""
    return finding_for(code, message, evidence.fix_context, why=why, evidence=evidence_line(evidence))


def driver_fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault that another driver repairs."""
    context, legacy = with_driver(evidence)
    return finding_for(code, message, context, why=why, evidence=evidence_line(evidence), legacy=legacy)


def held_by_nouveau(evidence: NvidiaEvidence, card: BusCard, gpus: tuple[int, ...] = ()) -> Finding:
    """The kernel's own driver holds a card: CUDA cannot have it."""
    wanted, legacy = with_driver(evidence)
    install = fix_of("driver-missing", wanted, legacy=legacy) or ""
    context = evidence.fix_context.knowing(install=install.replace(" && sudo reboot", ""))
    message, why = f"{card.name} is held by nouveau", "the kernel's own driver bound the card before NVIDIA's could"
    return finding_for("nouveau-holds-gpu", message, context, why=why, evidence=evidence_line(evidence), gpus=gpus)


def evidence_line(evidence: NvidiaEvidence) -> str:
    """The facts that a diagnosis rests on, in one line."""
    module, nvml, cuda = evidence.kernel.module, evidence.nvml, evidence.cuda
    no_module = not module and evidence.facts.host.os == "linux" and not evidence.facts.wsl
    facts = [f"{card.name}{f' (held by {card.holder})' if card.holder else ''} on the bus" for card in evidence.cards]
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
            facts.append(f"{name}: {library.error or refusal if library.init else f'{listed} listed'}")
    return " · ".join(facts)
