"""Intel's half of the probe: what the bus shows of chips that torch has builds for, and what programs need for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import authored
from gpuinstall.catalog.failures.problems import finding_for
from gpuinstall.machine.bus import DEVICES, PciDevice
from gpuinstall.machine.intel.rules import XeChip, chip_at
from gpuinstall.machine.prober import Prober, VendorFindings, withheld_cards
from gpuinstall.machine.source import Access, Source
from gpuinstall.machine.steps import MachineFacts, Step
from gpuinstall.machine.vendors import PCI_IDS

INTEL_ON_PCI = 0x8086
LEVEL_ZERO = "libze_loader.so.1"
"""Level Zero's, through which torch reaches the GPUs."""
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/run/opengl-driver/lib",
)


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
    has_loader: bool = True
    """Whether Level Zero's loader is where the system's loader looks; True if nobody looked."""

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


def _has_loader(source: Source, evidence: IntelEvidence) -> bool:
    # Windows' graphics driver has it.
    if evidence.facts.host.os != "linux" or not evidence.cards:
        return True
    paths = (source.variable("LD_LIBRARY_PATH") or "").split(":")
    folders = [*filter(None, paths), *FOLDERS]
    return any(source.names(folder, LEVEL_ZERO) for folder in folders)


class IntelProber(Prober[IntelEvidence]):
    """Intel's GPUs and what programs compute through."""

    vendor = "intel"
    evidence = IntelEvidence
    steps = (
        Step("nodes", _nodes),
        Step("has_loader", _has_loader),
    )
    systems = frozenset({"linux", "windows"})
    job_variables = ("ZE_AFFINITY_MASK",)

    def answers(self, evidence: IntelEvidence) -> bool:
        """Whether the bus shows a GPU that torch has builds for."""
        return bool(evidence.cards)

    def conclude(self, evidence: IntelEvidence) -> VendorFindings:
        """Return the GPUs, and what is wrong with them. Pure."""
        gpus = [_gpu(index, card) for index, card in enumerate(evidence.given)]
        return VendorFindings(
            gpus=tuple(gpus),
            faults=tuple(_faults(evidence)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(gpus),
        )


def _gpu(index: int, card: XeCard) -> Gpu:
    return Gpu(
        index,
        name=f"Intel {card.chip.name}",
        pci_id=card.device.id,
        found_via="pci",
        vendor="intel",
        architecture=card.chip.architecture,
    )


def _faults(evidence: IntelEvidence) -> Iterator[Finding]:
    """Yield why no program can use the GPUs that are there: torch would run on the CPU without a word."""
    if not evidence.given:
        return
    addresses = [card.device.address for card in evidence.given]
    denied = [address for address in addresses if evidence.nodes.get(address) == "denied"]
    if not evidence.has_loader:
        yield _fault(
            evidence,
            "level-zero-missing",
            message="Level Zero is not installed: no program can use the Intel GPU",
            why=f"{LEVEL_ZERO} is in none of the system's folders",
        )
    elif denied:
        yield _fault(
            evidence,
            "render-not-permitted",
            message=f"the render node of {' and '.join(denied)} may not be opened",
            why="Level Zero opens it",
        )


def _fault(
    evidence: IntelEvidence,
    code: str,
    *,
    message: str,
    why: str,
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
    if withheld:
        cards = [f"Intel {device.id} at {device.address}" for device in withheld]
        yield withheld_cards(evidence.facts, cards, why="its render node is missing here")
