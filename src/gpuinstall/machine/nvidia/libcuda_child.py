"""Child process that queries libcuda and prints one line of JSON.

``devices`` lists the devices that CUDA sees. ``preflight FILE`` runs the kernel in a
PTX file on the first device::

    {"path": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "wrong": 0}
    {"path": "...", "call": "cuModuleLoadData", "status": 222}

``wrong`` is the number of incorrect words in the kernel's output. ``call`` is the
libcuda function that failed, and ``status`` is its CUresult. The library's output goes
to stderr. The prototypes and numbers are from NVIDIA's cuda.h. The suffixes of the
functions' names select the versions for CUDA 3.2 to 13.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
from array import array
from ctypes import (
    byref,
    c_int,
    c_size_t,
    c_uint,
    c_uint64,
    c_void_p,
    create_string_buffer,
)

# Type checkers recognize this name. Importing typing would slow each start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    Answer = dict[str, Any]

LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
WSL_LIBRARY = "/usr/lib/wsl/lib/libcuda.so.1"

COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76

CRASHED = 0xC0000005 - 2**32
"""The exit status after an access violation on Windows."""

LACKING = -1
"""The result of calling a libcuda function that this driver lacks."""

KERNEL = b"multiply_and_add_index"
# The count is one more than a multiple of the block size, so most threads of the last block must not write.
COUNT = 65_537
BLOCK = 256
BLOCKS = -(-COUNT // BLOCK)
BYTES = 4 * COUNT
FACTOR = 2_654_435_761
PATTERN = 0x5AC35AC3


class CudaError(Exception):
    """Failed call to libcuda, with the function's name and CUresult."""


class Cuda:
    """Loaded libcuda library.

    Arguments other than pointers and C ``int`` must have a ctypes type.
    """

    def __init__(self) -> None:
        self._library = load_library()

    def status(self, call: str, *arguments: object) -> int:
        """Call a libcuda function, and return its CUresult or LACKING."""
        function = getattr(self._library, call, None)
        if function is None:
            return LACKING
        try:
            return int(function(*arguments))
        except OSError as error:
            end_after_crash(error)

    def __call__(self, call: str, *arguments: object) -> None:
        """Call a libcuda function, and raise CudaError if it fails."""
        status = self.status(call, *arguments)
        if status:
            raise CudaError(call, status)

    def read_number(
        self,
        call: str,
        *arguments: int,
        kind: Any = c_int,
    ) -> int | None:
        """Return the number that a function of libcuda writes, or None."""
        number = kind()
        refused = self.status(call, byref(number), *arguments)
        return None if refused else int(number.value)

    def read_text(self, call: str, handle: int) -> str | None:
        """Return the text that a function of libcuda writes, or None."""
        text = self.read_bytes(call, 256, 256, handle)
        return (
            None if text is None else text.partition(b"\0")[0].decode(errors="replace")
        )

    def read_bytes(self, call: str, size: int, *arguments: int) -> bytes | None:
        """Return the bytes that a function of libcuda writes, or None."""
        buffer = create_string_buffer(size)
        return None if self.status(call, buffer, *arguments) else buffer.raw


def end_after_crash(error: OSError) -> NoReturn:
    """End this process after a crash that ctypes on Windows catches."""
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    os._exit(CRASHED)


def load_library() -> ctypes.CDLL:
    """Load libcuda by name as a CUDA program does, or from WSL's folder."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        if not os.path.exists(WSL_LIBRARY):
            raise
    return ctypes.CDLL(WSL_LIBRARY)


def main() -> None:
    """Write the result of the query to stdout, and other output to stderr."""
    stdout = os.dup(1)
    os.dup2(2, 1)
    with os.fdopen(stdout, "w", encoding="utf-8") as stream:
        json.dump(run_query(sys.argv[1:]), stream)
        stream.write("\n")


def run_query(words: list[str]) -> Answer:
    """Run the requested query, or return the error of loading libcuda."""
    try:
        cuda = Cuda()
    except OSError as refusal:
        return {"fault": "missing", "error": str(refusal)}
    if words[0] == "devices":
        facts = list_devices(cuda)
    else:
        with open(words[1], "rb") as ptx:
            facts = preflight(cuda, ptx.read())
    return {"path": find_mapped_file("libcuda") or LIBRARY, **facts}


def find_mapped_file(library: str) -> str | None:
    """Return the versioned file of a loaded driver library."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
            maps = file.read()
    except OSError:
        return None
    return parse_mapped_file(maps, library)


def parse_mapped_file(maps: str, library: str) -> str | None:
    """Return the path of a library from a process's memory maps."""
    file = rf"(?m)^\S+ \S+ \S+ \S+ \d+ +(/.*/{library}\.so[^/\n]*)$"
    mapping = re.search(file, maps)
    return mapping and mapping[1]


def list_devices(cuda: Cuda) -> Answer:
    """List the CUDA devices without creating a CUDA context."""
    version = cuda.read_number("cuDriverGetVersion")
    init = cuda.status("cuInit", 0)
    count = 0 if init else cuda.read_number("cuDeviceGetCount") or 0
    return {
        # 13010 means 13.1.
        "driver_version": version and f"{version // 1000}.{version % 1000 // 10}",
        "init": init,
        "devices": [describe_device(cuda, ordinal) for ordinal in range(count)],
    }


def describe_device(cuda: Cuda, ordinal: int) -> Answer:
    """Describe a CUDA device as JSON, with null for unknown facts."""
    handle = cuda.read_number("cuDeviceGet", ordinal)
    if handle is None:
        return {}
    memory = cuda.read_number("cuDeviceTotalMem_v2", handle, kind=c_size_t)
    return {
        "name": cuda.read_text("cuDeviceGetName", handle),
        "uuid": read_uuid(cuda, handle),
        "compute_capability": read_compute_capability(cuda, handle),
        "memory_mib": memory and memory >> 20,
        "bus_id": cuda.read_text("cuDeviceGetPCIBusId", handle),
    }


def read_uuid(cuda: Cuda, handle: int) -> str | None:
    """Return the UUID of a GPU or MIG slice for CUDA_VISIBLE_DEVICES."""
    card = cuda.read_bytes("cuDeviceGetUuid", 16, handle)
    part = cuda.read_bytes("cuDeviceGetUuid_v2", 16, handle) or card
    if part is None:
        return None
    digits = part.hex()
    kind = "GPU" if card is None or part == card else "MIG"
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def read_compute_capability(cuda: Cuda, handle: int) -> str | None:
    """Return the compute capability, such as ``8.9``, if known."""
    major = cuda.read_number("cuDeviceGetAttribute", COMPUTE_CAPABILITY_MAJOR, handle)
    minor = cuda.read_number("cuDeviceGetAttribute", COMPUTE_CAPABILITY_MINOR, handle)
    return None if major is None or minor is None else f"{major}.{minor}"


def preflight(cuda: Cuda, ptx: bytes) -> Answer:
    """Run a kernel on the first device, or return libcuda's error."""
    try:
        return {"wrong": run_kernel(cuda, ptx)}
    except CudaError as refused:
        call, status = refused.args
        return {"call": call, "status": status}


def run_kernel(cuda: Cuda, ptx: bytes) -> int:
    """Run a kernel on an array, and return the number of wrong words."""
    open_device(cuda)
    function = compile_kernel(cuda, ptx)
    words = array("I", (index ^ PATTERN for index in range(COUNT)))
    address = c_uint64()
    size = c_size_t(BYTES)
    on_host = c_void_p(words.buffer_info()[0])
    cuda("cuMemAlloc_v2", byref(address), size)
    cuda("cuMemcpyHtoD_v2", address, on_host, size)
    arguments = (address, c_uint(FACTOR), c_uint(COUNT))
    pointers = (c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
    grid = (BLOCKS, 1, 1)
    block = (BLOCK, 1, 1)
    cuda("cuLaunchKernel", function, *grid, *block, 0, None, pointers, None)
    cuda("cuCtxSynchronize")
    cuda("cuMemcpyDtoH_v2", on_host, address, size)
    wrong = 0
    for index, word in enumerate(words):
        wrong += word != ((index ^ PATTERN) * FACTOR + index) % 2**32
    return wrong


def open_device(cuda: Cuda) -> None:
    """Create a CUDA context on the first device."""
    handle = c_int()
    context = c_void_p()
    cuda("cuInit", 0)
    cuda("cuDeviceGet", byref(handle), 0)
    cuda("cuDevicePrimaryCtxRetain", byref(context), handle)
    cuda("cuCtxSetCurrent", context)


def compile_kernel(cuda: Cuda, ptx: bytes) -> c_void_p:
    """Compile the PTX for the current CUDA device, and return the kernel."""
    module = c_void_p()
    function = c_void_p()
    cuda("cuModuleLoadData", byref(module), ptx)
    cuda("cuModuleGetFunction", byref(function), module, KERNEL)
    return function
