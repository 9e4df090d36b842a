"""nvidia-smi's table, list and query, as people post them, written as the XML that the same nvidia-smi gives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from xml.sax.saxutils import escape, quoteattr

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_DRIVER = re.compile(r"(?:Driver|KMD) Version\s*:\s*([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})")
_CUDA = re.compile(r"CUDA(?: UMD)? Version\s*:\s*([0-9]{1,3}\.[0-9]{1,2}|N/A|ERR!)")
_ROW = re.compile(
    r"^\|\s+([0-9]{1,4})\s+(\S.*?)\s+(?:On|Off|N/A|TCC|WDDM|MCDM)\s*\|\s+(N/A|[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s",
    re.IGNORECASE,
)
_LISTED = re.compile(
    r"^GPU ([0-9]{1,4}): (.+?)(?: \(UUID: (GPU-[0-9a-fA-F-]+)\))?\s*$", re.MULTILINE
)
_LIST_LINE = re.compile(r"^(?:GPU [0-9]{1,4}: |\s+MIG ).*$", re.MULTILINE)
_CAPABILITY = re.compile(r"^[0-9]{1,4}, .*, ([0-9]{1,2}\.[0-9])$", re.MULTILINE)


class Shown(NamedTuple):
    """A card as the table shows it."""

    name: str
    bus_id: str = "N/A"
    uuid: str = "N/A"
    memory: str = "N/A"
    mig: str = "N/A"


def as_xml(text: str) -> str:
    """Write a table, and what stands beside it, as the answers of ``-q -x``, ``-L`` and a query of compute_cap."""
    driver = _DRIVER.search(text)
    cuda = _CUDA.search(text)
    listed = list(_LISTED.finditer(text))
    cards = list(_tabled(text)) or [Shown(line[2]) for line in listed]
    uuids = {int(line[1]): line[3] or "N/A" for line in listed}
    log = as_log(
        driver[1] if driver else "N/A",
        cuda[1] if cuda else "N/A",
        [card._replace(uuid=uuids.get(index, "N/A")) for index, card in enumerate(cards)],
    )
    lines = [*log, *_LIST_LINE.findall(text), *_CAPABILITY.findall(text)]
    return "".join(f"{line}\n" for line in lines)


def as_log(driver: str, cuda: str, cards: Sequence[Shown]) -> list[str]:
    """Return the answer of ``-q -x``, line by line."""
    lines = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        f"\t<driver_version>{driver}</driver_version>",
        f"\t<cuda_version>{cuda}</cuda_version>",
        f"\t<attached_gpus>{len(cards)}</attached_gpus>",
    ]
    for card in cards:
        lines += [
            f"\t<gpu id={quoteattr(card.bus_id)}>",
            f"\t\t<product_name>{escape(card.name)}</product_name>",
            "\t\t<mig_mode>",
            f"\t\t\t<current_mig>{card.mig}</current_mig>",
            "\t\t</mig_mode>",
            f"\t\t<uuid>{card.uuid}</uuid>",
            "\t\t<pci>",
            f"\t\t\t<pci_bus_id>{card.bus_id}</pci_bus_id>",
            "\t\t</pci>",
            "\t\t<fb_memory_usage>",
            f"\t\t\t<total>{card.memory}</total>",
            "\t\t</fb_memory_usage>",
            "\t</gpu>",
        ]
    return [*lines, "</nvidia_smi_log>"]


def _tabled(text: str) -> Iterator[Shown]:
    """Yield the cards of a table: each has a line with its name, one with its memory and one with its mode."""
    lines = [*text.splitlines(), "", ""]
    for number, line in enumerate(lines):
        row = _ROW.match(line)
        if not row:
            continue
        memory = re.search(r"/\s*([0-9]{1,9})MiB", lines[number + 1])
        mig = re.search("Enabled|Disabled", lines[number + 2])
        yield Shown(
            name=row[2],
            bus_id=row[3],
            memory=f"{memory[1]} MiB" if memory else "N/A",
            mig=mig[0] if mig else "N/A",
        )
