"""Child process that queries NVML through NVIDIA's binding.

The first argument is the file of ``pynvml``. The process writes each line of JSON
before the next query. If the driver hangs or crashes, the output therefore has the
facts read so far and the index of the GPU::

    {"library": "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05", "init": 0}
    {"driver": "580.95.05", "cuda": "13.0"}
    {"at": 0}
    {"index": 0, "name": "NVIDIA H200", "bus_id": "00000000:01:00.0", …}
    {"at": 1}
    {"index": 1, "error": 15}
    {"at": null, "end": true}

An unknown fact is null. If NVML refuses a GPU, ``error`` is the error number. The
library's output goes to stderr.
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

# NVML's errors for an unreachable GPU: no permission, not found, lost, reset required, no resources, unknown. On a
# working GPU, a query for a single fact may return most of them, but not "lost" or "reset required" (GONE).
UNREACHED = (4, 6, 15, 16, 23, 999)
GONE = (15, 16)
PROHIBITED = 2
"""The compute mode that prohibits CUDA."""

nvml: Any = None
"""NVIDIA's binding for NVML."""
STREAM = os.fdopen(os.dup(1), "w", encoding="utf-8")


def main() -> None:
    """Query NVML for the facts that the selection of builds requires."""
    os.dup2(2, 1)
    try:
        write_facts()
    except OSError as error:
        import_module("libcuda_child").end_after_crash(error)


def write_facts() -> None:
    """Write each fact as soon as NVML returns it."""
    if load_binding() and initialize():
        cuda = query(nvml.nvmlSystemGetCudaDriverVersion)
        write_line(
            # A broken driver reports an empty version.
            driver=query(nvml.nvmlSystemGetDriverVersion) or None,
            # 13010 means 13.1.
            cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )
        for index in range(query(nvml.nvmlDeviceGetCount) or 0):
            write_line(at=index)
            write_line(index=index, **describe_gpu(index))
    write_line(at=None, end=True)


def write_line(**facts: Any) -> None:
    """Write a JSON object to stdout as one line, and flush it."""
    STREAM.write(f"{json.dumps(facts)}\n")
    STREAM.flush()


def load_binding() -> bool:
    """Load NVIDIA's NVML binding, or write why it cannot be loaded."""
    global nvml  # noqa: PLW0603  all queries use it
    spec = spec_from_file_location("pynvml", sys.argv[1])
    if spec is None or spec.loader is None:
        write_line(fault="unasked", error="nvidia-ml-py is not installed")
        return False
    # Replace ctypes.util, which the binding imports but does not need. It would load subprocess and shutil, two fifths of
    # this program's time.
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
    """Initialize NVML, and write its result to stdout."""
    status = 0
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        status = error.value
    # Without /proc, such as on Windows, only the binding shows that the library was loaded.
    find_mapped_file = import_module("libcuda_child").find_mapped_file
    library = find_mapped_file("libnvidia-ml") or (nvml.nvmlLib and "nvml")
    if library:
        write_line(library=library, init=status)
    else:
        write_line(fault="missing")
    return status == 0


def query(
    question: Callable[..., Any], *arguments: Any, refusals: tuple[int, ...] = GONE
) -> Any:
    """Return the result of an NVML query, or None if it is not supported."""
    try:
        return question(*arguments)
    except nvml.NVMLError as error:
        if error.value in refusals:
            raise
        return None


def describe_gpu(index: int) -> Answer:
    """Describe a GPU as JSON, or return NVML's error."""
    try:
        return query_gpu(nvml.nvmlDeviceGetHandleByIndex(index))
    except nvml.NVMLError as error:
        return {"error": error.value}


def query_gpu(handle: Any) -> Answer:
    """Query a GPU for the facts that build selection and diagnosis require."""
    # The first query shows whether the GPU is reachable.
    name = query(nvml.nvmlDeviceGetName, handle, refusals=UNREACHED)
    pci = query(nvml.nvmlDeviceGetPciInfo, handle)
    mig_mode = query(nvml.nvmlDeviceGetMigMode, handle)
    is_mig = bool(mig_mode and mig_mode[0])
    capability = query(nvml.nvmlDeviceGetCudaComputeCapability, handle)
    rows = query(nvml.nvmlDeviceGetRemappedRows, handle)
    _, _, remap_pending, remap_failed = rows or (0, 0, 0, 0)
    return {
        "name": name,
        "uuid": query(nvml.nvmlDeviceGetUUID, handle),
        "bus_id": pci and pci.busId,
        # The upper half is the device, and the lower half is the vendor, as in 0x268410DE.
        "pci_id": pci and f"{pci.pciDeviceId & 0xFFFF:04x}:{pci.pciDeviceId >> 16:04x}",
        "compute_capability": capability and "{}.{}".format(*capability),
        "memory_mib": query_memory(handle),
        "mig": is_mig,
        "slices": list_slices(handle) if is_mig else [],
        "prohibited": query(nvml.nvmlDeviceGetComputeMode, handle) == PROHIBITED,
        "remap_pending": bool(remap_pending),
        "remap_failed": bool(remap_failed),
        "fabric": query_fabric(handle),
    }


def query_fabric(handle: Any) -> int | None:
    """Return the state of a GPU's NVLink fabric, 0 (none) to 3 (ready)."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = nvml.nvmlGpuFabricInfo_v2
    if query(nvml.nvmlDeviceGetGpuFabricInfoV, handle, byref(info)) is None:
        return None
    return int(info.state)


def list_slices(handle: Any) -> list[Answer]:
    """List a GPU's usable MIG devices."""
    slices = []
    for number in range(query(nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = query(nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, number)
        uuid = part and query(nvml.nvmlDeviceGetUUID, part)
        if uuid:
            # An example is "NVIDIA A100-SXM4-80GB MIG 1g.10gb".
            name = query(nvml.nvmlDeviceGetName, part) or ""
            profile = name.partition("MIG ")[2] or None
            slices.append(
                {"uuid": uuid, "profile": profile, "memory_mib": query_memory(part)}
            )
    return slices


def query_memory(handle: Any) -> int | None:
    """Return the memory of a GPU or MIG device, if known."""
    amounts = query(nvml.nvmlDeviceGetMemoryInfo, handle)
    return amounts and (int(amounts.total) >> 20 or None)
