"""Prober for Intel GPUs on the PCI bus for which torch has builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuinstall.base.machine import Gpu
from gpuinstall.catalog import data_files
from gpuinstall.machine.bus import DEVICES, PciDevice, format_devices
from gpuinstall.machine.prober import MachineFacts, Prober, VendorFindings
from gpuinstall.machine.source import Access, Source
from gpuinstall.machine.symptoms import KnownFacts, create_findings

LEVEL_ZERO = "libze_loader.so.1"
"""The Level Zero loader, which torch uses."""
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/run/opengl-driver/lib",
)


class XeCard(NamedTuple):
    """Intel GPU on the PCI bus for which torch has builds."""

    device: PciDevice
    chip: Mapping[str, Any]
    """The row in ``intel.toml`` that describes the GPU's chip."""


def _find_supported_cards(facts: MachineFacts) -> Iterator[XeCard]:
    """Yield the Intel GPUs on the PCI bus for which torch has builds.

    Integrated graphics next to another vendor's GPU are omitted, because they only
    drive the display.
    """
    vendors = {device.vendor for device in facts.devices}
    has_others = not vendors <= {"intel", "other"}
    for device in facts.cards("intel"):
        for chip in data_files.read_vendor("intel")["chips"]:
            is_idle = has_others and chip.get("integrated")
            if device.model in chip["pci"].split() and not is_idle:
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
    # Search for the file, because loading it would start the driver in this process.
    paths = (source.variable("LD_LIBRARY_PATH") or "").split(":")
    folders = [*filter(None, paths), *FOLDERS]
    return any(source.names(folder, LEVEL_ZERO) for folder in folders)


class IntelProber(Prober):
    """Prober for Intel GPUs."""

    vendor = "intel"
    job_variables = ("ZE_AFFINITY_MASK",)

    def findings(self, source: Source, facts: MachineFacts) -> VendorFindings:
        """Read Intel GPUs on the PCI bus, device nodes, and Level Zero."""
        cards = list(_find_supported_cards(facts))
        nodes = _read_nodes(source, cards)
        given = cards
        # A container or job has device nodes only for its own GPUs.
        if facts.container.has_shared_bus:
            given = [card for card in cards if nodes.get(card.device.address)]
        withheld = [card.device for card in cards if card not in given]
        addresses = [card.device.address for card in given]
        denied = [address for address in addresses if nodes.get(address) == "denied"]
        # On Windows, the graphics driver includes Level Zero.
        needs_loader = bool(given) and facts.machine.os == "linux"
        lines = [
            f"{chip['chip']} ({device.id}) by {device.driver or 'no driver'}"
            for device, chip in given
        ]
        circumstances: KnownFacts = {
            "given": tuple(range(len(given))),
            "without-loader": needs_loader and not _has_loader(source),
            "denied": " and ".join(denied),
            "place": facts.container.place,
            "withheld": format_devices(withheld),
        }
        return VendorFindings(
            gpus=tuple(_create_gpu(index, card) for index, card in enumerate(given)),
            problems=create_findings(
                "intel", circumstances, facts.create_fix_context, " · ".join(lines)
            ),
        )


def _create_gpu(index: int, card: XeCard) -> Gpu:
    return Gpu(
        index,
        name=f"Intel {card.chip['chip']}",
        pci_id=card.device.id,
        found_via="pci",
        vendor="intel",
        architecture=card.chip["architecture"],
    )
