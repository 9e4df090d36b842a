"""Which machines the locks of a folder run on: one value, of which every other tool's words are made.

It is found by asking: a machine with one GPU of each known kind is judged under each driver that the catalogue's tables
tell apart, by the rules that choose a lock. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from packaging.pylock import PylockSelectError

from gpuinstall.base.codec import write_object
from gpuinstall.base.errors import UsageError
from gpuinstall.base.finding import Rejection
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.request import Request
from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import CPU, CudaVersion, DriverVersion
from gpuinstall.catalog.gpus import other_chips, products
from gpuinstall.export.pins import backend_of, systems_of
from gpuinstall.lock.fit import fit, selected
from gpuinstall.machine.vendors import VENDORS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuinstall.catalog import Catalog
    from gpuinstall.lock.lock import Lock


_NO_GLIBC = 4
"""The minor of a glibc 2 that is older than any which a wheel names."""
_NEWEST_GLIBC = 100
_NO_MACHINE = {
    "unknown-build",
    "unpinned",
    "wrong-source",
    "other-platform",
    "no-python",
}
"""The reasons against a lock that no machine of its system changes."""


@dataclass(frozen=True)
class GpuNeeds:
    """Some kinds of GPU, and the drivers under which they run a lock.

    There is no last driver: one that has given up a GPU does not find it.
    """

    codes: tuple[str, ...]
    """What the GPUs execute: compute capabilities, ``8.6``, or the maker's own names, ``gfx1100``."""

    driver: DriverVersion | None = None
    """The oldest driver; None: any."""

    cuda: CudaVersion | None = None
    """The CUDA that this driver reports."""


@dataclass(frozen=True)
class MachineNeeds:
    """The machines of one system and one maker on which at least one of some locks runs."""

    locks: tuple[str, ...]
    """The locks by the names of their files."""

    torch: tuple[str, ...]
    """The build of torch in each of them."""

    python: tuple[str, ...]
    """The Python that each of them is for."""

    os: str
    arch: str

    glibc: str | None
    """The oldest glibc that all of the locks run on; None: not Linux, or any."""

    maker: str | None
    """The maker of the GPUs as documents name it; None: no GPU is needed."""

    gpus: tuple[GpuNeeds, ...]
    """The GPUs, by the drivers that they need."""

    @property
    def codes(self) -> tuple[str, ...]:
        """Every kind of GPU that runs one of the locks under some driver, those of older drivers first."""
        return tuple(code for gpus in self.gpus for code in gpus.codes)

    def to_dict(self) -> dict[str, Any]:
        """Return it as documents have it."""
        return write_object(self)


class _MachineKind(NamedTuple):
    """What locks have in common whose needs are one value."""

    os: str
    arch: str
    kind: str


def machine_needs(locks: Iterable[Lock], catalog: Catalog) -> list[MachineNeeds]:
    """Return what locks, of which a machine is to run one, need for each system and each maker of GPUs.

    Raises:
        UsageError: if a lock does not say what it is for, or runs on no known machine.
    """
    groups: dict[_MachineKind, list[Lock]] = defaultdict(list)
    for lock in locks:
        kind = backend_of(lock).kind
        for os, arch in systems_of(lock):
            groups[_MachineKind(os, arch, kind)].append(lock)
    return [
        _needs_of_group(group, members, catalog) for group, members in groups.items()
    ]


def _needs_of_group(
    group: _MachineKind, locks: Sequence[Lock], catalog: Catalog
) -> MachineNeeds:
    newest = max(_glibc(lock, group) for lock in locks)
    machine = Machine(
        group.os,
        group.arch,
        libc="glibc" if newest else None,
        glibc=f"2.{newest}" if newest else None,
        gpus=_known_gpus(group),
    )
    return MachineNeeds(
        locks=tuple(lock.name for lock in locks),
        torch=tuple(lock.versions.get("torch", "") for lock in locks),
        python=tuple(dict.fromkeys(str(lock.python) for lock in locks)),
        os=group.os,
        arch=group.arch,
        glibc=machine.glibc,
        maker=_maker(group.kind),
        gpus=tuple(_gpu_needs(locks, machine, catalog)),
    )


def _maker(kind: str) -> str | None:
    """Return the maker whose GPUs a kind of builds is for; None for the CPU's."""
    if kind == CPU.kind:
        return None
    return next(name for name, vendor in VENDORS.items() if vendor.kind == kind)


def _known_gpus(group: _MachineKind) -> tuple[Gpu, ...]:
    """Return a GPU of each kind of the maker's that a machine of the system can have."""
    maker = _maker(group.kind)
    gpus: list[Gpu] = []
    if group.kind == "cuda":
        on_arm_too = group.arch != "x86_64"
        capabilities = set()
        for product in products():
            if product.capability and (on_arm_too or not product.arm):
                capabilities.add(product.capability)
        for capability in sorted(capabilities):
            gpus.append(Gpu(len(gpus), compute_capability=capability))
    else:
        for chip in other_chips():
            if chip.maker == maker:
                gpus.append(
                    Gpu(len(gpus), vendor=maker, architecture=chip.architecture)
                )
    return tuple(gpus)


def _code(gpu: Gpu) -> str:
    return str(gpu.compute_capability or gpu.architecture)


def _gpu_needs(
    locks: Sequence[Lock], machine: Machine, catalog: Catalog
) -> Iterator[GpuNeeds]:
    """Yield the GPUs of a machine that run one of the locks, those with the same oldest driver together."""
    drivers: list[DriverVersion | None] = [None]
    if any(gpu.compute_capability for gpu in machine.gpus):
        drivers = list(_drivers(machine.os, catalog))
    oldest: dict[str, DriverVersion | None] = {}
    for driver in drivers:
        asked = replace(machine, driver=driver and Driver(driver))
        for code in _codes_that_run(locks, asked, catalog):
            oldest.setdefault(code, driver)
    groups: dict[DriverVersion | None, list[str]] = defaultdict(list)
    for code, driver in oldest.items():
        groups[driver].append(code)
    for driver, codes in groups.items():
        if driver is None:
            yield GpuNeeds(tuple(codes))
            continue
        row = catalog.drivers.branch(driver)
        is_whole_branch = driver.parts == (driver.branch, 0)
        yield GpuNeeds(
            tuple(codes),
            driver=DriverVersion.parse(str(driver.branch))
            if is_whole_branch
            else driver,
            cuda=row and row[1],
        )


def _drivers(os: str, catalog: Catalog) -> list[DriverVersion]:
    """Return the drivers that the catalogue's tables tell apart: every other is judged as the one before it."""
    tables = catalog.drivers
    releases = {DriverVersion.parse(f"{branch}.0") for branch, _ in tables.branches}
    for floor in (*tables.floors.values(), *tables.first_drivers.values()):
        release = floor.windows if os == "windows" else floor.linux
        # A branch alone stands for its newest release, and is asked about by its first one already.
        if len(release.parts) > 1:
            releases.add(release)
    return sorted(releases)


def _codes_that_run(
    locks: Iterable[Lock], machine: Machine, catalog: Catalog
) -> list[str]:
    """Return what those GPUs of a machine execute that run at least one of the locks."""
    running: set[int] = set()
    for lock in locks:
        verdict = fit(lock, machine, Request(()), catalog)
        if isinstance(verdict, Rejection):
            if verdict.reason.code in _NO_MACHINE:
                message = (
                    f"{lock.name} runs on no known machine: {verdict.reason.message}"
                )
                raise UsageError(
                    "not-exportable", message, hint="gpuinstall lock --upgrade"
                )
            continue
        running.update(run.index for run in verdict.plan.gpus if run.runs)
    return [_code(gpu) for gpu in machine.gpus if gpu.index in running]


def _glibc(lock: Lock, group: _MachineKind) -> int:
    """Return the minor of the oldest glibc 2 under which every package of a lock has a file; 0: any."""
    if group.os != "linux":
        return 0
    for minor in range(_NO_GLIBC, _NEWEST_GLIBC):
        machine = Machine(group.os, group.arch, glibc=f"2.{minor}")
        with suppress(PylockSelectError):
            selected(lock, str(lock.python), machine)
            return minor if minor > _NO_GLIBC else 0
    return 0


_SYSTEMS = {"linux": "Linux", "windows": "Windows", "macos": "macOS"}
_MAKERS = {"nvidia": "compute capability", "amd": "AMD", "intel": "Intel"}


def describe(needs: Iterable[MachineNeeds]) -> str:
    """Return the text: a paragraph for each lock and system."""
    return "\n".join("".join(f"{line}\n" for line in _lines(one)) for one in needs)


def _lines(needs: MachineNeeds) -> Iterator[str]:
    for lock, torch in zip(needs.locks, needs.torch, strict=True):
        yield f"{lock}: torch {torch}, Python {', '.join(needs.python)}"
    glibc = f", glibc {needs.glibc} or newer" if needs.glibc else ""
    yield f"  system    {_SYSTEMS[needs.os]} {needs.arch}{glibc}"
    if needs.maker is None:
        yield "  GPU       none"
    for gpus in needs.gpus:
        driver = (
            f": driver {gpus.driver} or newer (CUDA {gpus.cuda})" if gpus.driver else ""
        )
        yield f"  GPU       {_MAKERS[str(needs.maker)]} {', '.join(gpus.codes)}{driver}"
