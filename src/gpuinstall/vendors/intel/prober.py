"""Intel's half of the probe: Level Zero's GPUs, else what the bus shows of chips that torch has builds for.

Level Zero is asked in a child (``level_zero_child``); its GPUs keep its own order.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import field
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
from gpuinstall.values import dataclass
from gpuinstall.vendors import PCI_IDS
from gpuinstall.vendors.intel.rules import XeChip, architecture_of, chip_at, intel_chip
from gpuinstall.vendors.prober import Prober, VendorFindings, withheld_cards, without_trademarks

INTEL_ON_PCI = 0x8086
WINDOWS_DRIVER = "iigd"
GPUS = 2
"""The number of GPUs that Level Zero is given time for."""
_CHILD = Path(__file__).with_name("level_zero_child.py")


class LevelZeroGpu(NamedTuple):
    """One GPU as Level Zero sees it."""

    name: str
    vendor: int
    device: int
    ip: int
    """The version of its architecture as a number; 0 if the driver does not tell it."""
    integrated: bool
    memory_bytes: int


@dataclass(frozen=True)
class LevelZero:
    """What Level Zero answered."""

    was_asked: bool = False
    has_library: bool = False
    api: str | None = None
    """The version of the interface that a driver has."""
    gpus: tuple[LevelZeroGpu, ...] = ()
    error: str | None = None
    """Why there is no answer, or what was refused."""


class XeCard(NamedTuple):
    """A GPU on the bus that torch has builds for."""

    device: PciDevice
    chip: XeChip


@dataclass(frozen=True)
class IntelEvidence:
    """The facts of all steps."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: Mapping[str, Access | None] = field(default_factory=dict)
    """Whether the render nodes of Intel's cards may be opened, by the card's address."""
    level_zero: LevelZero = field(default_factory=LevelZero)

    @property
    def cards(self) -> tuple[XeCard, ...]:
        """The cards on the bus, without a processor's graphics if another maker's card is there.

        Beside such a card they are what draws the screen.
        """
        cards = _cards_of(self.facts)
        if self._has_others:
            return tuple(card for card in cards if not card.chip.integrated)
        return cards

    @property
    def answering(self) -> tuple[LevelZeroGpu, ...]:
        """The GPUs that Level Zero lists, in its own order, if torch has builds for one of them."""
        gpus = tuple(gpu for gpu in self.level_zero.gpus if gpu.vendor == INTEL_ON_PCI)
        is_useful = any(intel_chip(_chips(), architecture_of(gpu.ip)) for gpu in gpus)
        draws_only = self._has_others and all(gpu.integrated for gpu in gpus)
        return gpus if is_useful and not draws_only else ()

    @property
    def given(self) -> tuple[XeCard, ...]:
        """The cards on the bus that this process was given: in a container, those with a node that it can see."""
        if not self.facts.container.shares_the_bus:
            return self.cards
        return tuple(card for card in self.cards if self.nodes.get(card.device.address))

    @property
    def _has_others(self) -> bool:
        """Whether another maker's card is there: on the bus, or by its driver if nobody read the bus."""
        makers = {device.vendor for device in self.facts.devices if device.may_compute}
        on_the_bus = any(f"{maker:04x}" in PCI_IDS for maker in makers - {INTEL_ON_PCI})
        return on_the_bus or any(maker != "intel" for maker in self.facts.answered)


def _cards_of(facts: MachineFacts) -> tuple[XeCard, ...]:
    cards = []
    for device in facts.devices:
        if device.vendor == INTEL_ON_PCI and device.may_compute and not device.is_reserved:
            chip = chip_at(_chips(), device.device)
            if chip is not None:
                cards.append(XeCard(device, chip))
    return tuple(cards)


@cache
def _chips() -> dict[str, Any]:
    return authored.read_data("gpus_intel.toml")


def _nodes(source: Source, evidence: IntelEvidence) -> dict[str, Access | None]:
    access: dict[str, Access | None] = {}
    for card in _cards_of(evidence.facts):
        address = card.device.address
        nodes = source.names(f"{DEVICES}/{address}/drm", "renderD")
        access[address] = source.access(f"/dev/dri/{nodes[0]}") if nodes else None
    return access


def _level_zero(source: Source, evidence: IntelEvidence) -> LevelZero:
    if not _may_answer(evidence):
        return LevelZero()
    argv = [sys.executable, "-I", "-S", str(_CHILD)]
    finished = ask_child(
        source,
        name="level-zero.txt",
        who="Level Zero",
        gpus=GPUS,
        command=(argv, os.environ),
    )
    return _parse_level_zero(finished) if finished else LevelZero()


def _may_answer(evidence: IntelEvidence) -> bool:
    """Whether there is something to ask Level Zero about."""
    facts = evidence.facts
    drivers = facts.wsl.drivers if facts.wsl else ()
    is_lent = any(name.lower().startswith(WINDOWS_DRIVER) for name in drivers)
    # On Windows the bus is read only if no library answers.
    return facts.host.os == "windows" or is_lent or bool(evidence.cards)


def _parse_level_zero(finished: Finished) -> LevelZero:
    """Return what the child answered, or how it ended."""
    answer = last_answer(finished)
    if answer is None:
        return LevelZero(
            was_asked=True,
            has_library=True,
            error=f"Level Zero {death(finished)}",
        )
    if not answer.get("library"):
        return LevelZero(was_asked=True, error=str(answer.get("error")))
    error = f"{answer['call']}: {int(answer['status']):#x}" if answer.get("call") else None
    try:
        gpus = tuple(map(_parse_gpu, answer.get("devices", ())))
    except (AttributeError, KeyError, TypeError, ValueError):
        error = "Level Zero's answer cannot be read"
        return LevelZero(
            was_asked=True,
            has_library=True,
            error=error,
        )
    return LevelZero(
        was_asked=True,
        has_library=True,
        api=answer.get("api"),
        gpus=gpus,
        error=error,
    )


def _parse_gpu(body: Mapping[str, Any]) -> LevelZeroGpu:
    return LevelZeroGpu(
        name=str(body["name"]),
        vendor=int(body["vendor"]),
        device=int(body["device"]),
        ip=int(body["ip"]),
        integrated=bool(body["integrated"]),
        memory_bytes=int(body["memory_bytes"]),
    )


class IntelProber(Prober[IntelEvidence]):
    """Intel's GPUs and what programs compute through."""

    vendor = "intel"
    evidence = IntelEvidence
    steps = (
        Step("nodes", _nodes),
        Step("level_zero", _level_zero),
    )
    systems = frozenset({"linux", "windows"})
    job_variables = ("ZE_AFFINITY_MASK",)

    def answers(self, evidence: IntelEvidence) -> bool:
        """Whether Level Zero lists a GPU that torch has builds for."""
        return bool(evidence.answering)

    def conclude(self, evidence: IntelEvidence) -> VendorFindings:
        """Return the GPUs, Level Zero's if it answers, and what is wrong with them. Pure."""
        gpus = [_level_zero_gpu(index, gpu) for index, gpu in enumerate(evidence.answering)]
        if not gpus:
            gpus = [_bus_gpu(index, card) for index, card in enumerate(evidence.given)]
        api = evidence.level_zero.api
        return VendorFindings(
            gpus=tuple(gpus),
            faults=tuple(_faults(evidence)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(gpus),
            facts={"level_zero": api} if api and gpus else {},
        )


def _level_zero_gpu(index: int, gpu: LevelZeroGpu) -> Gpu:
    name = without_trademarks(gpu.name)
    return Gpu(
        index,
        name=name if name.startswith("Intel") else f"Intel {name}",
        pci_id=f"{gpu.vendor:04x}:{gpu.device:04x}",
        memory_mib=None if gpu.integrated else gpu.memory_bytes >> 20 or None,
        found_via="level-zero",
        vendor="intel",
        architecture=architecture_of(gpu.ip),
    )


def _bus_gpu(index: int, card: XeCard) -> Gpu:
    return Gpu(
        index,
        name=f"Intel {card.chip.name}",
        pci_id=card.device.id,
        found_via="pci",
        vendor="intel",
        architecture=card.chip.architecture,
    )


def _faults(evidence: IntelEvidence) -> Iterator[Finding]:
    """Yield why Level Zero shows none of the GPUs that are there: without it torch runs on the CPU without a word."""
    level_zero = evidence.level_zero
    if not evidence.given or evidence.answering or not level_zero.was_asked:
        return
    addresses = [card.device.address for card in evidence.given]
    denied = [address for address in addresses if evidence.nodes.get(address) == "denied"]
    if not level_zero.has_library:
        yield _fault(
            evidence,
            "level-zero-missing",
            message="Level Zero is not installed: no program can use the Intel GPU",
            why=level_zero.error,
        )
    elif denied:
        yield _fault(
            evidence,
            "render-not-permitted",
            message=f"the render node of {' and '.join(denied)} may not be opened",
            why="Level Zero opens it",
        )
    else:
        error = f" ({level_zero.error})" if level_zero.error else ""
        yield _fault(
            evidence,
            "level-zero-without-gpu",
            message=f"Level Zero shows no GPU{error}",
            why="its driver, Intel's compute runtime, is missing or older than the GPU",
        )


def _fault(
    evidence: IntelEvidence,
    code: str,
    *,
    message: str,
    why: str | None,
) -> Finding:
    cards = [
        f"{chip.name} ({device.id}) by {device.driver or 'no driver'}"
        for device, chip in evidence.given
    ]
    return finding_for(
        code,
        message,
        evidence.facts.fix_context,
        why=why,
        evidence=" · ".join(cards),
        gpus=tuple(range(len(cards))),
    )


def _notes(evidence: IntelEvidence) -> Iterator[Finding]:
    """Yield the cards on the bus that a container or a job was not given."""
    given = evidence.given
    withheld = [card.device for card in evidence.cards if card not in given]
    if withheld and not evidence.answering:
        cards = [f"Intel {device.id} at {device.address}" for device in withheld]
        yield withheld_cards(evidence.facts, cards, why="its render node is missing here")
