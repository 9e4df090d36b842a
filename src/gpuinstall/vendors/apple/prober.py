"""Apple's half of the probe: a Mac's own GPU, what macOS says of it, and a Python that cannot use it.

Formats: ``key: value`` lines of sysctl(8) and sw_vers(1); ``system_profiler SPDisplaysDataType`` as people paste it,
``Metal Support: Metal 3`` from macOS 13 on, ``Metal Family: Supported, Metal GPUFamily Apple 7`` before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from gpuinstall.facts.source import Source
from gpuinstall.facts.steps import MachineFacts, Step
from gpuinstall.failures.problems import finding_for
from gpuinstall.finding import Finding
from gpuinstall.machine import Gpu
from gpuinstall.process import run
from gpuinstall.vendors.prober import Prober, VendorFindings

_MIB = 1024**2
_SECONDS = 10

_COMMANDS = {
    "sw_vers.txt": ["/usr/bin/sw_vers"],
    "sysctl.txt": [
        "/usr/sbin/sysctl",
        "machdep.cpu.brand_string",
        "hw.memsize",
        "kern.hv_vmm_present",
    ],
    "system_profiler.txt": ["/usr/sbin/system_profiler", "SPDisplaysDataType"],
}
_OF_A_GPU = (
    "Chipset Model",
    "Total Number of Cores",
    "Vendor",
    "Metal Support",
    "Metal Family",
    "Metal",
)
"""The lines that are kept: those of displays hold their serial numbers."""


class MacGpu(NamedTuple):
    """One GPU by system_profiler; ``metal`` is what it supports, ``metal 3``, None where it says nothing."""

    name: str
    apples: bool = False
    metal: str | None = None


@dataclass(frozen=True)
class Mac:
    """``macos`` is the release, ``14.5``; ``memory_mib`` is shared by processor and GPU; ``virtual``: a guest."""

    macos: str | None = None
    chip: str | None = None
    memory_mib: int | None = None
    virtual: bool = False
    gpus: tuple[MacGpu, ...] = ()


@dataclass(frozen=True)
class AppleEvidence:
    """The facts of the machine, and what macOS said."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    mac: Mac = field(default_factory=Mac)


class AppleProber(Prober[AppleEvidence]):
    """The GPU of a Mac with Apple silicon."""

    vendor = "apple"
    evidence = AppleEvidence
    steps = (Step("mac", lambda source, _: read_mac(source)),)
    systems = frozenset({"macos"})

    def answers(self, evidence: AppleEvidence) -> bool:
        """Say whether macOS lists the GPU."""
        return any(gpu.apples for gpu in evidence.mac.gpus)

    def conclude(self, evidence: AppleEvidence) -> VendorFindings:
        """List the GPU, and say where Python or a virtual machine stands before it. Pure."""
        mac = (
            evidence.mac
        )  # whose kernels nobody trusts where it is a virtual one, with a stand-in for a GPU
        given = () if mac.virtual else tuple(gpu for gpu in mac.gpus if gpu.apples)
        names = {"macos": mac.macos, "chip": mac.chip, "memory_mib": mac.memory_mib}
        return VendorFindings(
            gpus=tuple(
                Gpu(
                    index,
                    gpu.name,
                    found_via="system_profiler",
                    vendor="apple",
                    architecture=gpu.metal,
                )
                for index, gpu in enumerate(given)
            ),
            faults=tuple(_faults(evidence)),
            notes=tuple(_notes(evidence)),
            shows_gpu=bool(given),
            facts={key: value for key, value in names.items() if value}
            if evidence.facts.host.os == "macos"
            else {},
        )


def _faults(evidence: AppleEvidence) -> Iterator[Finding]:
    if evidence.facts.host.translated and evidence.facts.host.os == "macos":
        message = "this Python is for Intel processors and runs under Rosetta, on a Mac with Apple silicon"
        why = "torch for Intel Macs ended with 2.2.2, and does not support this GPU"
        context, facts = evidence.facts.fix_context, "sysctl.proc_translated: 1"
        yield finding_for("python-under-rosetta", message, context, why=why, evidence=facts)


def _notes(evidence: AppleEvidence) -> Iterator[Finding]:
    mac = evidence.mac
    if mac.virtual and mac.gpus:
        message = f"not used: {mac.gpus[0].name}, the stand-in for a GPU of a virtual machine"
        why = "torch reports MPS as available there even if its kernels fail"
        context = evidence.facts.fix_context
        yield finding_for("gpu-of-a-virtual-mac", message, context, why=why, blocking=False)


def read_mac(source: Source) -> Mac:
    """Ask macOS' own programs."""
    answers = {
        name: source.answer(name, partial(_ask, command)) for name, command in _COMMANDS.items()
    }
    release, system = _pairs(answers["sw_vers.txt"]), _pairs(answers["sysctl.txt"])
    memory = system.get("hw.memsize", "")
    return Mac(
        macos=release.get("ProductVersion"),
        chip=system.get("machdep.cpu.brand_string"),
        memory_mib=int(memory) // _MIB if memory.isdecimal() else None,
        virtual=system.get("kern.hv_vmm_present") == "1",
        gpus=tuple(parse_gpus(answers["system_profiler.txt"])),
    )


def parse_gpus(text: str) -> Iterator[MacGpu]:
    """Read the GPUs, each from its ``Chipset Model`` on."""
    for part in re.split(r"(?m)^(?=\s*Chipset Model:)", text)[1:]:
        fields = _pairs(part)
        support = (
            fields.get("Metal Support") or fields.get("Metal Family") or fields.get("Metal") or ""
        )
        number = re.search(r"Metal ([0-9]+)", support)
        metal = f"metal {number[1]}" if number else "metal" if "Supported" in support else None
        yield MacGpu(
            fields["Chipset Model"], apples="0x106b" in fields.get("Vendor", ""), metal=metal
        )


def kept(text: str) -> str:
    """Keep what is said of GPUs."""
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line.partition(":")[0] in _OF_A_GPU)


def _pairs(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in lines if colon}


def _ask(command: list[str]) -> str:
    try:
        out = run(command, seconds=_SECONDS).out
    except OSError:
        return ""
    return kept(out) if command[-1].startswith("SP") else out
