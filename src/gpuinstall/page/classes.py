"""The classes of machines that the page answers for: the members of one are planned for alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.gpus import other_chips, products
from gpuinstall.machine import Driver, Environment, Gpu, Machine
from gpuinstall.versions import ComputeCapability, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.catalog import Catalog
    from gpuinstall.catalog.drivers import Drivers, Floor

DRIVER = "{driver}"
"""Stands for the driver's version in what is said of a machine."""


class Platform(NamedTuple):
    """A system that the page asks for; ``mixed``: also with two kinds of GPUs."""

    key: str
    name: str
    os: str
    arch: str
    wsl: bool = False
    mixed: bool = False

    @property
    def has_windows_driver(self) -> bool:
        """Say whether the driver's number is Windows', as in WSL."""
        return self.wsl or self.os == "windows"


PLATFORMS = (
    Platform("linux", "Linux", "linux", "x86_64", mixed=True),
    Platform("windows", "Windows", "windows", "x86_64", mixed=True),
    Platform("wsl", "Windows with WSL", "linux", "x86_64", wsl=True),
    Platform("linux-arm", "Linux on ARM (Grace, DGX Spark)", "linux", "aarch64"),
    Platform("macos", "macOS", "macos", "arm64"),
)


class Kind(NamedTuple):
    """GPUs that are planned for alike: those of a compute capability, or a chip of a maker that has none.

    ``code`` is the capability or the name of the code that they run, ``name`` their generation or chip; ``os``: they
    are in such machines only.
    """

    code: str
    name: str
    cards: tuple[str, ...]
    capability: ComputeCapability | None = None
    maker: str | None = None
    os: str | None = None

    @property
    def sm(self) -> str:
        """The code as plans name it."""
        return self.capability.sm if self.capability else self.code

    def gpu(self, index: int, name: str) -> Gpu:
        """Make a GPU of this kind."""
        if self.capability:
            return Gpu(index, name, compute_capability=self.capability)
        return Gpu(index, name, vendor=self.maker, architecture=self.code)


class DriverRange(NamedTuple):
    """The drivers from one release on, up to the next span: no rule tells them apart."""

    first: tuple[int, ...]
    cuda: str | None

    @property
    def driver(self) -> Driver:
        """The driver that stands for them all; a branch alone would stand for its newest release."""
        parts = self.first if len(self.first) > 1 else (*self.first, 0)
        return Driver(DriverVersion(parts, DRIVER))


def spans_of(platform: Platform, tables: Drivers) -> tuple[DriverRange, ...]:
    """Cut the drivers wherever a table names one."""

    def here(floor: Floor) -> tuple[int, ...]:
        return (floor.windows if platform.has_windows_driver else floor.linux).parts

    branches = [branch for branch, _ in tables.branches]
    ends = [row.last_branch for row in tables.generations if row.last_branch is not None]
    cuts: set[tuple[int, ...]] = {(0,), (branches[-1] + 1,), (tables.partially_supported.last + 1,)}
    cuts |= {(branch,) for branch in branches} | {(last + 1,) for last in ends}
    cuts |= {here(floor) for floor in (*tables.floors.values(), *tables.first_drivers.values())}
    rows = ((cut, tables.branch(DriverVersion(cut, DRIVER))) for cut in sorted(cuts))
    return tuple(DriverRange(cut, str(row[1]) if row else None) for cut, row in rows)


def kinds_of_gpus(catalog: Catalog) -> tuple[Kind, ...]:
    """List the kinds of all products: by capability, the highest first, without Jetsons before Thor; then by chip."""
    kinds = []
    for capability in sorted({product.capability for product in products()} - set(catalog.drivers.tegra), reverse=True):
        generation = catalog.drivers.generation(capability)
        cards = sorted({product.name for product in products() if product.capability == capability})
        kinds.append(Kind(str(capability), generation.name if generation else "", tuple(cards), capability))
    for chip in other_chips():
        name = chip.name if chip.name.startswith(chip.brand) else f"{chip.brand} {chip.name}"
        products_of = chip.products or (chip.architecture,)
        kinds.append(Kind(chip.architecture, name, products_of, maker=chip.maker, os=chip.os))
    return tuple(kinds)


def machine_of_class(platform: Platform, kinds: Iterable[Kind], driver: Driver | None) -> Machine:
    """Make the machine that stands for a class: one GPU of each kind, called ``{0}``, ``{1}``."""
    gpus = tuple(kind.gpu(number, f"{{{number}}}") for number, kind in enumerate(kinds))
    surroundings = Environment(wsl=platform.wsl)
    return Machine(platform.os, platform.arch, environment=surroundings, driver=driver, gpus=gpus)
