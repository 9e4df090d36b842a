"""What the driver's libraries say: libcuda, which programs compute through, and NVML, which knows every card.

Each is asked in a child process of its own: ``libcuda_child`` writes one answer, ``nvml_child`` a line for each card.
Here are the environment of both and their answers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from gpuinstall.facts.bus import normal_address
from gpuinstall.facts.children import ask_child, death, last_answer
from gpuinstall.facts.container import JOBS
from gpuinstall.facts.source import Source, json_or_none
from gpuinstall.machine import Gpu, MigDevice
from gpuinstall.process import Finished
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

LibraryFault = Literal["missing", "unloadable", "timeout", "crash"]

_LIBCUDA_CHILD = Path(__file__).with_name("libcuda_child.py")

_MISLEADING = frozenset(
    {"LD_PRELOAD", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_VISIBLE_DEVICES"}
)
_NAMES_A_DEVICE = re.compile(r"([0-9]{1,9})|(?:GPU|MIG)-.+")
_STEADY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}


@dataclass(frozen=True)
class CudaDevice:
    """One device as CUDA sees it, in PCI order; a fact that the driver did not give is None."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_bytes: int | None = None
    bus_id: str | None = None


@dataclass(frozen=True)
class LibcudaFacts:
    """``path`` is the file that the loader took, ``init`` the number that cuInit returned.

    Where there is no such number, ``fault`` says why and ``error`` says it in the loader's or the system's words.
    With MIG, CUDA shows a process one slice and nothing else: ``devices`` is then shorter than NVML's list.
    """

    path: str | None = None
    init: int | None = None
    driver_version: CudaVersion | None = None
    devices: tuple[CudaDevice, ...] = ()
    fault: LibraryFault | None = None
    error: str | None = None


def ask_libcuda(source: Source, gpus: int) -> LibcudaFacts:
    """Ask libcuda, which has time for so many cards; in a scheduler's job only about the cards given."""
    command = (libcuda_command("devices"), child_environment(os.environ, job_devices(os.environ)))
    finished = ask_child(source, "libcuda.txt", "libcuda", gpus, command)
    return parse_libcuda(finished) if finished else LibcudaFacts()


def job_devices(environ: Mapping[str, str]) -> str | None:
    """The CUDA_VISIBLE_DEVICES of a scheduler's job; None outside a job, or where it narrows nothing."""
    return environ.get("CUDA_VISIBLE_DEVICES") if any(environ.get(name) for name in JOBS) else None


def is_visible(devices: str, ordinal: int, gpu: Gpu, name: str) -> bool:
    """Say whether CUDA_VISIBLE_DEVICES names a card, or the slice ``name`` of it; ordinals count the cards given."""
    entries = visible_entries(devices)
    return str(ordinal) in entries or any(
        uuid.startswith(entries) for uuid in (name, gpu.uuid or name)
    )


def visible_entries(devices: str) -> tuple[str, ...]:
    """Return the entries of CUDA_VISIBLE_DEVICES that CUDA heeds: ordinals, and the beginnings of UUIDs.

    An ordinal goes as far as its digits (``1gpu2`` is 1). The first entry that can name no device (``-1``,
    ``NoDevFiles``, an empty one) ends the list, and a repeated one empties it: torch/cuda/__init__.py retells it in
    ``_parse_visible_devices``.
    """
    entries: list[str] = []
    for text in devices.split(","):
        name = _NAMES_A_DEVICE.match(text.strip())
        if name is None:
            break
        entry = str(int(name[1])) if name[1] else name[0]
        if entry in entries:
            return ()
        entries.append(entry)
    return tuple(entries)


def parse_libcuda(finished: Finished) -> LibcudaFacts:
    """Read the child's answer, or its death."""
    answer = last_answer(finished)
    if answer is None:
        return LibcudaFacts(
            fault="timeout" if finished.status is None else "crash",
            error=f"libcuda {death(finished)}",
        )
    if answer.get("path") is None:
        error = str(answer.get("error"))
        return LibcudaFacts(
            fault="missing" if "No such file" in error else "unloadable", error=error
        )
    try:
        version = answer.get("version")
        return LibcudaFacts(
            path=str(answer["path"]),
            init=int(answer.get("init", 0)),
            driver_version=None if version is None else CudaVersion.from_driver_api(int(version)),
            devices=tuple(_device(item) for item in answer.get("devices", ())),
        )
    except (AttributeError, OverflowError, TypeError, ValueError):
        return LibcudaFacts(fault="crash", error="libcuda's answer cannot be read")


def libcuda_command(*words: str) -> list[str]:
    """Start the child isolated from Python's own variables, site and user packages."""
    return [sys.executable, "-I", "-S", str(_LIBCUDA_CHILD), *words]


def child_environment(environ: Mapping[str, str], visible: str | None = None) -> dict[str, str]:
    """Take out what changes CUDA's answer; LD_LIBRARY_PATH stays, some systems have libcuda only there."""
    misleading = {
        name for name in environ if name in _MISLEADING or name.startswith("CUDA_INJECTION")
    }
    kept = {name: value for name, value in environ.items() if name not in misleading}
    return kept | _STEADY | ({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible})


def is_compat(library: str | None) -> bool:
    """Say whether a libcuda is NVIDIA's forward-compatibility package.

    Its folder is ``/usr/local/cuda/compat``, ``cuda-compat``, or a Jetson's ``compat_orin``.
    """
    return any(
        re.fullmatch(r"(.+-)?compat(_[a-z]+)?", part)
        for part in PurePosixPath(library or "").parent.parts
    )


def _device(item: Mapping[str, Any]) -> CudaDevice:
    capability = item.get("compute_capability")
    return CudaDevice(
        name=item.get("name"),
        uuid=item.get("uuid"),
        compute_capability=None if capability is None else ComputeCapability(*capability),
        memory_bytes=item.get("memory_bytes"),
        bus_id=item.get("bus_id"),
    )


_NVML_CHILD = Path(__file__).with_name("nvml_child.py")

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
    slices_withheld: bool = False
    """Whether it has slices that this process may not use."""
    error: int | None = None
    prohibited: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
    virtual: bool = False
    licensed: bool | None = None

    @property
    def is_withheld(self) -> bool:
        """Whether all of it that CUDA could use was given to others."""
        return self.mig and not self.slices and self.slices_withheld


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
    fault: LibraryFault | None = None
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


def nvml_command(*words: str) -> list[str]:
    """Start the child isolated from Python's own variables, site and user packages, with NVIDIA's binding alone."""
    binding = find_spec("pynvml")
    folder = Path(binding.origin).parent if binding and binding.origin else Path()
    return [sys.executable, "-I", "-S", str(_NVML_CHILD), str(folder), *words]


def ask_nvml(source: Source, gpus: int) -> NvmlFacts:
    """Ask NVML, which has time for so many cards."""
    finished = ask_child(
        source, "nvml.txt", "NVML", gpus, (nvml_command(), child_environment(os.environ))
    )
    return parse_nvml(finished) if finished else NvmlFacts()


def permitted(facts: NvmlFacts) -> NvmlFacts:
    """Leave out the cards that this process may not open: those of other jobs and containers."""
    return replace(facts, gpus=tuple(gpu for gpu in facts.gpus if gpu.error != NO_PERMISSION))


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Read the child's lines, as far as it came."""
    facts = NvmlFacts()
    answers = (
        answer
        for answer in map(json_or_none, finished.out.splitlines())
        if isinstance(answer, dict)
    )
    for line in answers:
        if line.get("end") is True:
            return replace(facts, fault="missing" if facts.library is None else None, at=None)
        if "init" in line:
            library = _text(line.get("library"))
            facts = replace(facts, library=library, init=_number(line["init"]) if library else None)
        elif "count" in line:
            count, cuda = _number(line["count"]) or 0, _number(line.get("cuda"))
            cuda_version = CudaVersion.from_driver_api(cuda) if cuda else None
            facts = replace(
                facts, driver=_driver(line.get("driver")), cuda=cuda_version, count=count
            )
        elif "ask" in line:
            facts = replace(facts, at=_number(line["ask"]))
        elif _number(line.get("index")) is not None:
            facts = replace(facts, gpus=(*facts.gpus, _gpu(line)))
    fault: LibraryFault = "timeout" if finished.status is None else "crash"
    return replace(facts, fault=fault, error=f"NVML {death(finished)}")


def _gpu(line: Mapping[str, Any]) -> NvmlGpu:
    bus, rows, memory = (
        _text(line.get("bus_id")),
        line.get("remapped_rows"),
        _number(line.get("memory_bytes")),
    )
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
        slices_withheld=line.get("slices_withheld") is True,
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
            yield MigDevice(
                uuid, name.partition("MIG ")[2] or None, memory // _MIB if memory else None
            )


def _capability(pair: object) -> ComputeCapability | None:
    numbers = [_number(part) for part in pair] if isinstance(pair, list) else []
    return (
        ComputeCapability(numbers[0] or 0, numbers[1] or 0)
        if len(numbers) == 2 and numbers[0]
        else None
    )


def _driver(text: object) -> DriverVersion | None:
    try:
        return DriverVersion.parse(str(text))
    except ValueError:
        return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
