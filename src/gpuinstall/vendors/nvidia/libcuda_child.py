"""A program of its own, of the standard library alone, that asks libcuda, prints one line of JSON, and may die of it.

``devices`` lists what CUDA sees. ``preflight FILE`` runs the kernel of that PTX file on the first device::

    {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "wrong": 0}
    {"path": "...", "call": "cuModuleLoadData", "status": 222, "instead": {"wrong": 0}}

``wrong`` counts the words that are not what they should be; ``call`` was refused with the CUresult ``status``;
``instead`` is the answer of setting memory and reading it back.
What the library prints for itself goes to stderr.
Prototypes and numbers: NVIDIA's cuda.h; the suffixes are the versions that programs built with CUDA 3.2 to 13 ask for.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from array import array
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path
from typing import Any

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
WSL_LIBRARY = Path("/usr/lib/wsl/lib/libcuda.so.1")

COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

NOT_FOUND = 500

# Out of memory; PTX that every release compiles refused, by a compiler of another driver; no PTX compiler, PTX that it
# does not know, compilation switched off.
NO_FAULT_OF_THE_DEVICE = (2, 218, 221, 222, 223)

KERNEL = b"multiply_and_add_index"
COUNT = 65_537
BLOCK = 256
BLOCKS = -(-COUNT // BLOCK)
BYTES = 4 * COUNT
FACTOR = 2_654_435_761
PATTERN = 0x5AC35AC3

PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (POINTER(c_int),),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetUuid": (c_void_p, c_int),
    "cuDeviceGetUuid_v2": (c_void_p, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), c_int),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemcpyHtoD_v2": (c_uint64, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, c_uint64, c_size_t),
    "cuMemsetD32_v2": (c_uint64, c_uint, c_size_t),
    "cuModuleLoadData": (POINTER(c_void_p), c_char_p),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuLaunchKernel": (c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
}


class CudaError(Exception):
    """A call that libcuda refused; ``status`` is its CUresult."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(call, status)
        self.call = call
        self.status = status


class Cuda:
    """libcuda, every prototype declared."""

    def __init__(self) -> None:
        self._library = load()

    def status(self, call: str, *arguments: object) -> int:
        """Call and return the CUresult; NOT_FOUND where this driver has no such function."""
        function = getattr(self._library, call, None)
        if function is None:
            return NOT_FOUND
        function.argtypes, function.restype = PROTOTYPES[call], c_int
        return int(function(*arguments))

    def __call__(self, call: str, *arguments: object) -> None:
        """Call; raise CudaError where libcuda refuses."""
        status = self.status(call, *arguments)
        if status:
            raise CudaError(call, status)


def load() -> ctypes.CDLL:
    """Load libcuda as every CUDA program does, in WSL also where its loader may not look; raise OSError."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        if not WSL_LIBRARY.exists():
            raise
    return ctypes.CDLL(str(WSL_LIBRARY))


def path() -> str:
    """The file behind libcuda: its name carries the driver's version."""
    try:
        return (
            mapped(Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")) or LIBRARY
        )
    except OSError:
        return LIBRARY


def mapped(maps: str) -> str | None:
    """Find libcuda among the files that a process has mapped."""
    mapping = re.search(r"^\S+ \S+ \S+ \S+ \d+ +(/.*/libcuda\.so[^/\n]*)$", maps, re.MULTILINE)
    return mapping and mapping[1]


def devices(cuda: Cuda) -> dict[str, Any]:
    """List the devices; nothing is opened on them."""
    version, count = c_int(), c_int()
    unversioned = cuda.status("cuDriverGetVersion", byref(version))
    init = cuda.status("cuInit", 0)
    if not init:
        cuda.status("cuDeviceGetCount", byref(count))
    return {
        "version": None if unversioned else version.value,
        "init": init,
        "devices": [device(cuda, ordinal) for ordinal in range(count.value)],
    }


def device(cuda: Cuda, ordinal: int) -> dict[str, Any]:
    """Describe one device; a fact that libcuda does not give is left out."""
    handle, memory = c_int(), c_size_t()
    name, bus_id = ctypes.create_string_buffer(256), ctypes.create_string_buffer(32)
    if cuda.status("cuDeviceGet", byref(handle), ordinal):
        return {}
    facts = {
        "name": None
        if cuda.status("cuDeviceGetName", name, 256, handle)
        else name.value.decode(errors="replace"),
        "uuid": uuid(cuda, handle),
        "compute_capability": compute_capability(cuda, handle),
        "memory_bytes": None
        if cuda.status("cuDeviceTotalMem_v2", byref(memory), handle)
        else memory.value,
        "bus_id": None
        if cuda.status("cuDeviceGetPCIBusId", bus_id, 32, handle)
        else bus_id.value.decode(errors="replace").lower(),
    }
    return {key: fact for key, fact in facts.items() if fact is not None}


def uuid(cuda: Cuda, handle: c_int) -> str | None:
    """The identifier that CUDA_VISIBLE_DEVICES takes; a MIG slice has one that differs from its card's."""
    card, part = (ctypes.create_string_buffer(16) for _ in range(2))
    unknown, unversioned = (
        cuda.status("cuDeviceGetUuid", card, handle),
        cuda.status("cuDeviceGetUuid_v2", part, handle),
    )
    if unknown and unversioned:
        return None
    sliced = not unknown and not unversioned and part.raw != card.raw
    digits = (card.raw if unversioned else part.raw).hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "-".join(("MIG" if sliced else "GPU", *parts))


def compute_capability(cuda: Cuda, handle: c_int) -> tuple[int, int] | None:
    """Major and minor; None where libcuda does not say."""
    major, minor = c_int(), c_int()
    failed = cuda.status("cuDeviceGetAttribute", byref(major), COMPUTE_CAPABILITY_MAJOR, handle)
    failed |= cuda.status("cuDeviceGetAttribute", byref(minor), COMPUTE_CAPABILITY_MINOR, handle)
    return None if failed else (major.value, minor.value)


def preflight(cuda: Cuda, ptx: bytes) -> dict[str, Any]:
    """Run the kernel on the first device, or set memory where only the kernel's compilation is in the way."""
    answer = attempt(lambda: kernel(cuda, ptx))
    if answer.get("status") in NO_FAULT_OF_THE_DEVICE:
        answer["instead"] = attempt(lambda: memory(cuda))
    return answer


def attempt(step: Callable[[], int]) -> dict[str, Any]:
    """Take a step that counts wrong words; a refusal by libcuda is an answer too."""
    try:
        return {"wrong": step()}
    except CudaError as refused:
        return {"call": refused.call, "status": refused.status}


def kernel(cuda: Cuda, ptx: bytes) -> int:
    """Give every thread a word of its own; count the words that are not what Python computes."""
    open_device(cuda)
    function = compiled(cuda, ptx)
    data = array("I", (index ^ PATTERN for index in range(COUNT)))
    address = allocated(cuda)
    cuda("cuMemcpyHtoD_v2", address, data.buffer_info()[0], BYTES)
    arguments = (address, c_uint(FACTOR), c_uint(COUNT))
    pointers = (c_void_p * 3)(*(ctypes.addressof(argument) for argument in arguments))
    cuda("cuLaunchKernel", function, BLOCKS, 1, 1, BLOCK, 1, 1, 0, None, pointers, None)
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", data.buffer_info()[0], address, BYTES)
    return sum(
        word != ((index ^ PATTERN) * FACTOR + index) % 2**32 for index, word in enumerate(data)
    )


def memory(cuda: Cuda) -> int:
    """Set memory on the open device; count the words that do not come back."""
    data = array("I", bytes(BYTES))
    address = allocated(cuda)
    cuda("cuMemsetD32_v2", address, PATTERN, COUNT)
    cuda("cuMemcpyDtoH_v2", data.buffer_info()[0], address, BYTES)
    return sum(word != PATTERN for word in data)


def open_device(cuda: Cuda) -> None:
    """Open a context on the first device."""
    handle, context = c_int(), c_void_p()
    cuda("cuInit", 0)
    cuda("cuDeviceGet", byref(handle), 0)
    cuda("cuDevicePrimaryCtxRetain", byref(context), handle)
    cuda("cuCtxSetCurrent", context)


def compiled(cuda: Cuda, ptx: bytes) -> c_void_p:
    """Have the driver compile the PTX for this device."""
    module, function = c_void_p(), c_void_p()
    cuda("cuModuleLoadData", byref(module), ptx)
    cuda("cuModuleGetFunction", byref(function), module, KERNEL)
    return function


def allocated(cuda: Cuda) -> c_uint64:
    """Memory on the device for our words; it lives as long as this process."""
    address = c_uint64()
    cuda("cuMemAlloc_v2", byref(address), BYTES)
    return address


def answer(words: list[str]) -> dict[str, Any]:
    """Do what the command line asks for; the loader's refusal is an answer too."""
    try:
        cuda = Cuda()
    except OSError as refusal:
        return {"path": None, "error": str(refusal)}
    facts = devices(cuda) if words[0] == "devices" else preflight(cuda, Path(words[1]).read_bytes())
    return {"path": path(), **facts}


def main() -> None:
    """Answer on what was stdout; nothing else reaches it."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as stream:
        os.dup2(2, 1)
        stream.write(json.dumps(answer(sys.argv[1:])) + "\n")


if __name__ == "__main__":
    main()
