"""What NVML says: the driver, every card in PCI order, and what it refuses.

It is asked in a child process (:mod:`gpuinstall.vendors.nvidia.nvml_child`), which writes a line for each answer.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuinstall.facts.bus import normal_address
from gpuinstall.facts.children import ask_child, death
from gpuinstall.facts.source import Source, json_or_none
from gpuinstall.machine import MigDevice
from gpuinstall.vendors.nvidia.libcuda import child_environment
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.process import Finished

_Fault = Literal["missing", "timeout", "crash"]

_CHILD = Path(__file__).with_name("nvml_child.py")

_MIB = 1024 * 1024
NO_PERMISSION = 4
PROHIBITED = 2
VIRTUAL_GPU = 2


@dataclass(frozen=True)
class NvmlGpu:
    """One card as NVML sees it; ``error`` is NVML's number where it refused, and the rest is then unknown."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: str | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    mig: bool = False
    slices: tuple[MigDevice, ...] = ()
    error: int | None = None
    prohibited: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
    virtual: bool = False
    licensed: bool | None = None


@dataclass(frozen=True)
class NvmlFacts:
    """``init`` is what nvmlInit returned (None: nobody asked), ``library`` the file loaded, ``by`` who was asked.

    ``count`` is the number of cards that it has, ``gpus`` are those about which it answered.
    Where NVML gave no answer to the end, ``fault`` says why, ``error`` says it in words, and ``at`` is the card that
    it was asked about.
    """

    by: str = "nvml"
    library: str | None = None
    init: int | None = None
    driver: DriverVersion | None = None
    cuda: CudaVersion | None = None
    count: int = 0
    gpus: tuple[NvmlGpu, ...] = ()
    fault: _Fault | None = None
    error: str | None = None
    at: int | None = None

    @property
    def was_asked(self) -> bool:
        """Say whether anybody asked: on a recorded machine it may be that nobody did."""
        return self != NvmlFacts()

    @property
    def works(self) -> bool:
        """Say whether NVML was initialized and answered to the end."""
        return self.init == 0 and self.fault is None


def nvml_command() -> list[str]:
    """Start the child isolated from Python's own variables, site and user packages, with NVIDIA's binding alone."""
    binding = find_spec("pynvml")
    folder = Path(binding.origin).parent if binding and binding.origin else Path()
    return [sys.executable, "-I", "-S", str(_CHILD), str(folder)]


def ask_nvml(source: Source, gpus: int) -> NvmlFacts:
    """Ask NVML, which has time for so many cards."""
    command = (nvml_command(), child_environment(os.environ))
    finished = ask_child(source, "nvml.txt", "NVML", gpus, command)
    return parse_nvml(finished) if finished else NvmlFacts()


def permitted(facts: NvmlFacts) -> NvmlFacts:
    """Leave out the cards that this process may not open: those of other jobs and containers."""
    return replace(facts, gpus=tuple(gpu for gpu in facts.gpus if gpu.error != NO_PERMISSION))


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Read the child's lines, as far as it came."""
    facts = NvmlFacts()
    answers = (answer for answer in map(json_or_none, finished.out.splitlines()) if isinstance(answer, dict))
    for line in answers:
        if line.get("end") is True:
            return replace(facts, fault="missing" if facts.library is None else None, at=None)
        if "init" in line:
            library = _text(line.get("library"))
            facts = replace(facts, library=library, init=_number(line["init"]) if library else None)
        elif "count" in line:
            count, cuda = _number(line["count"]) or 0, _number(line.get("cuda"))
            cuda_version = CudaVersion.from_driver_api(cuda) if cuda else None
            facts = replace(facts, driver=_driver(line.get("driver")), cuda=cuda_version, count=count)
        elif "ask" in line:
            facts = replace(facts, at=_number(line["ask"]))
        elif _number(line.get("index")) is not None:
            facts = replace(facts, gpus=(*facts.gpus, _gpu(line)))
    fault: _Fault = "timeout" if finished.status is None else "crash"
    return replace(facts, fault=fault, error=f"NVML {death(finished)}")


def _gpu(line: Mapping[str, Any]) -> NvmlGpu:
    bus, rows, memory = _text(line.get("bus_id")), line.get("remapped_rows"), _number(line.get("memory_bytes"))
    remapped = rows if isinstance(rows, list) and len(rows) == 4 else (0, 0, 0, 0)
    packed = _number(line.get("pci_device_id"))  # the device above the vendor: 0x268410DE
    return NvmlGpu(
        index=_number(line.get("index")) or 0,
        name=_text(line.get("name")),
        uuid=_text(line.get("uuid")),
        bus_id=bus and normal_address(bus),
        pci_id=f"{packed & 0xFFFF:04x}:{packed >> 16:04x}" if packed else None,
        compute_capability=_capability(line.get("compute_capability")),
        memory_mib=memory // _MIB if memory else None,
        mig=line.get("mig") is True,
        slices=tuple(_slices(line.get("slices"))),
        error=_number(line.get("error")),
        prohibited=line.get("compute_mode") == PROHIBITED,
        remap_pending=bool(remapped[2]),
        remap_failed=bool(remapped[3]),
        virtual=line.get("virtualization") == VIRTUAL_GPU,
        licensed=line.get("licensed") if isinstance(line.get("licensed"), bool) else None,
    )


def _slices(parts: object) -> Iterator[MigDevice]:
    for part in parts if isinstance(parts, list) else ():
        uuid = _text(part.get("uuid")) if isinstance(part, dict) else None
        if uuid is not None:
            name, memory = _text(part.get("name")) or "", _number(part.get("memory_bytes"))
            yield MigDevice(uuid, name.partition("MIG ")[2] or None, memory // _MIB if memory else None)


def _capability(pair: object) -> ComputeCapability | None:
    numbers = [_number(part) for part in pair] if isinstance(pair, list) else []
    return ComputeCapability(numbers[0] or 0, numbers[1] or 0) if len(numbers) == 2 and numbers[0] else None


def _driver(text: object) -> DriverVersion | None:
    try:
        return DriverVersion.parse(str(text))
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
