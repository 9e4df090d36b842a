"""What the driver's libraries say: libcuda, which programs compute through, and NVML, which knows every card.

Each is asked in a child process of its own: ``libcuda_child`` writes one answer, ``nvml_child`` a line for each card.
Here are the environment of both and their answers.
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
"""The program of a child: as a module it is compiled once, and not at each start."""

_MISLEADING = {
    "LD_PRELOAD",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_FORCE_PTX_JIT",
    VISIBLE,
}
# CUDA counts the fastest card first unless told otherwise; and nothing is to be written into the user's ~/.nv.
_STEADY = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_CACHE_DISABLE": "1"}

Address = Annotated[str, normal_address]
"""On the bus, as sysfs writes it."""

NO_PERMISSION = 4
"""NVML's number."""


class CudaDevice(Value):
    """One device as CUDA sees it, in PCI order; a fact that the driver did not give is None."""

    name: str | None = None
    uuid: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    bus_id: Address | None = None


class LibcudaFacts(Value):
    """What libcuda answered."""

    path: str | None = None
    """The file that the loader took."""
    init: int | None = None
    """The number that cuInit returned."""
    driver_version: CudaVersion | None = None
    devices: tuple[CudaDevice, ...] = ()
    """With MIG, CUDA shows a process one slice and nothing else: they are then fewer than NVML's."""
    fault: str | None = None
    """Why there is no answer: missing, timeout, crash, or unasked if the child could not ask."""
    error: str | None = None
    """The same in the loader's or the system's words."""


class NvmlGpu(Value):
    """One card as NVML sees it."""

    index: int
    name: str | None = None
    uuid: str | None = None
    bus_id: Address | None = None
    pci_id: str | None = None
    compute_capability: ComputeCapability | None = None
    memory_mib: int | None = None
    mig: bool = False
    slices: tuple[MigDevice, ...] = ()
    slices_withheld: bool = False
    """Whether it has slices that this process may not use."""
    error: int | None = None
    """NVML's number if it refused; the rest is then unknown."""
    prohibited: bool = False
    remap_pending: bool = False
    remap_failed: bool = False
    fabric: int | None = None
    """NVML's number for the state of its NVLink fabric: 0 it has none, 2 being set up; None: not told."""

    @property
    def is_withheld(self) -> bool:
        """Whether all of it that CUDA could use was given to others."""
        return self.mig and not self.slices and self.slices_withheld


class NvmlFacts(Value):
    """What NVML answered."""

    library: str | None = None
    """The file loaded."""
    init: int | None = None
    """The number that nvmlInit returned; None: nobody asked."""
    driver: DriverVersion | None = None
    cuda: CudaVersion | None = None
    awaits_attestation: bool = False
    """Whether the GPUs compute confidentially, and were not yet told to accept work."""
    gpus: tuple[NvmlGpu, ...] = ()
    """The cards about which it answered."""
    fault: str | None = None
    """Why there is no answer to the end: missing, timeout, crash or unasked."""
    error: str | None = None
    """The same in words."""
    at: int | None = None
    """The card that it was asked about when it failed."""

    @property
    def works(self) -> bool:
        """Whether NVML was initialized and answered to the end."""
        return self.init == 0 and self.fault is None


def may_load(source: Source, library: str) -> bool:
    """Whether Linux's loader may find a library of the driver, as far as its cache and a variable tell."""
    cache = source.text(LOADER_CACHE)
    # musl, NixOS and containers of one program have no cache.
    return cache is None or library in cache or bool(source.variable("LD_LIBRARY_PATH"))


def ask_driver(source: Source) -> tuple[NvmlFacts, LibcudaFacts]:
    """Ask both libraries at once: each starts the driver on every card where persistence mode is off.

    In a scheduler's job libcuda is asked only about the cards given.
    """
    commands = {
        "NVML": (nvml_command(), child_environment(os.environ)),
        "libcuda": _devices_command(os.environ),
    }
    nvml, cuda = source.run_children(commands)
    return parse_nvml(nvml), parse_libcuda(cuda)


def _devices_command(environ: Mapping[str, str]) -> Command:
    """Return what starts the child that asks libcuda about the cards that this process was given."""
    environment = child_environment(environ) | job_devices(environ, [VISIBLE])
    return child_command("libcuda_child", "devices"), environment


def nvml_command() -> list[str]:
    """Return what starts the child that asks NVML, with NVIDIA's binding alone."""
    return child_command("nvml_child", _nvml_binding())


def child_command(module: str, *words: str) -> list[str]:
    """Return what starts a child isolated from Python's own variables, site and user packages."""
    folder = str(Path(__file__).parent)
    return [sys.executable, "-I", "-S", "-c", _CHILD.format(module), folder, *words]


def _nvml_binding() -> str:
    """Return the file of NVIDIA's binding; empty if it is not installed.

    Its own distribution tells it: an import may find the folder that an older package put beside it.
    """
    for folder in map(Path, sys.path):
        # importlib.metadata would tell it too, and takes longer to import than the whole answer.
        if next(folder.glob("nvidia_ml_py-*.dist-info"), None):
            return str(folder / "pynvml.py")
    return ""


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child, without what changes CUDA's answer.

    LD_LIBRARY_PATH stays: some systems have libcuda only there.
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
    """Return the child's answer, or its death."""
    answers = json_lines(finished)
    if answers:
        return read_object(LibcudaFacts, answers[-1])
    error = how_it_ended(finished, DRIVER_SECONDS)
    return LibcudaFacts(fault=fault_of(finished), error=error)


def parse_nvml(finished: Finished) -> NvmlFacts:
    """Return what the child wrote, as far as it came."""
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
