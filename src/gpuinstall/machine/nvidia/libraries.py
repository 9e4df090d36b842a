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
from typing import Annotated, Any

from gpuinstall.base.codec import read_object
from gpuinstall.base.machine import MigDevice
from gpuinstall.base.process import Finished
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.bus import normalize_address
from gpuinstall.machine.children import (
    DRIVER_SECONDS,
    Command,
    classify_fault,
    describe_end,
    json_lines,
)
from gpuinstall.machine.container import read_job_devices
from gpuinstall.machine.source import Source

NVML = "libnvidia-ml.so.1"
LIBCUDA = "libcuda.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"
LOADER_CACHE = "/etc/ld.so.cache"

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


class NvmlGpu(Value):
    """GPU that NVML lists."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: Address | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    mig: bool = False
    slices: tuple[MigDevice, ...] = ()
    error: int | None = None
    """NVML's error number for the GPU. It makes other facts unknown."""
    prohibited: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
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


def can_find_library(source: Source, library: str) -> bool:
    """Return whether the dynamic loader on Linux may find a driver library."""
    cache = source.text(LOADER_CACHE)
    # musl, NixOS, and some containers have no loader cache.
    return cache is None or library in cache or bool(source.variable("LD_LIBRARY_PATH"))


def query_driver(source: Source) -> tuple[NvmlFacts, LibcudaFacts]:
    """Query NVML and libcuda in parallel child processes.

    Each library initializes the driver on every GPU without persistence mode. In a
    scheduler's job, libcuda lists only the job's GPUs.
    """
    commands = {
        "NVML": (create_nvml_command(), create_child_environment(os.environ)),
        "libcuda": _create_devices_command(os.environ),
    }
    nvml, cuda = source.run_children(commands)
    return parse_nvml(nvml), parse_libcuda(cuda)


def _create_devices_command(environ: Mapping[str, str]) -> Command:
    """Return the command that queries libcuda about this process's GPUs."""
    environment = create_child_environment(environ) | read_job_devices(
        environ, [VISIBLE]
    )
    return create_child_command("libcuda_child", "devices"), environment


def create_nvml_command() -> list[str]:
    """Return the command that queries NVML through NVIDIA's binding."""
    return create_child_command("nvml_child", _find_nvml_binding())


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


def create_child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Remove variables that change the devices or the behavior of CUDA.

    LD_LIBRARY_PATH is kept, because some systems have libcuda only there.
    """
    environment = {
        name: value
        for name, value in environ.items()
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
    error = describe_end(finished, DRIVER_SECONDS)
    try:
        if answers:
            return read_object(LibcudaFacts, answers[-1])
    except ValueError as malformed:
        error = str(malformed)
    return LibcudaFacts(fault=classify_fault(finished), error=error)


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Parse the output, possibly incomplete, of the NVML child process."""
    document: dict[str, Any] = {}
    gpus = []
    for answer in json_lines(finished):
        if "index" in answer:
            gpus.append(answer)
        else:
            document |= answer
    error = describe_end(finished, DRIVER_SECONDS)
    facts = NvmlFacts()
    try:
        facts = read_object(NvmlFacts, {**document, "gpus": gpus})
        if "end" in document:
            return facts
    except ValueError as malformed:
        error = str(malformed)
    return replace(facts, fault=classify_fault(finished), error=error)
