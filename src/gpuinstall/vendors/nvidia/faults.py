"""A fault as a problem: with the facts that it rests on, and the driver that these cards need."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.failures.problems import finding_for, fix_of
from gpuinstall.vendors.nvidia.chips import drivers, drivers_of

if TYPE_CHECKING:
    from gpuinstall.failures.problems import FixContext
    from gpuinstall.finding import Finding
    from gpuinstall.vendors.nvidia.evidence import BusCard, NvidiaEvidence

_KERNEL_FILES = {"proc": "/proc/driver/nvidia/version", "sysfs": "/sys/module/nvidia/version"}


class WantedDriver(NamedTuple):
    """The driver that all cards here need: the branch, and whether it is one that is no longer made."""

    branch: int
    legacy: bool

    def in_words(self, context: FixContext) -> FixContext:
        """Let the fixes name it."""
        return context.knowing(branch=self.branch)


def wanted_driver(evidence: NvidiaEvidence) -> WantedDriver:
    """Choose the driver for the cards on the bus: the last branch of the oldest ones where all are old."""
    capabilities = [card.chip.capability for card in evidence.cards if card.chip]
    last = [
        span.last
        for span in (drivers_of(capability, evidence.facts.host.os) for capability in capabilities)
        if span.last
    ]
    legacy = bool(last) and all(capability < drivers().kernel_modules.open_from for capability in capabilities)
    return WantedDriver(min(last), legacy=True) if legacy else WantedDriver(drivers().recommended_branch, legacy=False)


def fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault of the whole machine."""
    return finding_for(code, message, evidence.fix_context, why=why, evidence=evidence_line(evidence))


def driver_fault(evidence: NvidiaEvidence, code: str, message: str, why: str) -> Finding:
    """Make a fault that another driver repairs."""
    wanted = wanted_driver(evidence)
    context = wanted.in_words(evidence.fix_context)
    return finding_for(code, message, context, why=why, evidence=evidence_line(evidence), legacy=wanted.legacy)


def held_by_nouveau(evidence: NvidiaEvidence, card: BusCard, gpus: tuple[int, ...] = ()) -> Finding:
    """The kernel's own driver holds a card: CUDA cannot have it."""
    wanted = wanted_driver(evidence)
    install = fix_of("driver-missing", wanted.in_words(evidence.fix_context), legacy=wanted.legacy) or ""
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
    facts += [f"{nvml.library or nvml.by}: {_nvml_state(evidence)}"] if nvml.init is not None or nvml.fault else []
    facts += [f"{cuda.path or 'libcuda.so.1'}: {_cuda_state(evidence)}"] if cuda.init is not None or cuda.fault else []
    return " · ".join(facts)


def _nvml_state(evidence: NvidiaEvidence) -> str:
    nvml = evidence.nvml
    if nvml.fault is not None:
        return nvml.error or "cannot be loaded"
    return f"{len(nvml.gpus)} listed" if nvml.works else nvml.error or f"NVML error {nvml.init}"


def _cuda_state(evidence: NvidiaEvidence) -> str:
    cuda = evidence.cuda
    if cuda.fault is not None:
        return cuda.error or "cannot be loaded"
    return f"{len(cuda.devices)} listed" if evidence.cuda_works else f"cuInit returned {cuda.init}"
