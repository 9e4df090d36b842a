"""A program of its own that asks NVML through NVIDIA's binding, prints a line for each answer, and may die of it.

Its first argument is the folder that holds ``pynvml``; ``health`` behind it asks how each card fares instead. Each
line is JSON, written before the next question is asked: a hang or a crash leaves what was known, and shows which card
it happened at::

    {"library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", "init": 0}
    {"driver": "580.95.05", "cuda": 13000, "count": 2}
    {"ask": 0}
    {"index": 0, "name": "NVIDIA H200", "bus_id": "00000000:01:00.0", …}
    {"ask": 1}
    {"index": 1, "error": 15}
    {"end": true}

A fact that NVML does not give is null; if a card itself is refused, ``error`` is NVML's number. What a library
prints for itself goes to stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

sys.path.append(sys.argv[1])

from collections.abc import Callable

import pynvml as nvml  # type: ignore[import-untyped]

# What NVML may answer for a card that it does not reach: no permission, not found, lost, reset required, no resources,
# unknown. One fact alone may be forbidden or unknown on a card that works; lost or to be reset is the card itself.
UNREACHED = (4, 6, 15, 16, 23, 999)
GONE = (15, 16)
NO_PERMISSION = 4

Answer = dict[str, Any]

STREAM = os.fdopen(os.dup(1), "w", encoding="utf-8")


def main() -> None:
    """Ask NVML for everything that a choice needs, or for the cards' health."""
    os.dup2(2, 1)
    describe = describe_health if "health" in sys.argv[2:] else describe_card
    if initialize():
        count = ask(nvml.nvmlDeviceGetCount) or 0
        write_line(
            driver=ask(nvml.nvmlSystemGetDriverVersion),
            cuda=ask(nvml.nvmlSystemGetCudaDriverVersion),
            count=count,
        )
        for index in range(count):
            write_line(ask=index)
            write_line(index=index, **facts_of(index, describe))
    write_line(end=True)


def write_line(**facts: Any) -> None:
    """Write one line, at once."""
    json.dump(facts, STREAM)
    STREAM.write("\n")
    STREAM.flush()


def initialize() -> bool:
    """Initialize, and write what came of it. ``library`` is null if none could be loaded."""
    status = 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        status = error.value
    write_line(library=library_file() or (nvml.nvmlLib and "nvml"), init=status)
    return status == 0


def library_file() -> str | None:
    """Return the file behind the library: its name carries the driver's version."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    mapping = re.search(r"^\S+ \S+ \S+ \S+ \d+ +(/.*/libnvidia-ml\.so[^/\n]*)$", maps, re.MULTILINE)
    return mapping and mapping[1]


def ask(question: Callable[..., Any], *arguments: Any, refusals: tuple[int, ...] = GONE) -> Any:
    """Ask; None if this driver or this card has no answer. Raise if the card is not reached."""
    try:
        return decode(question(*arguments))
    except nvml.NVMLError as error:
        if error.value in refusals:
            raise
        return None


def decode(value: Any) -> Any:
    """Return a C string as text, and anything else as it is."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def facts_of(index: int, describe: Callable[[Any], Answer]) -> Answer:
    """Describe one card, or return why NVML refuses to."""
    try:
        return describe(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return {"error": error.value}


def describe_card(handle: Any) -> Answer:
    """Ask one card for everything that a choice or a diagnosis needs."""
    name = ask(nvml.nvmlDeviceGetName, handle, refusals=UNREACHED)
    pci = ask(nvml.nvmlDeviceGetPciInfo, handle)
    mig_mode = ask(nvml.nvmlDeviceGetMigMode, handle)
    is_mig = bool(mig_mode and mig_mode[0])
    return {
        "name": name,
        "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
        "bus_id": pci and str(decode(pci.busId)),
        "pci_device_id": pci and pci.pciDeviceId,
        "compute_capability": ask(nvml.nvmlDeviceGetCudaComputeCapability, handle),
        "memory_bytes": memory_bytes(handle),
        "mig": is_mig,
        **(describe_slices(handle) if is_mig else {}),
        "compute_mode": ask(nvml.nvmlDeviceGetComputeMode, handle),
        "remapped_rows": ask(nvml.nvmlDeviceGetRemappedRows, handle),
    }


def describe_slices(handle: Any) -> Answer:
    """List the MIG devices of a card that this process may use, and whether there are others."""
    slices = []
    withheld = False
    for number in range(ask(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            part = ask(
                nvml.nvmlDeviceGetMigDeviceHandleByIndex,
                handle,
                number,
                refusals=(*GONE, NO_PERMISSION),
            )
        except nvml.NVMLError as error:
            if error.value in GONE:
                raise
            withheld = True
            continue
        uuid = part and ask(nvml.nvmlDeviceGetUUID, part)
        if uuid:
            facts = {
                "uuid": uuid,
                "name": ask(nvml.nvmlDeviceGetName, part),
                "memory_bytes": memory_bytes(part),
            }
            slices.append(facts)
    return {"slices": slices, "slices_withheld": withheld}


def memory_bytes(handle: Any) -> int | None:
    """Return the memory of a card or a MIG device."""
    amounts = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return amounts and int(amounts.total)


def describe_health(handle: Any) -> Answer:
    """Ask one card about its health: what it does not answer stops no other question."""
    questions: dict[str, tuple[Any, ...]] = {
        "compute_capability": (nvml.nvmlDeviceGetCudaComputeCapability, handle),
        "ecc": (nvml.nvmlDeviceGetEccMode, handle),
        "uncorrected": (nvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0),
        "pages_pending": (nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle),
        "rows": (nvml.nvmlDeviceGetRemappedRows, handle),
        "slowed": (nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        "width": (nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "widest": (nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    }
    return {fact: ask(*question, refusals=()) for fact, question in questions.items()}


if __name__ == "__main__":
    main()
