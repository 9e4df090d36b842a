"""What nvidia-smi reports: the last one asked, for it reads the same NVML and tells less.

Its XML (``-q -x``, nvsmi_device_v12.dtd) has everything but the UUIDs of MIG's slices, which ``-L`` lists, and the
compute capability, which is a query of its own since R495. From R610 on the XML may name the CUDA of the user-mode
driver ``cuda_umd_version``, as the header of the table does.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.facts.bus import normal_address
from gpuinstall.facts.children import ask_children
from gpuinstall.machine import MigDevice
from gpuinstall.process import is_trusted
from gpuinstall.regex import regex
from gpuinstall.vendors.nvidia.libraries import NvmlFacts, NvmlGpu
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from xml.etree.ElementTree import Element

    from gpuinstall.facts.source import Source

_BY = "nvidia-smi"
PROGRAM = "nvidia-smi.exe" if sys.platform == "win32" else _BY
KNOWN_PATHS = (
    "/usr/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "C:\\Windows\\System32\\nvidia-smi.exe",
    "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvidia-smi.exe",
)
QUESTIONS = (["-q", "-x"], ["-L"], ["--query-gpu=compute_cap", "--format=csv,noheader"])

_LOG = regex(r"<nvidia_smi_log>.*?</nvidia_smi_log>", re.DOTALL)
_LISTED = regex(r"^GPU ([0-9]{1,4}): ")
_SLICE = regex(r"^\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")
_CAPABILITY = regex(r"^([0-9]{1,2}\.[0-9])\s*$", re.MULTILINE)
_REFUSED = regex(
    r"Unable to determine the device handle for gpu ?(?:([0-9]{1,3}):? ?)?([0-9a-f]{4,8}:[0-9a-f:]+\.[0-7])?:? (.*)",
    re.IGNORECASE,
)
"""``GPU0000:0B:00.0: …``, ``GPU1: 0000:05:00.0: …``, ``gpu 0000:23:00.0: …``, ``GPU0: …``: each release has its own."""

# What nvidia-smi prints instead of its answer, and the number of NVML's that stands behind it.
_REFUSALS = (
    ("Driver/library version mismatch", 18),
    ("couldn't communicate with the NVIDIA driver", 9),
    ("couldn't find libnvidia-ml.so", 12),
    ("Failed to initialize NVML: Insufficient Permissions", 4),
    ("Failed to initialize NVML: Unknown Error", 999),
    ("No devices were found", 0),
    ("No devices found", 0),
)


def ask_smi(source: Source, gpus: int) -> NvmlFacts:
    """Ask nvidia-smi, which has time for so many cards."""
    return parse_smi(source.answer("nvidia-smi.xml", lambda: _answers(source, gpus)))


def _answers(source: Source, gpus: int) -> str:
    program = find_smi()
    if program is None:
        return ""
    environment = {**os.environ, "LC_ALL": "C"}
    commands = [([program, *words], environment) for words in QUESTIONS]
    answers = ask_children(source, _BY, gpus, *commands)
    return "\n".join(finished.out for finished in answers)


def find_smi() -> str | None:
    """Return the absolute path of nvidia-smi: on PATH, else where drivers put it."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    paths = [Path(folder, PROGRAM) for folder in folders]
    paths += map(Path, KNOWN_PATHS)
    for path in paths:
        if path.is_absolute() and is_trusted(path):
            return str(path)
    return None


def parse_smi(text: str) -> NvmlFacts:
    """Return what the three answers tell.

    If there is none of them, ``init`` is the number behind what was printed instead; ``error`` what that was.
    """
    log = _log(text)
    driver = _version(log, r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}", "driver_version", "kmd_version")
    cuda = _version(log, r"[0-9]{1,3}\.[0-9]{1,2}", "cuda_version", "cuda_umd_version")
    library = re.search(r"NVML library version: ([0-9.]+)", text)
    answering = _answering_gpus(log, text)
    gpus = (*answering, *_refused_gpus(text, first_index=len(answering)))
    has_answered = bool(gpus or driver)
    first_line, _, _ = text.strip().partition("\n")
    refusals = [number for words, number in _REFUSALS if words in text]
    refusal = refusals[0] if refusals else None
    return NvmlFacts(
        by=_BY,
        library=f"libnvidia-ml.so.{library[1]}" if library else None,
        init=0 if has_answered else refusal,
        driver=DriverVersion.parse(driver) if driver else None,
        cuda=CudaVersion.parse(cuda) if cuda else None,
        gpus=gpus,
        fault=None if has_answered or refusal is not None else "missing",
        error=first_line.strip() or None,
    )


def _log(text: str) -> Element | None:
    log = _LOG.search(text)
    if log is None:
        return None
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(log[0])  # noqa: S314  without its DTD: no entity is defined
    except ElementTree.ParseError:
        return None


def _version(log: Element | None, form: str, *names: str) -> str | None:
    if log is None:
        return None
    for name in names:
        text = _field(log, name)
        if text and re.fullmatch(form, text):
            return text
    return None


def _answering_gpus(log: Element | None, text: str) -> list[NvmlGpu]:
    """Return the cards that answer."""
    elements = [] if log is None else list(log.iter("gpu"))
    slices = _slices(text)
    gpus = []
    for index, element in enumerate(elements):
        gpus.append(_gpu(index, element, slices[index]))
    capabilities = _CAPABILITY.findall(text)
    if len(capabilities) != len(gpus):
        return gpus
    return [
        replace(gpu, compute_capability=ComputeCapability.parse(capability))
        for gpu, capability in zip(gpus, capabilities, strict=True)
    ]


def _refused_gpus(text: str, first_index: int) -> Iterator[NvmlGpu]:
    """Yield the cards that nvidia-smi cannot reach."""
    # Each of the three answers may refuse the same card.
    refusals = {}
    for number, address, reason in _REFUSED.findall(text):
        refusals[address or number] = (address, reason)
    for index, (address, reason) in enumerate(refusals.values(), first_index):
        yield NvmlGpu(
            index,
            bus_id=normal_address(address) if address else None,
            error=15 if "lost" in reason else 999,
        )


def _gpu(index: int, element: Element, slices: Sequence[MigDevice]) -> NvmlGpu:
    bus_id = _field(element, "pci/pci_bus_id") or _cell(element.get("id"))
    pci_device = _field(element, "pci/pci_device_id") or ""
    pci_id = re.fullmatch(r"(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", pci_device)
    memory = re.fullmatch(r"([0-9]{1,9}) MiB", _field(element, "fb_memory_usage/total") or "")
    return NvmlGpu(
        index=index,
        name=_field(element, "product_name"),
        uuid=_field(element, "uuid"),
        bus_id=bus_id and normal_address(bus_id),
        pci_id=f"{pci_id[2]}:{pci_id[1]}".lower() if pci_id else None,
        memory_mib=int(memory[1]) if memory else None,
        mig=_field(element, "mig_mode/current_mig") == "Enabled",
        slices=tuple(slices),
    )


def _slices(text: str) -> dict[int, list[MigDevice]]:
    """Return the slices of the list by the number of their card."""
    slices: dict[int, list[MigDevice]] = defaultdict(list)
    card: int | None = None
    for line in text.splitlines():
        header = _LISTED.match(line)
        if header:
            card = int(header[1])
        part = _SLICE.match(line)
        if part and card is not None:
            profile, uuid = part.groups()
            slices[card].append(MigDevice(uuid, profile))
    return slices


def _field(element: Element, path: str) -> str | None:
    return _cell(element.findtext(path))


def _cell(text: str | None) -> str | None:
    text = (text or "").strip()
    is_void = re.fullmatch(r"(?i)\[?(n/a|not supported|unknown error|gpu is lost|err!)\]?|", text)
    return None if is_void else text
