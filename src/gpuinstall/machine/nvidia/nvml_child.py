"""A program of its own that asks NVML through NVIDIA's binding, prints a line for each answer, and may die of it.

Its first argument is the file of ``pynvml``. Each line is JSON, written before the next question is asked: a
hang or a crash leaves what was known, and shows which card it happened at::

    {"library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", "init": 0}
    {"driver": "580.95.05", "cuda": "13.0"}
    {"at": 0}
    {"index": 0, "name": "NVIDIA H200", "bus_id": "00000000:01:00.0", …}
    {"at": 1}
    {"index": 1, "error": 15}
    {"at": null, "end": true}

A fact that NVML does not give is null, and the names are those of the values that are read; if a card itself is refused,
``error`` is NVML's number. What a library prints for itself goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from ctypes import byref
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Answer = dict[str, Any]

# What NVML may answer for a card that it does not reach: no permission, not found, lost, reset required, no resources,
# unknown. One fact alone may be forbidden or unknown on a card that works; lost or to be reset is the card itself.
UNREACHED = (4, 6, 15, 16, 23, 999)
GONE = (15, 16)
NO_PERMISSION = 4
PROHIBITED = 2
"""A compute mode."""

nvml: Any = None
"""NVIDIA's binding."""
STREAM = os.fdopen(os.dup(1), "w", encoding="utf-8")


def main() -> None:
    """Ask NVML for everything that a choice needs."""
    os.dup2(2, 1)
    if load_binding() and initialize():
        cuda = ask(nvml.nvmlSystemGetCudaDriverVersion)
        write_line(
            driver=ask(nvml.nvmlSystemGetDriverVersion),
            # 13010 is 13.1.
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
            awaits_attestation=awaits_attestation(),
        )
        for index in range(ask(nvml.nvmlDeviceGetCount) or 0):
            write_line(at=index)
            write_line(index=index, **facts_of(index))
    write_line(at=None, end=True)


def write_line(**facts: Any) -> None:
    """Write one line, at once."""
    STREAM.write(f"{json.dumps(facts)}\n")
    STREAM.flush()


def load_binding() -> bool:
    """Load the binding, and nothing else of its folder; write why it cannot be loaded."""
    global nvml  # noqa: PLW0603  the answers below ask through it
    spec = spec_from_file_location("pynvml", sys.argv[1])
    if spec is None or spec.loader is None:
        write_line(fault="unasked", error="nvidia-ml-py is not installed")
        return False
    # The binding imports it for nothing, and it loads subprocess and shutil: two fifths of this program's time.
    unused: Any = ModuleType("ctypes.util")
    unused.find_library = lambda _name: None
    sys.modules[unused.__name__] = unused
    nvml = sys.modules.setdefault(spec.name, module_from_spec(spec))
    try:
        spec.loader.exec_module(nvml)
    except (ImportError, OSError) as error:
        write_line(fault="unasked", error=f"nvidia-ml-py cannot be loaded: {error}")
        return False
    return True


def initialize() -> bool:
    """Initialize, and write what came of it."""
    status = 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        status = error.value
    # Without /proc, as on Windows, the binding alone knows that something was loaded.
    mapped_file = import_module("libcuda_child").mapped_file
    library = mapped_file("libnvidia-ml") or (nvml.nvmlLib and "nvml")
    if library:
        write_line(library=library, init=status)
    else:
        write_line(fault="missing")
    return status == 0


def awaits_attestation() -> bool:
    """Whether the GPUs compute confidentially, and were not yet told to accept work."""
    state = ask(nvml.nvmlSystemGetConfComputeState)
    if not state or state.ccFeature != nvml.NVML_CC_SYSTEM_FEATURE_ENABLED:
        return False
    ready = ask(nvml.nvmlSystemGetConfComputeGpusReadyState)
    return bool(ready == nvml.NVML_CC_ACCEPTING_CLIENT_REQUESTS_FALSE)


def ask(
    question: Callable[..., Any], *arguments: Any, refusals: tuple[int, ...] = GONE
) -> Any:
    """Ask; None if this driver or this card has no answer. Raise if the card is not reached."""
    try:
        return question(*arguments)
    except nvml.NVMLError as error:
        if error.value in refusals:
            raise
        return None


def facts_of(index: int) -> Answer:
    """Describe one card, or return why NVML refuses to."""
    try:
        return describe_card(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return {"error": error.value}


def describe_card(handle: Any) -> Answer:
    """Ask one card for everything that a choice or a diagnosis needs."""
    # The first question shows whether the card is reached at all.
    name = ask(nvml.nvmlDeviceGetName, handle, refusals=UNREACHED)
    pci = ask(nvml.nvmlDeviceGetPciInfo, handle)
    mig_mode = ask(nvml.nvmlDeviceGetMigMode, handle)
    is_mig = bool(mig_mode and mig_mode[0])
    capability = ask(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    rows = ask(nvml.nvmlDeviceGetRemappedRows, handle)
    _, _, remap_pending, remap_failed = rows or (0, 0, 0, 0)
    return {
        "name": name,
        "uuid": ask(nvml.nvmlDeviceGetUUID, handle),
        "bus_id": pci and pci.busId,
        # The device above the vendor: 0x268410DE.
        "pci_id": pci and f"{pci.pciDeviceId & 0xFFFF:04x}:{pci.pciDeviceId >> 16:04x}",
        "compute_capability": capability and "{}.{}".format(*capability),
        "memory_mib": memory_mib(handle),
        "mig": is_mig,
        **(describe_slices(handle) if is_mig else {}),
        "prohibited": ask(nvml.nvmlDeviceGetComputeMode, handle) == PROHIBITED,
        "remap_pending": bool(remap_pending),
        "remap_failed": bool(remap_failed),
        "fabric": fabric(handle),
    }


def fabric(handle: Any) -> int | None:
    """Return how far the NVLink fabric of a card is: 0 it has none, 1 not started, 2 being set up, 3 ready."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = nvml.nvmlGpuFabricInfo_v2
    if ask(nvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info)) is None:
        return None
    return int(info.state)


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
            # "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
            name = ask(nvml.nvmlDeviceGetName, part) or ""
            profile = name.partition("MIG ")[2] or None
            slices.append(
                {"uuid": uuid, "profile": profile, "memory_mib": memory_mib(part)}
            )
    return {"slices": slices, "slices_withheld": withheld}


def memory_mib(handle: Any) -> int | None:
    """Return the memory of a card or a MIG device; None if it is not told."""
    amounts = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
    return amounts and (int(amounts.total) >> 20 or None)
