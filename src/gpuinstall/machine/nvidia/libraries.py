"""Answers of the driver's libraries, libcuda and NVML.

Each runs in its own child process. ``libcuda_child`` writes one answer, and
``nvml_child`` writes a line for each GPU. This module prepares the environment of
both and parses their answers.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

from gpuinstall.base.codec import read_object
from gpuinstall.base.machine import MigDevice
from gpuinstall.base.process import Finished
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.machine.bus import normal_address
from gpuinstall.machine.children import (
    DRIVER_SECONDS,
    fault_of,
    how_it_ended,
    json_lines,
)
from gpuinstall.machine.container import job_devices
from gpuinstall.machine.source import Source

if TYPE_CHECKING:
    from gpuinstall.machine.children import Command

NVML = "libnvidia-ml.so.1"
LIBCUDA = "libcuda.so.1"
VISIBLE = "CUDA_VISIBLE_DEVICES"
LOADER_CACHE = "/etc/ld.so.cache"

_CHILD = "import sys; sys.path.append(sys.argv.pop(1)); import {0}; {0}.main()"
"""The program of a child. Python compiles a module only once."""

_MISLEADING = {
    "LD_PRELOAD",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    VISIBLE,
}
# CUDA's default order is fastest first. Its cache is in the user's ~/.nv.
_STEADY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}

Address = Annotated[str, normal_address]
"""An address on the bus, as in sysfs."""

NO_PERMISSION = 4
"""NVML's number."""


class CudaDevice(Value):
    """A device as CUDA lists it, in PCI order, with unknown facts as None."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    bus_id: Address | None = None


class LibcudaFacts(Value):
    """The answer of libcuda."""

    path: str | None = None
    """The loaded file."""
    init: int | None = None
    """The result of cuInit."""
    driver_version: CudaVersion | None = None
    devices: tuple[CudaDevice, ...] = ()
    """With MIG, CUDA lists one slice and nothing else."""
    fault: str | None = None
    """The reason for no answer: missing, timeout, or unasked."""
    error: str | None = None
    """The message of the loader or system."""


class NvmlGpu(Value):
    """A GPU as NVML lists it."""

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
    """NVML's error. Other facts are then unknown."""
    prohibited: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
    fabric: int | None = None
    """NVML's state of the NVLink fabric: 0 none, 2 in progress."""


class NvmlFacts(Value):
    """The answer of NVML."""

    library: str | None = None
    """The loaded file."""
    init: int | None = None
    """The result of nvmlInit, or None if it did not run."""
    driver: DriverVersion | None = None
    cuda: CudaVersion | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    """The GPUs with an answer."""
    fault: str | None = None
    """The reason for no or half an answer, as in ``LibcudaFacts``."""
    error: str | None = None
    """Its message."""
    at: int | None = None
    """The index of the GPU that could not be queried."""

    @property
    def works(self) -> bool:
        """Whether NVML started and answered completely."""
        return self.init == 0 and self.fault is None


def may_load(source: Source, library: str) -> bool:
    """Return whether Linux's loader may find a driver library."""
    cache = source.text(LOADER_CACHE)
    # musl, NixOS, and some containers have no cache.
    return cache is None or library in cache or bool(source.variable("LD_LIBRARY_PATH"))


def query_driver(source: Source) -> tuple[NvmlFacts, LibcudaFacts]:
    """Query both libraries in parallel.

    Each starts the driver on every GPU without persistence mode. In a scheduler's
    job, libcuda lists only the job's GPUs.
    """
    commands = {
        "NVML": (nvml_command(), child_environment(os.environ)),
        "libcuda": _devices_command(os.environ),
    }
    nvml, cuda = source.run_children(commands)
    return parse_nvml(nvml), parse_libcuda(cuda)


def _devices_command(environ: Mapping[str, str]) -> Command:
    """Return the command that queries libcuda about this process's GPUs."""
    environment = child_environment(environ) | job_devices(environ, [VISIBLE])
    return child_command("libcuda_child", "devices"), environment


def nvml_command() -> list[str]:
    """Return the command that queries NVML, with only NVIDIA's binding."""
    return child_command("nvml_child", _nvml_binding())


def child_command(module: str, *words: str) -> list[str]:
    """Return the command of a child without Python variables and packages."""
    folder = str(Path(__file__).parent)
    return [sys.executable, "-I", "-S", "-c", _CHILD.format(module), folder, *words]


def _nvml_binding() -> str:
    """Return the file of NVIDIA's binding; empty if it is not installed.

    An import could find the folder of an older package with the same name.
    """
    for folder in map(Path, sys.path):
        # Importing importlib.metadata takes longer than the whole query.
        if next(folder.glob("nvidia_ml_py-*.dist-info"), None):
            return str(folder / "pynvml.py")
    return ""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Remove variables that change CUDA's answer.

    Keep LD_LIBRARY_PATH: some systems have libcuda only there.
    """
    environment = {
        name: value
        for name, value in environ.items()
        if name not in _MISLEADING and not name.startswith("CUDA_INJECTION")
    }
    return environment | _STEADY


def libcuda_release(library: str | None) -> DriverVersion | None:
    """Return the driver release in the name of a libcuda's file."""
    # A branch has three digits. WSL's libcuda.so.1.1 has no release in its name.
    match = re.search(r"/libcuda\.so\.([0-9]{3}(?:\.[0-9]{1,4}){1,3})$", library or "")
    return DriverVersion.parse(match[1]) if match else None


def is_compat(library: str | None) -> bool:
    """Return whether a libcuda is from NVIDIA's forward-compatibility package.

    Its folder is ``/usr/local/cuda/compat``, ``cuda-compat``, or a Jetson's ``compat_orin``.
    """
    folders = PurePosixPath(library or "").parent.parts
    return any(re.fullmatch(r"(.+-)?compat(_[a-z]+)?", folder) for folder in folders)


def parse_libcuda(finished: Finished) -> LibcudaFacts:
    """Parse the answer of the libcuda child."""
    answers = json_lines(finished)
    if answers:
        return read_object(LibcudaFacts, answers[-1])
    error = how_it_ended(finished, DRIVER_SECONDS)
    return LibcudaFacts(fault=fault_of(finished), error=error)


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Parse the possibly incomplete answer of the NVML child."""
    document: dict[str, Any] = {}
    gpus = []
    for answer in json_lines(finished):
        if "index" in answer:
            gpus.append(answer)
        else:
            document |= answer
    facts = read_object(NvmlFacts, {**document, "gpus": gpus})
    if "end" in document:
        return facts
    error = how_it_ended(finished, DRIVER_SECONDS)
    return replace(facts, fault=fault_of(finished), error=error)
