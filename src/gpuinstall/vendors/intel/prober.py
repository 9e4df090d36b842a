"""Intel's half of the probe: Level Zero's GPUs, else what the bus shows of chips that torch has builds for.

Level Zero is asked in a child (``level_zero_child``); its GPUs keep its own order.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.facts.bus import DEVICES, PciDevice
from gpuinstall.facts.children import ask_child, death, last_answer
from gpuinstall.facts.source import Access, Source
from gpuinstall.facts.steps import MachineFacts, Step
from gpuinstall.failures.problems import finding_for
from gpuinstall.finding import Finding
from gpuinstall.machine import Gpu
from gpuinstall.process import Finished
from gpuinstall.vendors import PCI_IDS
from gpuinstall.vendors.intel.rules import XeChip, architecture_of, chip_at, intel_chip
from gpuinstall.vendors.prober import Prober, VendorFindings

_CHILD = Path(__file__).with_name("level_zero_child.py")
GPUS = 2
"""The number of GPUs that it is given time for."""


class LevelZeroGpu(NamedTuple):
    """One GPU; ``ip`` is the version of its architecture as a number, 0 where the driver does not say it."""

    name: str
    vendor: int
    device: int
    ip: int = 0
    integrated: bool = False
    memory_bytes: int = 0


@dataclass(frozen=True)
class LevelZero:
    """``asked``: somebody did; ``library`` was found; ``api`` is a driver's version of the interface.

    ``error`` says why there is no answer, or what was refused.
    """

    asked: bool = False
    library: bool = False
    api: str | None = None
    gpus: tuple[LevelZeroGpu, ...] = ()
    error: str | None = None


def ask_level_zero(source: Source) -> LevelZero:
    """Ask it."""
    command = ([sys.executable, "-I", "-S", str(_CHILD)], dict(os.environ))
    finished = ask_child(source, "level-zero.txt", "Level Zero", GPUS, command)
    return parse_level_zero(finished) if finished else LevelZero()


def parse_level_zero(finished: Finished) -> LevelZero:
    """Read what the child answered, or how it ended."""
    answer = last_answer(finished)
    if answer is None:
        return LevelZero(asked=True, library=True, error=f"Level Zero {death(finished)}")
    if not answer.get("library"):
        return LevelZero(asked=True, error=str(answer.get("error")))
    refused = f"{answer['call']}: {int(answer['status']):#x}" if answer.get("call") else None
    try:
        gpus = tuple(
            LevelZeroGpu(
                name=str(body["name"]),
                vendor=int(body["vendor"]),
                device=int(body["device"]),
                ip=int(body["ip"]),
                integrated=bool(body["integrated"]),
                memory_bytes=int(body["memory_bytes"]),
            )
            for body in answer.get("devices", ())
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return LevelZero(asked=True, library=True, error="Level Zero's answer cannot be read")
    return LevelZero(asked=True, library=True, api=answer.get("api"), gpus=gpus, error=refused)


INTEL_ON_PCI = 0x8086


@dataclass(frozen=True)
class IntelEvidence:
    """The facts of all steps; ``nodes`` are the render nodes of Intel's cards, by the card's address."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: Mapping[str, Access | None] = field(default_factory=dict)
    level_zero: LevelZero = field(default_factory=LevelZero)

    @property
    def cards(self) -> tuple[tuple[PciDevice, XeChip], ...]:
        """What the bus shows of chips that torch has builds for; a processor's graphics only where nothing else is.

        Beside another maker's card they are what draws the screen.
        """
        devices, others = cards_of(self.facts), self._others
        return tuple((device, chip) for device, chip in devices if not (others and chip.integrated))

    @property
    def answering(self) -> tuple[LevelZeroGpu, ...]:
        """The GPUs that Level Zero lists, in its own order, where torch has builds for one of them."""
        gpus = tuple(gpu for gpu in self.level_zero.gpus if gpu.vendor == INTEL_ON_PCI)
        useful = any(intel_chip(intel_chips(), architecture_of(gpu.ip)) for gpu in gpus)
        draws_only = all(gpu.integrated for gpu in gpus) and self._others
        return gpus if useful and not draws_only else ()

    @property
    def given(self) -> tuple[tuple[PciDevice, XeChip], ...]:
        """The cards of the bus that this process was given: in a container, those with a node that it can see."""
        shared = self.facts.container.shares_the_bus
        return tuple(card for card in self.cards if not shared or self.nodes.get(card[0].address))

    @property
    def _others(self) -> bool:
        """Say whether another maker's card is there: on the bus, or by its driver where nobody read the bus."""
        cards = (
            device
            for device in self.facts.devices
            if device.may_compute and device.vendor != INTEL_ON_PCI
        )
        on_the_bus = any(f"{card.vendor:04x}" in PCI_IDS for card in cards)
        return on_the_bus or bool({*self.facts.answered} - {"intel"})


def cards_of(facts: MachineFacts) -> tuple[tuple[PciDevice, XeChip], ...]:
    """Intel's GPUs on the bus that torch has builds for."""
    ours = (device for device in facts.devices if device.vendor == INTEL_ON_PCI)
    usable = (device for device in ours if device.may_compute and not device.is_reserved)
    return tuple(
        (device, chip) for device in usable if (chip := chip_at(intel_chips(), device.device))
    )


@cache
def intel_chips() -> dict[str, Any]:
    """Load the rows about chips."""
    return authored.read_data("gpus_intel.toml")


_MIB = 1024**2
WINDOWS_DRIVER = "iigd"


def _nodes(source: Source, evidence: IntelEvidence) -> dict[str, Access | None]:
    addresses = [device.address for device, _ in cards_of(evidence.facts)]
    names = {address: source.names(f"{DEVICES}/{address}/drm", "renderD") for address in addresses}
    return {
        address: source.access(f"/dev/dri/{nodes[0]}") if nodes else None
        for address, nodes in names.items()
    }


def _may_answer(evidence: IntelEvidence) -> bool:
    """Say whether there is something to ask Level Zero about: on Windows the bus is read only when nobody answers."""
    facts = evidence.facts
    lent = facts.wsl is not None and any(
        name.lower().startswith(WINDOWS_DRIVER) for name in facts.wsl.drivers
    )
    return facts.host.os == "windows" or lent or bool(evidence.cards)


class IntelProber(Prober[IntelEvidence]):
    """Intel's GPUs and what programs compute through."""

    vendor = "intel"
    evidence = IntelEvidence
    steps = (
        Step("nodes", _nodes),
        Step(
            "level_zero",
            lambda source, evidence: (
                ask_level_zero(source) if _may_answer(evidence) else LevelZero()
            ),
        ),
    )
    systems = frozenset({"linux", "windows"})
    job_variables = ("ZE_AFFINITY_MASK",)

    def answers(self, evidence: IntelEvidence) -> bool:
        """Say whether Level Zero lists a GPU that torch has builds for."""
        return bool(evidence.answering)

    def conclude(self, evidence: IntelEvidence) -> VendorFindings:
        """List the GPUs, Level Zero's where it answers, and what is wrong with them. Pure."""
        answering = evidence.answering
        listed = tuple(_answering(index, gpu) for index, gpu in enumerate(answering))
        gpus = listed or tuple(
            _on_the_bus(index, *card) for index, card in enumerate(evidence.given)
        )
        api = evidence.level_zero.api
        faults, notes = tuple(_faults(evidence)), tuple(_notes(evidence))
        facts = {"level_zero": api} if api and gpus else {}
        return VendorFindings(
            gpus=gpus, faults=faults, notes=notes, shows_gpu=bool(gpus), facts=facts
        )


def _faults(evidence: IntelEvidence) -> Iterator[Finding]:
    """Say why Level Zero shows none of the GPUs that are there: without it torch runs on the CPU without a word."""
    level_zero, cards, context = evidence.level_zero, evidence.given, evidence.facts.fix_context
    if not cards or evidence.answering or not level_zero.asked:
        return
    gpus = tuple(range(len(cards)))
    seen = " · ".join(
        f"{chip.name} ({device.id}) by {device.driver or 'no driver'}" for device, chip in cards
    )
    denied = [
        device.address for device, _ in cards if evidence.nodes.get(device.address) == "denied"
    ]
    if not level_zero.library:
        message, why = (
            "Level Zero is not installed: no program can use the Intel GPU",
            level_zero.error,
        )
        yield finding_for("level-zero-missing", message, context, why=why, evidence=seen, gpus=gpus)
    elif denied:
        message = f"the render node of {' and '.join(denied)} may not be opened"
        yield finding_for(
            "render-not-permitted",
            message,
            context,
            why="Level Zero opens it",
            evidence=seen,
            gpus=gpus,
        )
    else:
        message = f"Level Zero shows no GPU{f' ({level_zero.error})' if level_zero.error else ''}"
        why = "its driver, Intel's compute runtime, is missing or older than the GPU"
        yield finding_for(
            "level-zero-without-gpu", message, context, why=why, evidence=seen, gpus=gpus
        )


def _notes(evidence: IntelEvidence) -> Iterator[Finding]:
    """Name the cards of the bus that a container or a job was not given."""
    withheld = [device for device, _ in evidence.cards if (device, _) not in evidence.given]
    if withheld and not evidence.answering:
        room = "container" if evidence.facts.container.engine else "job"
        names = ", ".join(f"Intel {device.id} at {device.address}" for device in withheld)
        message, why = f"not given to this {room}: {names}", "its render node is missing here"
        yield finding_for(
            "gpu-not-ours", message, evidence.facts.fix_context, why=why, blocking=False
        )


def _answering(index: int, gpu: LevelZeroGpu) -> Gpu:
    name = re.sub(r"\((R|TM)\)", "", gpu.name)
    name, pci = (
        name if name.startswith("Intel") else f"Intel {name}",
        f"{gpu.vendor:04x}:{gpu.device:04x}",
    )
    memory, code = (
        None if gpu.integrated else gpu.memory_bytes // _MIB or None,
        architecture_of(gpu.ip),
    )
    return Gpu(
        index,
        name,
        pci_id=pci,
        memory_mib=memory,
        found_via="level-zero",
        vendor="intel",
        architecture=code,
    )


def _on_the_bus(index: int, device: PciDevice, chip: XeChip) -> Gpu:
    name = f"Intel {chip.name}"
    return Gpu(
        index,
        name,
        pci_id=device.id,
        found_via="pci",
        vendor="intel",
        architecture=chip.architecture,
    )
