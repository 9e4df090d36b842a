"""Queries of the driver's libraries, libcuda and NVML.

Each library runs in its own child process. ``libcuda_child`` writes one line, and
``nvml_child`` writes several lines per GPU. This module prepares the environment of
both and parses their output.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from gpuinstall.base.codec import read_object
from gpuinstall.base.machine import MigDevice
from gpuinstall.base.process import Finished
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.bus import normalize_address
from gpuinstall.machine.children import (
    DRIVER_SECONDS,
    classify_fault,
    describe_end,
    json_lines,
)
from gpuinstall.machine.container import read_job_devices
from gpuinstall.machine.source import Source

NVML = "libnvidia-ml.so.1"
LIBCUDA = "libcuda.so.1"
NVCUDA = "nvcuda.dll"
"""The driver's CUDA library on Windows."""
VISIBLE = "CUDA_VISIBLE_DEVICES"

_CHILD = "import sys; sys.path.append(sys.argv.pop(1)); import {0}; {0}.main()"
"""The code of a child process. Importing a module uses cached bytecode."""

_MISLEADING = {
    "LD_PRELOAD",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    VISIBLE,
}
# By default, CUDA orders devices by speed, and writes a cache to the user's ~/.nv.
_STEADY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}

Address = Annotated[str, normalize_address]
"""A PCI address in the format of sysfs."""

NO_PERMISSION = 4
"""NVML's error number."""


_Facts = TypeVar("_Facts", "NvmlFacts", "LibcudaFacts")


class CudaDevice(Value):
    """CUDA device in PCI order. Unknown facts are None."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    bus_id: Address | None = None


class LibcudaFacts(Value):
    """The driver version and devices that libcuda reports."""

    path: str | None = None
    """The path of the driver library that was loaded."""
    init: int | None = None
    """The result of cuInit."""
    driver_version: CudaVersion | None = None
    devices: tuple[CudaDevice, ...] = ()
    """The CUDA devices. In MIG mode, CUDA lists only one slice."""
    fault: str | None = None
    """The reason why a query failed: missing, timeout, crash, or unasked."""
    error: str | None = None
    """The error message of the dynamic loader or operating system."""


class NvmlGpu(CudaDevice):
    """GPU that NVML lists."""

    index: int = 0
    pci_id: str | None = None
    mig: bool = False
    slices: tuple[MigDevice, ...] = ()
    error: int | None = None
    """NVML's error number for the GPU. It makes other facts unknown."""
    facts: Mapping[str, Any] = {}
    """All facts in NVML's answer, by their names in ``symptoms.toml``."""
    fabric: int | None = None
    """The state of the NVLink fabric: 0 (none) to 3 (ready)."""


class NvmlFacts(Value):
    """The driver version and GPUs that NVML reports."""

    library: str | None = None
    """The path of the driver library that was loaded."""
    init: int | None = None
    """The result of nvmlInit, or None if nvmlInit was not called."""
    driver: DriverVersion | None = None
    cuda: CudaVersion | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    """The GPUs that NVML was queried about."""
    fault: str | None = None
    """The reason why a query failed or is incomplete: see ``LibcudaFacts``."""
    error: str | None = None
    """The error message if the query failed."""
    at: int | None = None
    """The index of the GPU that could not be queried."""

    @property
    def is_complete(self) -> bool:
        """Whether NVML was initialized and the query is complete."""
        return self.init == 0 and self.fault is None


def query_driver(source: Source) -> tuple[NvmlFacts, LibcudaFacts]:
    """Query NVML and libcuda in parallel child processes.

    Each library initializes the driver on every GPU without persistence mode.
    """
    environment = create_child_environment()
    binding = _find_nvml_binding()
    # In a scheduler's job, libcuda lists only the job's GPUs.
    own = environment | read_job_devices([VISIBLE])
    commands = {
        "NVML": (create_child_command("nvml_child", binding), environment),
        "libcuda": (create_child_command("libcuda_child", "devices"), own),
    }
    nvml, cuda = source.run_children(commands)
    return parse_nvml(nvml), parse_libcuda(cuda)


def create_child_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module without site-packages."""
    folder = str(Path(__file__).parent)
    return [sys.executable, "-I", "-S", "-c", _CHILD.format(module), folder, *words]


def _find_nvml_binding() -> str:
    """Return the file of NVIDIA's binding, or empty text if not installed.

    Importing ``pynvml`` could instead find an older package with the same module name.
    """
    for folder in map(Path, sys.path):
        # Do not use importlib.metadata, because its import takes longer than the whole query.
        if next(folder.glob("nvidia_ml_py-*.dist-info"), None):
            return str(folder / "pynvml.py")
    return ""


def create_child_environment() -> dict[str, str]:
    """Remove variables that change the devices or the behavior of CUDA.

    LD_LIBRARY_PATH is kept, because some systems have libcuda only there.
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in _MISLEADING and not name.startswith("CUDA_INJECTION")
    }
    return environment | _STEADY


def parse_libcuda_release(library: str | None) -> DriverVersion | None:
    """Return the driver release in the file name of libcuda."""
    # A branch has three digits. The name of WSL's libcuda.so.1.1 has no release.
    match = re.search(r"/libcuda\.so\.([0-9]{3}(?:\.[0-9]{1,4}){1,3})$", library or "")
    return DriverVersion.parse(match[1]) if match else None


def is_compat(library: str | None) -> bool:
    """Return whether libcuda is from NVIDIA's forward-compatibility package.

    The package's folder is ``/usr/local/cuda/compat``, ``cuda-compat``, or a Jetson's ``compat_orin``.
    """
    folders = PurePosixPath(library or "").parent.parts
    return any(re.fullmatch(r"(.+-)?compat(_[a-z]+)?", folder) for folder in folders)


def parse_libcuda(finished: Finished) -> LibcudaFacts:
    """Parse the output of the child process that queries libcuda."""
    answers = json_lines(finished)
    answer = answers[-1] if answers else {}
    return _read_facts(LibcudaFacts, answer, finished, is_complete=bool(answers))


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Parse the output, possibly incomplete, of the NVML child process."""
    document: dict[str, Any] = {}
    gpus = []
    for answer in json_lines(finished):
        if "index" in answer:
            gpus.append({**answer, "facts": answer})
        else:
            document |= answer
    document["gpus"] = gpus
    return _read_facts(NvmlFacts, document, finished, is_complete="end" in document)


def _read_facts(
    kind: type[_Facts], document: object, finished: Finished, *, is_complete: bool
) -> _Facts:
    """Read the facts of a library, with the fault if they are incomplete."""
    facts = kind()
    error = describe_end(finished, DRIVER_SECONDS)
    try:
        facts = read_object(kind, document)
        if is_complete:
            return facts
    except ValueError as malformed:
        error = str(malformed)
    return replace(facts, fault=classify_fault(finished), error=error)
