"""Which entry of the failure catalogue a failed check is: by its text, else by what failed and where. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from gpuinstall.machine import Machine

TURING = ComputeCapability(7, 5)
BY_NAME = {
    "convolution": "F51",
    "batched-product": "F50",
    "linear": "F50",
    "numpy": "F66",
    "compile": "F68",
    "torchvision": "F47",
    "torchaudio": "F48",
    "xformers": "F56",
    "all-reduce": "F69",
}


class Situation(NamedTuple):
    """Where a check failed: the machine, the card's capability, and the names of the build's architectures."""

    machine: Machine
    capability: ComputeCapability | None = None
    architectures: tuple[str, ...] = ()


def cause_of(name: str, text: str, situation: Situation) -> str | None:
    """Give the entry's id for a failed check; None where nothing fits."""
    from gpuinstall.failures.classify import cause_of as by_text

    if name == "architectures" or "no kernel image" in text:
        return _no_code(situation)
    return by_text(text, machine=situation.machine) or _by_place(name, text, situation)


def _no_code(situation: Situation) -> str:
    """Tell a card that is newer than the build's code (F38) from one that is older (F37)."""
    codes = [name.partition("_")[2].rstrip("af") for name in situation.architectures]
    newest = max((ComputeCapability.from_sm(int(code)) for code in codes), default=None)
    newer = newest is not None and situation.capability is not None and situation.capability > newest
    return "F38" if newer else "F37"


def _by_place(name: str, text: str, situation: Situation) -> str | None:
    if "NumPy cannot be loaded" in text:
        return "F66"
    if name == "import":
        return "F62" if "SIGILL" in text else None
    if name == "convolution" and situation.capability and situation.capability < TURING:
        return "F55"
    if name == "optimizer-step":
        return "F19" if _branch(situation.machine) in range(525, 530) else None
    return BY_NAME.get(name)


def _branch(machine: Machine) -> int | None:
    return machine.driver.version.branch if machine.driver and machine.driver.version else None
