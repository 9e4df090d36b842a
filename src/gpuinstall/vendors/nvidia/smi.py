"""What nvidia-smi says: the last one asked, for it reads the same NVML and says less.

Its XML (``-q -x``, nvsmi_device_v12.dtd) has everything but the UUIDs of MIG's slices, which ``-L`` lists, and the
compute capability, which is a query of its own since R495. From R610 on the XML may name the CUDA of the user-mode
driver ``cuda_umd_version``, as the header of the table does.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.facts.bus import normal_address
from gpuinstall.facts.children import ask_children
from gpuinstall.machine import MigDevice
from gpuinstall.process import is_trusted
from gpuinstall.vendors.nvidia.libraries import NvmlFacts, NvmlGpu
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator
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

_LOG = re.compile(r"<nvidia_smi_log>.*?</nvidia_smi_log>", re.DOTALL)
_LISTED = re.compile(r"^GPU ([0-9]{1,4}): ")
_SLICE = re.compile(r"^\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")
_CAPABILITY = re.compile(r"^([0-9]{1,2}\.[0-9])\s*$", re.MULTILINE)
_REFUSED = re.compile(
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


def find_smi() -> str | None:
    """Find nvidia-smi by its absolute path: on PATH, else where drivers put it."""
    on_path = (Path(folder, PROGRAM) for folder in os.environ.get("PATH", "").split(os.pathsep))
    paths = (*on_path, *map(Path, KNOWN_PATHS))
    return next((str(path) for path in paths if path.is_absolute() and is_trusted(path)), None)


def parse_smi(text: str) -> NvmlFacts:
    """Read the three answers.

    Where there is none of them, ``init`` is the number behind what was printed instead; ``error`` what that was.
    """
    log = _log(text)
    driver = _version(log, r"[0-9]{2,4}(\.[0-9]{1,4}){1,3}", "driver_version", "kmd_version")
    cuda = _version(log, r"[0-9]{1,3}\.[0-9]{1,2}", "cuda_version", "cuda_umd_version")
    gpus = tuple(_gpus(log, text))
    library = re.search(r"NVML library version: ([0-9.]+)", text)
    refused = next((number for words, number in _REFUSALS if words in text), None)
    return NvmlFacts(
        by=_BY,
        library=f"libnvidia-ml.so.{library[1]}" if library else None,
        init=0 if gpus or driver else refused,
        driver=DriverVersion.parse(driver) if driver else None,
        cuda=CudaVersion.parse(cuda) if cuda else None,
        gpus=gpus,
        fault=None if gpus or driver or refused is not None else "missing",
        error=next((line.strip() for line in text.splitlines() if line.strip()), None),
    )


def _answers(source: Source, gpus: int) -> str:
    program = find_smi()
    if program is None:
        return ""
    environment = {**os.environ, "LC_ALL": "C"}
    answers = ask_children(
        source, _BY, gpus, *(([program, *words], environment) for words in QUESTIONS)
    )
    return "\n".join(finished.out for finished in answers)


def _log(text: str) -> Element | None:
    log = _LOG.search(text)
    if log is None:
        return None
    from xml.etree import ElementTree

    try:
        return ElementTree.fromstring(log[0])  # noqa: S314  without its DTD: no entity is defined
    except ElementTree.ParseError:
        return None


def _gpus(log: Element | None, text: str) -> Iterator[NvmlGpu]:
    """List the cards that answer, then those that nvidia-smi cannot reach."""
    listed = [
        _gpu(index, element)
        for index, element in enumerate(log.iter("gpu") if log is not None else ())
    ]
    slices, capabilities = _slices(text), _CAPABILITY.findall(text)
    if len(capabilities) == len(listed):
        pairs = zip(listed, map(ComputeCapability.parse, capabilities), strict=True)
        listed = [replace(gpu, compute_capability=capability) for gpu, capability in pairs]
    yield from (replace(gpu, slices=slices.get(gpu.index, ())) for gpu in listed)
    # Each of the three answers may refuse the same card.
    refusals = {refused[2] or refused[1]: refused for refused in _REFUSED.finditer(text)}
    for index, refused in enumerate(refusals.values(), len(listed)):
        address = refused[2] and normal_address(refused[2])
        yield NvmlGpu(index, bus_id=address, error=15 if "lost" in refused[3] else 999)


def _gpu(index: int, gpu: Element) -> NvmlGpu:
    bus, device = (
        _field(gpu, "pci/pci_bus_id") or _cell(gpu.get("id")),
        _field(gpu, "pci/pci_device_id") or "",
    )
    packed = re.fullmatch(r"(?:0x)?([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", device)
    memory = re.fullmatch(r"([0-9]{1,9}) MiB", _field(gpu, "fb_memory_usage/total") or "")
    return NvmlGpu(
        index=index,
        name=_field(gpu, "product_name"),
        uuid=_field(gpu, "uuid"),
        bus_id=bus and normal_address(bus),
        pci_id=f"{packed[2]}:{packed[1]}".lower() if packed else None,
        memory_mib=int(memory[1]) if memory else None,
        mig=_field(gpu, "mig_mode/current_mig") == "Enabled",
    )


def _slices(text: str) -> dict[int, tuple[MigDevice, ...]]:
    """Read the slices of the list by the number of their card."""
    slices: dict[int, tuple[MigDevice, ...]] = {}
    card: int | None = None
    for line in text.splitlines():
        listed, part = _LISTED.match(line), _SLICE.match(line)
        card = int(listed[1]) if listed else card
        if part and card is not None:
            slices[card] = (*slices.get(card, ()), MigDevice(part[2], part[1]))
    return slices


def _version(log: Element | None, form: str, *names: str) -> str | None:
    texts = (_field(log, name) or "" for name in names if log is not None)
    return next((text for text in texts if re.fullmatch(form, text)), None)


def _field(element: Element, path: str) -> str | None:
    return _cell(element.findtext(path))


def _cell(text: str | None) -> str | None:
    text = (text or "").strip()
    return (
        None
        if re.fullmatch(r"(?i)\[?(n/a|not supported|unknown error|gpu is lost|err!)\]?|", text)
        else text
    )
