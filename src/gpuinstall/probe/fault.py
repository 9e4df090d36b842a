"""A fault as a problem: with the facts that it rests on, and the driver that these cards need."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.failures.problems import fix_of, problem
from gpuinstall.probe.chips import TURING, drivers_of
from gpuinstall.probe.evidence import NEWEST_BRANCH

if TYPE_CHECKING:
    from gpuinstall.failures.problems import FixContext
    from gpuinstall.machine import Problem
    from gpuinstall.probe.evidence import Card, Evidence

_KERNEL_FILES = {"proc": "/proc/driver/nvidia/version", "sysfs": "/sys/module/nvidia/version"}


class Wanted(NamedTuple):
    """The driver that all cards here need: the branch, and whether it is one that is no longer made."""

    branch: int
    legacy: bool

    def in_words(self, place: FixContext) -> FixContext:
        """Let the fixes of a place name it."""
        return place.knowing(branch=self.branch)


def wanted_driver(evidence: Evidence) -> Wanted:
    """Choose the driver for the cards on the bus: the last branch of the oldest ones where all are old."""
    capabilities = [card.chip.capability for card in evidence.cards if card.chip]
    last = [span.last for span in (drivers_of(each, evidence.host.os) for each in capabilities) if span.last]
    legacy = bool(last) and all(capability < TURING for capability in capabilities)
    return Wanted(min(last), True) if legacy else Wanted(NEWEST_BRANCH, False)


def fault(evidence: Evidence, code: str, message: str, why: str) -> Problem:
    """Make a fault of the whole machine."""
    return problem(code, message, evidence.place, why=why, seen=seen(evidence))


def fault_of_driver(evidence: Evidence, code: str, message: str, why: str) -> Problem:
    """Make a fault that another driver mends."""
    wanted = wanted_driver(evidence)
    place = wanted.in_words(evidence.place)
    return problem(code, message, place, why=why, seen=seen(evidence), legacy=wanted.legacy)


def held_by_nouveau(evidence: Evidence, card: Card, gpus: tuple[int, ...] = ()) -> Problem:
    """The kernel's own driver holds a card: CUDA cannot have it."""
    wanted = wanted_driver(evidence)
    install = fix_of("driver-missing", wanted.in_words(evidence.place), legacy=wanted.legacy) or ""
    place = evidence.place.knowing(install=install.replace(" && sudo reboot", ""))
    message, why = f"{card.name} is held by nouveau", "the kernel's own driver bound the card before NVIDIA's could"
    return problem("nouveau-holds-gpu", message, place, why=why, seen=seen(evidence), gpus=gpus)


def seen(evidence: Evidence) -> str:
    """The facts that a diagnosis rests on, in one line."""
    module, nvml, cuda = evidence.kernel.module, evidence.nvml, evidence.cuda
    facts = [f"{card.name}{_held(card)} on the bus" for card in evidence.cards[:2]]
    facts += [f"{len(evidence.cards) - 2} more"] if len(evidence.cards) > 2 else []
    facts += [f"{_KERNEL_FILES[module.found_via]} {module.version}"] if module else []
    facts += ["no NVIDIA kernel module"] if not module and evidence.host.os == "linux" and not evidence.wsl else []
    facts += [f"{nvml.library or nvml.by}: {_nvml_state(evidence)}"] if nvml.init is not None or nvml.fault else []
    facts += [f"{cuda.path or 'libcuda.so.1'}: {_cuda_state(evidence)}"] if cuda.init is not None or cuda.fault else []
    return " · ".join(facts)


def _held(card: Card) -> str:
    return f" (held by {card.device.driver})" if card.device.driver else ""


def _nvml_state(evidence: Evidence) -> str:
    nvml = evidence.nvml
    if nvml.fault is not None:
        return nvml.error or "cannot be loaded"
    return f"{len(nvml.gpus)} listed" if nvml.works else nvml.error or f"NVML error {nvml.init}"


def _cuda_state(evidence: Evidence) -> str:
    cuda = evidence.cuda
    if cuda.fault is not None:
        return cuda.error or "cannot be loaded"
    return f"{len(cuda.devices)} listed" if evidence.cuda_works else f"cuInit returned {cuda.init}"
