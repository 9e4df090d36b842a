"""Intel's half of the probe: what the bus shows of chips that torch has builds for, and what programs need for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.base.machine import Gpu
from gpuinstall.base.values import Value, field
from gpuinstall.catalog import authored
from gpuinstall.machine.bus import DEVICES, PciDevice
from gpuinstall.machine.prober import MachineFacts, Prober, VendorFindings
from gpuinstall.machine.source import Access, Source
from gpuinstall.machine.symptoms import KnownFacts, findings_of
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
    chip: Mapping[str, Any]
    """The row of its chip."""


class IntelEvidence(Value):
    """The facts of the machine, and Intel's own."""

    facts: MachineFacts
    nodes: Mapping[str, Access | None] = field(default_factory=dict)
    """Whether the render nodes of Intel's cards may be opened, by the card's address."""
    has_loader: bool = True
    """Whether Level Zero's loader is where the system's loader looks; True if nobody looked."""

    @property
    def cards(self) -> tuple[XeCard, ...]:
        """The cards on the bus, without a processor's graphics if another maker's card is there.

        Beside such a card they are what draws the screen.
        """
        cards = tuple(_cards_of(self.facts))
        if self._has_others:
            return tuple(card for card in cards if not card.chip.get("integrated"))
        return cards

    @property
    def given(self) -> tuple[XeCard, ...]:
        """The cards on the bus that this process was given: in a container, those with a node that it can see."""
        if not self.facts.container.shares_the_bus:
            return self.cards
        return tuple(card for card in self.cards if self.nodes.get(card.device.address))

    @property
    def _has_others(self) -> bool:
        """Whether another maker's card is on the bus."""
        makers = {device.vendor for device in self.facts.devices}
        return any(f"{maker:04x}" in PCI_IDS for maker in makers - {INTEL_ON_PCI})


def _cards_of(facts: MachineFacts) -> Iterator[XeCard]:
    for device in facts.cards(INTEL_ON_PCI):
        for chip in _chips():
            if f"{device.device:04x}" in chip["pci"].split():
                yield XeCard(device, chip)


@cache
def _chips() -> tuple[Mapping[str, Any], ...]:
    return tuple(authored.read_data("gpus_intel.toml")["chips"])


def _read_nodes(
    source: Source,
    cards: Sequence[XeCard],
) -> dict[str, Access | None]:
    access = {}
    for card in cards:
        address = card.device.address
        for node in source.names(f"{DEVICES}/{address}/drm", "renderD"):
            access[address] = source.access(f"/dev/dri/{node}")
    return access


def _has_loader(source: Source) -> bool:
    # Looked for by name: to load it would start the driver, in our own process.
    paths = (source.variable("LD_LIBRARY_PATH") or "").split(":")
    folders = [*filter(None, paths), *FOLDERS]
    return any(source.names(folder, LEVEL_ZERO) for folder in folders)


class IntelProber(Prober):
    """Intel's GPUs and what programs compute through."""

    vendor = "intel"
    job_variables = ("ZE_AFFINITY_MASK",)

    def read(
        self,
        source: Source,
        facts: MachineFacts,
    ) -> IntelEvidence:
        """Read the render nodes, and where Level Zero is; Windows' graphics driver has it."""
        cards = tuple(_cards_of(facts))
        if facts.host.os != "linux" or not cards:
            return IntelEvidence(facts)
        return IntelEvidence(facts, _read_nodes(source, cards), _has_loader(source))

    def conclude(self, evidence: IntelEvidence) -> VendorFindings:
        """Return the GPUs, and what is wrong with them. Pure."""
        gpus = [_gpu(index, card) for index, card in enumerate(evidence.given)]
        return VendorFindings(
            gpus=tuple(gpus),
            problems=findings_of(
                "intel",
                _circumstances(evidence),
                evidence.facts.place,
                _evidence_line(evidence),
            ),
            shows_gpu=bool(gpus),
        )


def _gpu(index: int, card: XeCard) -> Gpu:
    return Gpu(
        index,
        name=f"Intel {card.chip['chip']}",
        pci_id=card.device.id,
        found_via="pci",
        vendor="intel",
        architecture=card.chip["architecture"],
    )


def _circumstances(evidence: IntelEvidence) -> KnownFacts:
    given = evidence.given
    addresses = [card.device.address for card in given]
    denied = [
        address for address in addresses if evidence.nodes.get(address) == "denied"
    ]
    withheld = [card.device for card in evidence.cards if card not in given]
    return {
        "given": tuple(range(len(given))),
        "without-loader": not evidence.has_loader,
        "denied": " and ".join(denied),
        "place": evidence.facts.container.place,
        "withheld": ", ".join(
            f"Intel {device.id} at {device.address}" for device in withheld
        ),
    }


def _evidence_line(evidence: IntelEvidence) -> str:
    cards = [
        f"{chip['chip']} ({device.id}) by {device.driver or 'no driver'}"
        for device, chip in evidence.given
    ]
    return " · ".join(cards)
