"""Apple's half of the probe: a Mac's own GPU, what macOS tells of it, and a Python that cannot use it.

Formats: ``key: value`` lines of sysctl(8) and sw_vers(1); ``system_profiler SPDisplaysDataType`` as people paste it,
``Metal Support: Metal 3`` from macOS 13 on, ``Metal Family: Supported, Metal GPUFamily Apple 7`` before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import NamedTuple

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Gpu
from gpuinstall.base.process import run
from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.problems import finding_for
from gpuinstall.machine.prober import Prober, VendorFindings
from gpuinstall.machine.source import Source
from gpuinstall.machine.steps import MachineFacts, Step

_SECONDS = 10

_SW_VERS = ("/usr/bin/sw_vers",)
_SYSCTL = (
    "/usr/sbin/sysctl",
    "machdep.cpu.brand_string",
    "hw.memsize",
    "kern.hv_vmm_present",
)
_SYSTEM_PROFILER = ("/usr/sbin/system_profiler", "SPDisplaysDataType")

_GPU_FIELDS = (
    "Chipset Model",
    "Total Number of Cores",
    "Vendor",
    "Metal Support",
    "Metal Family",
    "Metal",
)
"""The lines that are recorded: those of displays hold their serial numbers."""


class MacGpu(NamedTuple):
    """One GPU by system_profiler."""

    name: str
    is_apples: bool
    metal: str | None
    """What it supports, ``metal 3``; None if that is not told."""


@dataclass(frozen=True)
class Mac:
    """What macOS tells of a Mac."""

    macos: str | None = None
    """The release, ``14.5``."""
    chip: str | None = None
    memory_mib: int | None = None
    """Shared by processor and GPU."""
    is_virtual: bool = False
    gpus: tuple[MacGpu, ...] = ()


@dataclass(frozen=True)
class AppleEvidence:
    """The facts of the machine, and what macOS told."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    mac: Mac = field(default_factory=Mac)


def _mac(source: Source, _: AppleEvidence) -> Mac:
    """Ask macOS' own programs."""
    release = _fields(source.answer("sw_vers.txt", lambda: _ask(_SW_VERS)))
    system = _fields(source.answer("sysctl.txt", lambda: _ask(_SYSCTL)))
    profile = source.answer("system_profiler.txt", lambda: gpu_lines(_ask(_SYSTEM_PROFILER)))
    memory = system.get("hw.memsize", "")
    return Mac(
        macos=release.get("ProductVersion"),
        chip=system.get("machdep.cpu.brand_string"),
        memory_mib=int(memory) >> 20 if memory.isdecimal() else None,
        is_virtual=system.get("kern.hv_vmm_present") == "1",
        gpus=tuple(_parse_gpus(profile)),
    )


def _ask(command: Sequence[str]) -> str:
    try:
        return run(command, seconds=_SECONDS).out
    except OSError:
        return ""


def gpu_lines(text: str) -> str:
    """Return the lines of system_profiler that are about GPUs."""
    lines = [line.strip() for line in text.splitlines()]
    about_gpus = [line for line in lines if line.partition(":")[0] in _GPU_FIELDS]
    return "".join(f"{line}\n" for line in about_gpus)


def _parse_gpus(text: str) -> Iterator[MacGpu]:
    """Yield the GPUs, each from its ``Chipset Model`` on."""
    for part in re.split(r"(?m)^(?=\s*Chipset Model:)", text)[1:]:
        fields = _fields(part)
        yield MacGpu(
            fields["Chipset Model"],
            is_apples="0x106b" in fields.get("Vendor", ""),
            metal=_metal(fields),
        )


def _metal(fields: dict[str, str]) -> str | None:
    names = ("Metal Support", "Metal Family", "Metal")
    support = next(filter(None, map(fields.get, names)), "")
    number = re.search(r"Metal ([0-9]+)", support)
    if number:
        return f"metal {number[1]}"
    return "metal" if "Supported" in support else None


def _fields(text: str) -> dict[str, str]:
    lines = [line.partition(":") for line in text.splitlines()]
    return {key.strip(): value.strip() for key, colon, value in lines if colon}


class AppleProber(Prober[AppleEvidence]):
    """The GPU of a Mac with Apple silicon."""

    vendor = "apple"
    evidence = AppleEvidence
    steps = (Step("mac", _mac),)
    systems = frozenset({"macos"})

    def answers(self, evidence: AppleEvidence) -> bool:
        """Whether macOS lists the GPU."""
        return any(gpu.is_apples for gpu in evidence.mac.gpus)

    def conclude(self, evidence: AppleEvidence) -> VendorFindings:
        """Return the GPU, and where Python or a virtual machine stands before it. Pure."""
        mac = evidence.mac
        # The GPU of a virtual Mac is a stand-in, whose kernels cannot be trusted.
        given = [] if mac.is_virtual else [gpu for gpu in mac.gpus if gpu.is_apples]
        facts = {
            "macos": mac.macos,
            "chip": mac.chip,
            "memory_mib": mac.memory_mib,
        }
        return VendorFindings(
            gpus=tuple(_gpu(index, gpu) for index, gpu in enumerate(given)),
            faults=tuple(_faults(evidence.facts)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(given),
            facts={key: fact for key, fact in facts.items() if fact},
        )


def _gpu(index: int, gpu: MacGpu) -> Gpu:
    return Gpu(
        index,
        gpu.name,
        found_via="system_profiler",
        vendor="apple",
        architecture=gpu.metal,
    )


def _faults(facts: MachineFacts) -> Iterator[Finding]:
    if facts.host.translated and facts.host.os == "macos":
        yield finding_for(
            "python-under-rosetta",
            "this Python is for Intel processors and runs under Rosetta, on a Mac with Apple silicon",
            facts.fix_context,
            why="torch for Intel Macs ended with 2.2.2, and does not support this GPU",
            evidence="sysctl.proc_translated: 1",
        )


def _notes(evidence: AppleEvidence) -> Iterator[Finding]:
    mac = evidence.mac
    if mac.is_virtual and mac.gpus:
        yield finding_for(
            "gpu-of-a-virtual-mac",
            f"not used: {mac.gpus[0].name}, the stand-in for a GPU of a virtual machine",
            evidence.facts.fix_context,
            why="torch reports MPS as available there even if its kernels fail",
            blocking=False,
        )
