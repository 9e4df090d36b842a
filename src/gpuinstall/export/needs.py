"""Determine the system, glibc, GPUs, and driver that a lock file requires.

The rules that select a lock file are applied to a simulated machine with one GPU of each
known kind, and with each driver version that the catalog distinguishes.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.text import sanitize
from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import BACKEND_ROWS
from gpuinstall.base.versions import CudaVersion, DriverVersion
from gpuinstall.catalog import Catalog
from gpuinstall.catalog.gpus import load_other_chips, load_products
from gpuinstall.export.pins import (
    find_lock_systems,
    make_export_error,
    read_lock_backend,
)
from gpuinstall.lock.file.fit import check_lock
from gpuinstall.lock.file.lock import Lock
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.machine.vendors import FIRST_VENDOR, VENDORS

_NO_GLIBC = "2.0"
"""A glibc version that is older than the minimum of every wheel."""
_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}


class GpuNeeds(Value):
    """GPU architectures that a lock file supports, and their minimum driver.

    A maximum driver is unnecessary, because a driver lists only GPUs that it supports.
    """

    codes: tuple[str, ...]
    """GPU architectures, such as ``8.6`` (NVIDIA) or ``gfx1100`` (AMD)."""

    driver: str | None = None
    """The minimum driver version or branch, or None for any driver."""

    cudas: tuple[CudaVersion, ...] = ()
    """The CUDA versions that supported drivers report, oldest first."""


class MachineNeeds(Value):
    """The machine requirements of a lock file on one platform."""

    lock: str
    """The name of the lock file."""

    torch: str
    """The torch build in the lock file."""

    python: str
    os: str
    arch: str

    glibc: str | None
    """The minimum glibc version, or None if the lock file requires none."""

    maker: str | None
    """The vendor of the GPUs, or None if no GPU is required."""

    gpus: tuple[GpuNeeds, ...]
    """The supported GPUs, grouped and ordered by minimum driver."""

    @property
    def text(self) -> str:
        """The machine requirements as text, with one requirement per line."""
        lines = [f"{self.lock}: torch {self.torch}, Python {self.python}"]
        glibc = f", glibc {self.glibc} or newer" if self.glibc else ""
        lines.append(f"  system    {_SYSTEMS[self.os]} {self.arch}{glibc}")
        for text, gpus in zip(self.gpu_texts, self.gpus or [GpuNeeds(())], strict=True):
            lines.append(f"  GPU       {text}")
            if gpus.cudas:
                allowed = ",".join(map(str, gpus.cudas))
                minimum = gpus.cudas[0]
                lines.append(f"  CUDA      {minimum}   {allowed}   cuda>={minimum}")
        return "".join(f"{line}\n" for line in lines)

    @property
    def gpu_texts(self) -> list[str]:
        """Text lines that list supported GPUs and their minimum driver."""
        if self.maker is None:
            return ["none"]
        texts = []
        for gpus in self.gpus:
            label = VENDORS[self.maker].label
            label = "compute capability" if self.maker == FIRST_VENDOR else label
            text = f"{label} {', '.join(gpus.codes)}"
            if gpus.driver:
                text += f": driver {gpus.driver} or newer (CUDA {gpus.cudas[0]})"
            texts.append(text)
        return texts


def find_machine_needs(lock: Lock, catalog: Catalog) -> list[MachineNeeds]:
    """Return the machine requirements of a lock file, for each system.

    Raises:
        UsageError: The lock file does not specify its target, or supports no known
            machine.
    """
    kind = read_lock_backend(lock).kind
    maker = next((row.name for row in BACKEND_ROWS if row.kind == kind), None)
    needs = []
    for os, arch in find_lock_systems(lock):
        files = [(file.package, file.name) for file in lock.files]
        glibc: str | None = find_required_glibc(files, _NO_GLIBC)
        if os != "linux" or glibc == _NO_GLIBC:
            glibc = None
        machine = Machine(
            os,
            arch,
            libc=glibc and "glibc",
            glibc=glibc,
            gpus=tuple(_generate_known_gpus(maker, arch)),
        )
        needs.append(
            MachineNeeds(
                lock=sanitize(lock.name),
                torch=lock.versions.get("torch", ""),
                python=str(lock.python),
                os=os,
                arch=arch,
                glibc=glibc,
                maker=maker,
                gpus=tuple(_find_gpu_needs(lock, machine, catalog)),
            )
        )
    return needs


def _generate_known_gpus(
    maker: str | None,
    arch: str,
) -> Iterator[Gpu]:
    """Yield a simulated GPU for each known architecture of a vendor."""
    if maker == "nvidia":
        # Some GPUs exist only on ARM boards.
        capabilities = {
            product.capability
            for product in load_products()
            if product.capability and not (product.arm and arch == "x86_64")
        }
        for index, capability in enumerate(sorted(capabilities)):
            yield Gpu(index, compute_capability=capability)
        return
    for index, chip in enumerate(load_other_chips()):
        if chip.maker == maker:
            yield Gpu(index, vendor=maker, architecture=chip.architecture)


def _find_gpu_needs(
    lock: Lock,
    machine: Machine,
    catalog: Catalog,
) -> Iterator[GpuNeeds]:
    """Yield the GPUs that a lock file supports, grouped by minimum driver.

    Args:
        lock: The lock file to evaluate.
        machine: A simulated machine with a GPU of every kind but no driver.
        catalog: The catalog of builds and drivers.
    """
    drivers: list[DriverVersion | None] = [None]
    if any(gpu.compute_capability for gpu in machine.gpus):
        drivers = list(catalog.drivers.list_thresholds(machine.os))
    oldest: dict[str, DriverVersion | None] = {}
    for driver in reversed(drivers):
        with_driver = replace(machine, driver=driver and Driver(driver))
        verdict = check_lock(lock, LockRequest(with_driver, Request(()), catalog))
        if isinstance(verdict, Rejection):
            if oldest:
                break  # Older drivers do not support the lock, either.
            message = f"{lock.name} runs on no known machine: {verdict.reason.message}"
            raise make_export_error(message)
        for gpu in machine.gpus:
            if gpu.index in verdict.gpus:
                code = str(gpu.compute_capability or gpu.architecture)
                oldest.pop(code, None)  # keeps the order of drivers
                oldest[code] = driver
    for driver in reversed(dict.fromkeys(oldest.values())):
        codes = tuple(code for code, first in oldest.items() if first == driver)
        if driver is None:
            yield GpuNeeds(codes)
            continue
        yield GpuNeeds(
            codes, driver.minimum_text, catalog.drivers.list_cuda_versions(driver)
        )
