"""The failures that a text shows, and those that this machine shows, kept apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from os.path import isdir
from typing import Any

from gpuinstall.base.codec import write
from gpuinstall.base.machine import Machine
from gpuinstall.base.values import Value
from gpuinstall.catalog.failures.classify import (
    RELIABLE,
    Circumstances,
    RecognisedCause,
    classify,
    lookalikes,
)
from gpuinstall.catalog.failures.transcript import Transcript
from gpuinstall.diagnose.this_machine import (
    LOCAL_CHECKS,
    MACHINE_CHECKS,
    USUAL_FAULTS,
    LocalFault,
    ThisMachine,
)

_CARD = re.compile(
    r"\b(?:(?:rtx|gtx|radeon rx|arc) ?\w{0,3}\d{3,4}|[abhv][12]00|a10|a40|k80|l4|l40s?|m60|p100|p40|t4|mi[123]\d\d)\b"
)
_MISSING = "missing library"
_FILE = re.compile(r"\blib[\w+-]+\.so(?:\.\d+)*")
_TORCH = re.compile(
    r"(?:pytorch version: |torch\.__version__\W{1,6}|\(you have |\btorch===?|\btorch-)(\d+\.\d+\.\d+)"
)


class LocalView(Value):
    """What a look at this machine found, for one text."""

    machine: ThisMachine
    libraries: Mapping[str, str | None]
    """The libraries that the text misses, with their paths here."""
    faults: tuple[LocalFault, ...]
    possible: frozenset[str]
    """The failures that the text may be of."""
    is_elsewhere: bool
    """Whether the text names another torch or another card than this machine has."""

    @property
    def fitting(self) -> list[LocalFault]:
        """Those of the faults that fit the text."""
        if self.is_elsewhere:
            return []
        return [fault for fault in self.faults if fault.id in self.possible]

    @property
    def deciding(self) -> dict[str, str]:
        """The messages of those that tell one cause from another, by their entries."""
        return {
            fault.id: fault.message
            for fault in self.fitting
            if fault.id not in USUAL_FAULTS
        }

    def to_dict(self) -> dict[str, Any]:
        """Return it as the Explanation document has it."""
        fitting = self.fitting
        found = [
            {"id": fault.id, "message": fault.message, "fits": fault in fitting}
            for fault in self.faults
        ]
        here = self.machine
        torch, driver = here.torch, here.machine.driver
        return {
            "environment": str(here.venv) if isdir(here.venv) else None,
            "torch": torch and torch.version,
            "architectures": list(torch.build.code) if torch and torch.build else [],
            "driver": str(driver.version) if driver and driver.version else None,
            "gpus": [
                {"name": gpu.label, "architecture": gpu.code_name}
                for gpu in here.machine.gpus
            ],
            "libraries": dict(self.libraries),
            "found": found,
        }


class Explanation(Value):
    """The causes of a text, best first, and what only looks like one."""

    causes: tuple[RecognisedCause, ...]
    lookalikes: tuple[RecognisedCause, ...]
    here: LocalView | None
    """None: the text told the cause, or nobody looked."""
    unread: int
    """Lines of a long text that were not read."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as the Explanation document has it."""
        return {
            "causes": write(self.causes),
            "lookalikes": write(self.lookalikes),
            "here": self.here and self.here.to_dict(),
        }


def explain_text(
    text: str,
    look: Callable[[], ThisMachine],
    *,
    here: Machine | None = None,
    placeholders: Mapping[str, str] | None = None,
) -> Explanation:
    """Explain a text; if it does not tell its cause for certain, what a look at the machine finds decides.

    Args:
        text: The text.
        look: Looks at the machine on which it failed.
        here: Where the commands will be used.
        placeholders: What names the environment that they are for.
    """
    transcript = Transcript(text)
    causes = classify(transcript, here=here, placeholders=placeholders)
    others = lookalikes(transcript, here=here, placeholders=placeholders)
    view = None
    # What only looks like a fault of the GPU's stack is none of this machine either: nobody has to look.
    is_sure = bool(causes) and causes[0].confidence >= RELIABLE
    if not is_sure and not (others and not causes):
        view = _view(transcript, look())
        decided = classify(
            transcript,
            # Without a torch the cards alone tell something: which builds have no code for them.
            None if view.machine.torch or view.is_elsewhere else view.machine.machine,
            here=here,
            placeholders=placeholders,
            faults=view.deciding,
        )
        # What is wrong here is no cause of a text that speaks of something else.
        if decided and decided[0].id in view.possible:
            causes = decided
    return Explanation(causes, others, view, transcript.unread)


def _view(transcript: Transcript, machine: ThisMachine) -> LocalView:
    """Compare what is wrong on a machine with what a text may be of.

    Args:
        transcript: The text.
        machine: What the look found.
    """
    circumstances = Circumstances(transcript)
    libraries: dict[str, str | None] = {}
    # Of another program than torch the environment says nothing.
    checks = MACHINE_CHECKS if circumstances.is_of_another_program else LOCAL_CHECKS
    faults = dict.fromkeys(fault for check in checks for fault in check(machine))
    for observation in circumstances.observations:
        if not observation.name.startswith(_MISSING):
            continue
        is_of_system = observation.name == f"{_MISSING} system"
        for name in _FILE.findall(observation.quotation):
            libraries[name] = machine.find_library(name)
            # Without a torch there is nothing yet that could have brought the library.
            if machine.torch and not libraries[name]:
                message = f"{name} is neither in {machine.venv} nor on the system"
                entry = "F166" if is_of_system else "F102"
                faults[LocalFault(entry, message)] = None
    return LocalView(
        machine,
        libraries,
        tuple(faults),
        possible=frozenset(circumstances.possible()),
        is_elsewhere=_is_elsewhere(transcript, machine),
    )


def _is_elsewhere(transcript: Transcript, machine: ThisMachine) -> bool:
    """Whether a text names another torch or another card than this machine has.

    Then it was written elsewhere, and what is wrong here decides nothing about it.
    """
    text = "\n".join(transcript.lines).lower()
    versions = set(_TORCH.findall(text))
    torch = machine.torch
    if torch and versions and torch.version.partition("+")[0] not in versions:
        return True
    cards = set(_CARD.findall(text))
    names = " ".join(gpu.label for gpu in machine.machine.gpus).lower()
    if not names or not cards:
        return False
    return not any(card in names for card in cards)
