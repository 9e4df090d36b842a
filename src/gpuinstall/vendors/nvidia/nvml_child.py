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

A fact that NVML does not give is null; where a card itself is refused, ``error`` is NVML's number. What a library
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
FUNCTION_NOT_FOUND = 13

STREAM = os.fdopen(os.dup(1), "w", encoding="utf-8")


def say(**facts: Any) -> None:
    """Write one line, at once."""
    STREAM.write(json.dumps(facts) + "\n")
    STREAM.flush()


def asked(question: Callable[..., Any], *arguments: Any, refusals: tuple[int, ...] = GONE) -> Any:
    """Ask; None where this driver or this card has no answer. Raise where the card is not reached."""
    try:
        answer = question(*arguments)
    except nvml.NVMLError as error:
        if error.value in refusals:
            raise
        return None
    return answer.decode(errors="replace") if isinstance(answer, bytes) else answer


def library() -> str | None:
    """The file behind the library: its name carries the driver's version."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    mapping = re.search(r"^\S+ \S+ \S+ \S+ \d+ +(/.*/libnvidia-ml\.so[^/\n]*)$", maps, re.MULTILINE)
    return mapping and mapping[1]


def initialized() -> bool:
    """Initialize; say what came of it. ``library`` is null where none could be loaded."""
    try:
        nvml.nvmlInit()
        status = 0
    except nvml.NVMLError as error:  # a driver before R387 has the older name alone
        status = int(
            nvml.nvmlLib.nvmlInit_v2() if error.value == FUNCTION_NOT_FOUND else error.value
        )
    say(library=library() or (nvml.nvmlLib and "nvml"), init=status)
    return status == 0


def card(index: int, describe: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """Describe one card, or say why NVML refuses to."""
    try:
        return {"index": index, **describe(nvml.nvmlDeviceGetHandleByIndex(index))}
    except nvml.NVMLError as error:
        return {"index": index, "error": error.value}


def described(handle: Any) -> dict[str, Any]:
    """Ask one card for everything that a choice or a diagnosis needs."""
    name = asked(nvml.nvmlDeviceGetName, handle, refusals=UNREACHED)
    pci = asked(nvml.nvmlDeviceGetPciInfo, handle)
    mig = asked(nvml.nvmlDeviceGetMigMode, handle)
    return {
        "name": name,
        "uuid": asked(nvml.nvmlDeviceGetUUID, handle),
        "bus_id": pci and text(pci.busId),
        "pci_device_id": pci and pci.pciDeviceId,
        "compute_capability": asked(nvml.nvmlDeviceGetCudaComputeCapability, handle),
        "memory_bytes": memory(handle),
        "mig": bool(mig and mig[0]),
        **(slices(handle) if mig and mig[0] else {}),
        "compute_mode": asked(nvml.nvmlDeviceGetComputeMode, handle),
        "remapped_rows": asked(nvml.nvmlDeviceGetRemappedRows, handle),
        "virtualization": asked(nvml.nvmlDeviceGetVirtualizationMode, handle),
        "licensed": licensed(handle),
    }


def health(handle: Any) -> dict[str, Any]:
    """Ask one card how it fares: what it does not answer stops no other question."""
    questions: dict[str, tuple[Any, ...]] = {
        "compute_capability": (nvml.nvmlDeviceGetCudaComputeCapability, handle),
        "ecc": (nvml.nvmlDeviceGetEccMode, handle),
        "uncorrected": (nvml.nvmlDeviceGetTotalEccErrors, handle, 1, 0),
        "pages_pending": (nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle),
        "rows": (nvml.nvmlDeviceGetRemappedRows, handle),
        "slowed": (nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        "width": (nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        "generation": (nvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        "widest": (nvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    }
    return {fact: asked(*question, refusals=()) for fact, question in questions.items()}


def slices(handle: Any) -> dict[str, Any]:
    """List the MIG devices of a card that this process may use, and say whether there are others."""
    listed, withheld = [], False
    for number in range(asked(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        try:
            part = asked(
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
        if part is None:
            continue
        uuid, name = asked(nvml.nvmlDeviceGetUUID, part), asked(nvml.nvmlDeviceGetName, part)
        listed.append({"uuid": uuid, "name": name, "memory_bytes": memory(part)})
    return {"slices": listed, "slices_withheld": withheld}


def memory(handle: Any) -> int | None:
    """Bytes of a card or a MIG device, by either form of the question."""
    ask = nvml.nvmlDeviceGetMemoryInfo
    amounts = asked(ask, handle) or asked(ask, handle, nvml.nvmlMemory_v2)
    return amounts and int(amounts.total)


def licensed(handle: Any) -> bool | None:
    """Say whether a virtual GPU has its licence; None where none is asked for."""
    features = asked(nvml.nvmlDeviceGetGridLicensableFeatures, handle)
    if not features or not features.isGridLicenseSupported:
        return None
    rows = features.gridLicensableFeatures[: features.licensableFeaturesCount]
    return any(row.featureState for row in rows) if len(rows) else None


def text(value: Any) -> str:
    """A C string as text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def main() -> None:
    """Ask NVML for everything that a choice needs, or for the cards' health."""
    os.dup2(2, 1)
    describe = health if "health" in sys.argv[2:] else described
    if initialized():
        count = asked(nvml.nvmlDeviceGetCount) or 0
        driver, cuda = (
            asked(nvml.nvmlSystemGetDriverVersion),
            asked(nvml.nvmlSystemGetCudaDriverVersion),
        )
        say(driver=driver, cuda=cuda, count=count)
        for index in range(count):
            say(ask=index)
            say(**card(index, describe))
    say(end=True)


if __name__ == "__main__":
    main()
