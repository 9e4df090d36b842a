"""Intel's half of the probe: what the bus shows of chips that torch has builds for, and what programs need for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuinstall.base.machine import Gpu
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


def _cards_of(facts: MachineFacts) -> Iterator[XeCard]:
    """Yield the cards on the bus, without a processor's graphics if another maker's card is there.

    Beside such a card they are what draws the screen.
    """
    makers = {f"{device.vendor:04x}" for device in facts.devices}
    has_others = not makers.isdisjoint(PCI_IDS.keys() - {f"{INTEL_ON_PCI:04x}"})
    for device in facts.cards(INTEL_ON_PCI):
        for chip in authored.read_chips("intel")["chips"]:
            is_idle = has_others and chip.get("integrated")
            if f"{device.device:04x}" in chip["pci"].split() and not is_idle:
                yield XeCard(device, chip)


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

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Return the GPUs, and what is wrong with them; Windows' graphics driver has Level Zero."""
        cards = list(_cards_of(facts))
        nodes = _read_nodes(source, cards)
        given = cards
        # In a container, those with a node that it can see.
        if facts.container.shares_the_bus:
            given = [card for card in cards if nodes.get(card.device.address)]
        withheld = [card.device for card in cards if card not in given]
        addresses = [card.device.address for card in given]
        denied = [address for address in addresses if nodes.get(address) == "denied"]
        is_linux = facts.host.os == "linux"
        lines = [
            f"{chip['chip']} ({device.id}) by {device.driver or 'no driver'}"
            for device, chip in given
        ]
        circumstances: KnownFacts = {
            "given": tuple(range(len(given))),
            "without-loader": bool(given) and is_linux and not _has_loader(source),
            "denied": " and ".join(denied),
            "place": facts.container.place,
            "withheld": ", ".join(
                f"Intel {device.id} at {device.address}" for device in withheld
            ),
        }
        return VendorFindings(
            gpus=tuple(_gpu(index, card) for index, card in enumerate(given)),
            problems=findings_of(
                "intel", circumstances, facts.place, " · ".join(lines)
            ),
            shows_gpu=bool(given),
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
