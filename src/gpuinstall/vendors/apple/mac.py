"""What macOS says of a Mac: its release, its chip and memory by sysctl, its GPUs by system_profiler.

Formats: ``key: value`` lines of sysctl(8) and sw_vers(1); ``system_profiler SPDisplaysDataType`` as people paste it,
``Metal Support: Metal 3`` from macOS 13 on, ``Metal Family: Supported, Metal GPUFamily Apple 7`` before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.process import run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.facts.source import Source

_MIB = 1024**2
_SECONDS = 10
VENDOR = "0x106b"

_COMMANDS = {
    "sw_vers.txt": ["/usr/bin/sw_vers"],
    "sysctl.txt": ["/usr/sbin/sysctl", "machdep.cpu.brand_string", "hw.memsize", "kern.hv_vmm_present"],
    "system_profiler.txt": ["/usr/sbin/system_profiler", "SPDisplaysDataType"],
}
_OF_A_GPU = ("Chipset Model", "Total Number of Cores", "Vendor", "Metal Support", "Metal Family", "Metal")
"""The lines that are kept: those of displays hold their serial numbers."""


class MacGpu(NamedTuple):
    """One GPU by system_profiler; ``metal`` is what it supports, ``metal 3``, None where it says nothing."""

    name: str
    apples: bool = False
    metal: str | None = None
    cores: int | None = None


@dataclass(frozen=True)
class Mac:
    """``macos`` is the release, ``14.5``; ``memory_mib`` is shared by processor and GPU; ``virtual``: a guest."""

    macos: str | None = None
    chip: str | None = None
    memory_mib: int | None = None
    virtual: bool = False
    gpus: tuple[MacGpu, ...] = ()


def read_mac(source: Source) -> Mac:
    """Ask macOS' own programs."""
    answers = {name: source.answer(name, partial(_ask, command)) for name, command in _COMMANDS.items()}
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
        cores = fields.get("Total Number of Cores", "")
        yield MacGpu(
            name=fields["Chipset Model"],
            apples=VENDOR in fields.get("Vendor", ""),
            metal=_metal(fields.get("Metal Support") or fields.get("Metal Family") or fields.get("Metal") or ""),
            cores=int(cores) if cores.isdecimal() else None,
        )


def kept(text: str) -> str:
    """Keep what is said of GPUs."""
    lines = (line.strip() for line in text.splitlines())
    return "".join(f"{line}\n" for line in lines if line.partition(":")[0] in _OF_A_GPU)


def _metal(text: str) -> str | None:
    match = re.search(r"Metal (?:GPUFamily Apple )?([0-9]+)", text)
    return f"metal {match[1]}" if match and "GPUFamily" not in text else "metal" if "Supported" in text else None


def _pairs(text: str) -> dict[str, str]:
    lines = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in lines if colon}


def _ask(command: list[str]) -> str:
    try:
        out = run(command, seconds=_SECONDS).out
    except OSError:
        return ""
    return kept(out) if command[-1].startswith("SP") else out
