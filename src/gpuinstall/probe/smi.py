"""What nvidia-smi says: the last one asked, for it reads the same NVML and says less.

Both spellings of its header are known; from R610 on it is ``KMD Version`` and ``CUDA UMD Version``.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuinstall.machine import MigDevice
from gpuinstall.probe.child import run_children
from gpuinstall.probe.nvml import NvmlFacts, NvmlGpu
from gpuinstall.probe.pci import normal_address
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BY = "nvidia-smi"
PROGRAM = "nvidia-smi.exe" if sys.platform == "win32" else BY
PLACES = (
    "/usr/bin/nvidia-smi",
    "/usr/lib/wsl/lib/nvidia-smi",
    "/run/current-system/sw/bin/nvidia-smi",
    "/usr/local/nvidia/bin/nvidia-smi",
    "C:\\Windows\\System32\\nvidia-smi.exe",
    "C:\\Program Files\\NVIDIA Corporation\\NVSMI\\nvidia-smi.exe",
)
FIELDS = ("index", "name", "uuid", "pci.bus_id", "pci.device_id", "memory.total", "mig.mode.current", "compute_cap")

_DRIVER = re.compile(r"(?:Driver|KMD) Version\s*:\s*([0-9]{2,4}(?:\.[0-9]{1,4}){1,3})")
_CUDA = re.compile(r"CUDA(?: UMD)? Version\s*:\s*([0-9]{1,3}\.[0-9]{1,2})")
_ROW = re.compile(
    r"^\|\s+([0-9]{1,4})\s+(\S.*?)\s+(?:On|Off|N/A|TCC|WDDM|MCDM)\s*\|\s+(N/A|[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2}\.[0-7])\s",
    re.IGNORECASE,
)
_LISTED = re.compile(r"^GPU ([0-9]{1,4}): (.+?)(?: \(UUID: (GPU-[0-9a-fA-F-]+)\))?\s*$")
_SLICE = re.compile(r"^\s+MIG (\S+)\s+Device\s+[0-9]+: \(UUID: (MIG-[0-9a-zA-Z/-]+)\)")
_REFUSED = re.compile(r"Unable to determine the device handle for GPU\s*([0-9A-Fa-f:.]+): (.*)")

# What nvidia-smi prints instead of a table, and the number of NVML's that stands behind it.
_REFUSALS = (
    ("Driver/library version mismatch", 18),
    ("couldn't communicate with the NVIDIA driver", 9),
    ("couldn't find libnvidia-ml.so", 12),
    ("Failed to initialize NVML: Insufficient Permissions", 4),
    ("Failed to initialize NVML: Unknown Error", 999),
    ("No devices were found", 0),
    ("No devices found", 0),
)


def find_smi() -> str | None:
    """Find nvidia-smi by its absolute path: on PATH, else where drivers put it."""
    on_path = (Path(folder, PROGRAM) for folder in os.environ.get("PATH", "").split(os.pathsep))
    places = (*on_path, *map(Path, PLACES))
    return next((str(place) for place in places if place.is_absolute() and _is_trusted(place)), None)


def ask_smi(seconds: float, waiting: Callable[[], None]) -> str:
    """Run nvidia-smi for its table, its list and a query; return their texts, empty where there is no nvidia-smi."""
    program = find_smi()
    if program is None:
        return ""
    # compute_cap came after R470; there the query is refused as a whole.
    queries = [
        [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        for fields in (FIELDS, FIELDS[:-1])
    ]
    commands = [[program], [program, "-L"], *queries]
    table, listed, full, short = run_children(
        [(command, {**os.environ, "LC_ALL": "C"}) for command in commands], seconds, waiting
    )
    return f"{table.out}\n{listed.out}\n{(full if full.ok else short).out}"


def parse(text: str) -> NvmlFacts:
    """Read a table, a list and a query out of whatever text they stand in.

    Where there is none of them, ``init`` is the number behind what was printed instead; ``error`` what that was.
    """
    driver, cuda = _DRIVER.search(text), _CUDA.search(text)
    gpus = tuple(_gpus(text))
    library = re.search(r"NVML library version: ([0-9.]+)", text)
    refused = next((number for words, number in _REFUSALS if words in text), None)
    return NvmlFacts(
        by=BY,
        library=f"libnvidia-ml.so.{library[1]}" if library else None,
        init=0 if gpus or driver else refused,
        driver=DriverVersion.parse(driver[1]) if driver else None,
        cuda=CudaVersion.parse(cuda[1]) if cuda else None,
        gpus=gpus,
        fault=None if gpus or driver or refused is not None else "missing",
        error=_first_line(text),
    )


def _gpus(text: str) -> Iterator[NvmlGpu]:
    """List the cards by the query, else by the table, else by the list; the list alone has the slices."""
    found = tuple(_queried(text)) or tuple(_tabled(text)) or tuple(_listed(text))
    listed = {gpu.index: gpu for gpu in _listed(text)}
    for gpu in found:
        more = listed.get(gpu.index)
        yield (
            replace(gpu, uuid=gpu.uuid or more.uuid, slices=more.slices, mig=gpu.mig or bool(more.slices))
            if more
            else gpu
        )
    first = max((gpu.index for gpu in found), default=-1) + 1
    for place, refused in enumerate(_REFUSED.finditer(text)):
        yield NvmlGpu(first + place, bus_id=normal_address(refused[1]), error=15 if "lost" in refused[2] else 999)


def _queried(text: str) -> Iterator[NvmlGpu]:
    for line in text.splitlines():
        cells = line.split(",")
        if re.match(r"\s*[0-9]{1,4}\s*,\s*\w", line) and len(cells) in (len(FIELDS), len(FIELDS) - 1):
            yield _gpu(dict(zip(FIELDS, map(_cell, cells), strict=False)))


def _gpu(cells: dict[str, str | None]) -> NvmlGpu:
    bus, device = cells["pci.bus_id"], re.fullmatch(r"0x([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", cells["pci.device_id"] or "")
    memory, capability = cells["memory.total"] or "", cells.get("compute_cap") or ""
    return NvmlGpu(
        index=int(cells["index"] or 0),
        name=cells["name"],
        uuid=cells["uuid"],
        bus_id=bus and normal_address(bus),
        pci_id=f"{device[2]}:{device[1]}".lower() if device else None,
        memory_mib=int(memory) if re.fullmatch(r"[0-9]{1,9}", memory) else None,
        mig=cells["mig.mode.current"] == "Enabled",
        compute_capability=ComputeCapability.parse(capability)
        if re.fullmatch(r"[0-9]{1,2}\.[0-9]", capability)
        else None,
    )


def _tabled(text: str) -> Iterator[NvmlGpu]:
    lines = text.splitlines()
    for place, line in enumerate(lines):
        row = _ROW.match(line)
        if row:
            below, last = (*lines[place + 1 : place + 3], "", "")[:2]
            memory = re.search(r"/\s*([0-9]{1,9})MiB", below)
            yield NvmlGpu(
                index=int(row[1]),
                name=row[2],
                bus_id=None if row[3] == "N/A" else normal_address(row[3]),
                memory_mib=int(memory[1]) if memory else None,
                mig="Enabled" in last,
            )


def _listed(text: str) -> Iterator[NvmlGpu]:
    gpu: NvmlGpu | None = None
    for line in text.splitlines():
        card, part = _LISTED.match(line), _SLICE.match(line)
        if card:
            yield from (gpu,) if gpu else ()
            gpu = NvmlGpu(int(card[1]), card[2], card[3])
        elif part and gpu:
            gpu = replace(gpu, slices=(*gpu.slices, MigDevice(part[2], part[1])))
    yield from (gpu,) if gpu else ()


def _cell(text: str) -> str | None:
    text = text.strip()
    return None if re.fullmatch(r"(?i)\[?(n/a|not supported|unknown error|gpu is lost|err!)\]?|", text) else text


def _first_line(text: str) -> str | None:
    return next((line.strip() for line in text.splitlines() if line.strip()), None)


def _is_trusted(program: Path) -> bool:
    """Nothing is run from a folder that everyone can write to, unless it is sticky and the program is ours."""
    try:
        real = program.resolve(strict=True)
        return real.is_file() and os.access(real, os.X_OK) and _is_safe(program) and _is_safe(real)
    except OSError:
        return False


def _is_safe(program: Path) -> bool:
    mode = program.parent.stat().st_mode
    if sys.platform == "win32" or not mode & stat.S_IWOTH:
        return True
    return bool(mode & stat.S_ISVTX) and program.lstat().st_uid == os.getuid()
