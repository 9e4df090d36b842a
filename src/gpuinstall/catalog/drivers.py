"""What NVIDIA's drivers serve, which chip runs which code, and which chip is which.

All of it is read from ``drivers.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.catalog import authored

_Row = Mapping[str, Any]


class Floor(NamedTuple):
    """The oldest driver for something."""

    linux: DriverVersion
    windows: DriverVersion
    """Its number counts in WSL too."""
    after: str | None = None
    """If the oldest is unknown, the newest that is known not to be it; the others are assumed."""


class Generation(NamedTuple):
    """A generation of chips, by compute capability."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    last_branch: int | None = None
    """The last driver branch that drives it."""


class CudnnLast(NamedTuple):
    """The last compute capability that some releases of cuDNN serve."""

    capability: ComputeCapability
    before: tuple[int, ...] | None = None
    """The first release that is not one of them; None: the releases are those for ``cuda``."""
    cuda: int | None = None

    def holds(
        self,
        cudnn: tuple[int, ...],
        cuda: int | None,
    ) -> bool:
        """Whether a cuDNN for a CUDA major is one of those."""
        if self.before is None:
            return cuda == self.cuda
        return cudnn < self.before


class PartialSupport(NamedTuple):
    """The branches, first to last, on which some kernels of newer builds may fail."""

    first: int
    last: int
    cuda: CudaVersion
    """The oldest CUDA of such a build."""

    def includes(self, branch: int | None) -> bool:
        """Whether a driver branch is one of them."""
        return branch is not None and self.first <= branch <= self.last


class KernelModules(NamedTuple):
    """Which chips NVIDIA's open kernel modules drive."""

    open_from: ComputeCapability
    """The first that they drive."""
    open_only_from: ComputeCapability
    """The first that only they drive."""


class Unification(NamedTuple):
    """Which toolkits make code that a Tegra chip shares with its desktop relatives."""

    toolkit: CudaVersion
    """The first."""
    ran: CudaVersion
    """One with which the chip was seen to run such code."""


class CompatPackage(NamedTuple):
    """NVIDIA's forward-compatibility package: the user-mode libraries of a driver, to be used above an older one."""

    driver: DriverVersion
    """The release whose libraries it has."""
    cuda: CudaVersion
    """The newest CUDA that they serve."""
    manifest: str
    """The address of the manifest that lists its archive."""

    def __str__(self) -> str:
        return f"cuda-compat {self.cuda}"


class JetsonChip(NamedTuple):
    """A Tegra chip: the family of its modules, and what its GPU can execute."""

    name: str
    capability: ComputeCapability


@dataclass(frozen=True, eq=False)
class Drivers:
    """The tables."""

    branches: tuple[tuple[int, CudaVersion], ...]
    """The CUDA that each driver branch reports, ascending."""
    no_compat: frozenset[str]
    """Words in the names of GPUs for which the forward-compatibility package is not made."""
    compat: tuple[CompatPackage, ...]
    """The forward-compatibility packages, ascending."""
    compat_base: int
    """The oldest branch of a system's driver that they are used above."""
    floors: Mapping[int, Floor]
    """By CUDA major."""
    partially_supported: PartialSupport
    generations: tuple[Generation, ...]
    first_drivers: Mapping[ComputeCapability, Floor]
    """The first driver that knows a chip, if an older one serves some CUDA."""
    tegra: Mapping[ComputeCapability, Unification | None]
    """The chips that run no code of their desktop relatives before a toolkit; None: with none."""
    families: Mapping[ComputeCapability, frozenset[ComputeCapability]]
    """Which chips run code with the suffix ``f``."""
    compilers: Mapping[ComputeCapability, CudaVersion]
    """The first toolkit that compiles for a chip at run time."""
    cudnn: tuple[tuple[tuple[int, ...], ComputeCapability], ...]
    """From which release on a cuDNN has code only for a capability and later, ascending."""
    cudnn_last: tuple[CudnnLast, ...]
    unified_memory: frozenset[ComputeCapability]
    """The chips that share the processor's memory."""
    recommended_branch: int
    """The driver to install if there is none."""
    kernel_modules: KernelModules
    jetsons: Mapping[str, JetsonChip]
    """By the chip's name in the device tree."""
    jetson_kernels: Mapping[str, str]
    """The release of Jetson Linux, by Linux's ``X.Y``."""
    server_l4t: int
    """The release of Jetson Linux from which on a Jetson runs the wheels for servers."""

    @property
    def versions(self) -> list[DriverVersion]:
        """Every branch as a driver of its newest release, ascending."""
        return [DriverVersion.parse(str(branch)) for branch, _ in self.branches]

    def branch(self, version: DriverVersion) -> tuple[int, CudaVersion] | None:
        """Return a release's branch and the CUDA that it reports; None before the first branch."""
        for branch, cuda in reversed(self.branches):
            if branch <= version.branch:
                return branch, cuda
        return None

    def generation(self, capability: ComputeCapability) -> Generation | None:
        """Return the generation of a chip; None for one that the catalogue does not know."""
        for generation in self.generations:
            if generation.first <= capability <= generation.last:
                return generation
        return None

    def cudnn_floor(self, version: str) -> ComputeCapability | None:
        """Return the lowest compute capability that a cuDNN has code for; None: all."""
        cudnn = _numbers(version)
        for first, floor in reversed(self.cudnn):
            if cudnn >= first:
                return floor
        return None

    def cudnn_ceiling(
        self,
        version: str,
        cuda: int | None,
    ) -> ComputeCapability | None:
        """Return the highest compute capability that a cuDNN for a CUDA major serves; None: all."""
        cudnn = _numbers(version)
        ceilings = [row.capability for row in self.cudnn_last if row.holds(cudnn, cuda)]
        return min(ceilings, default=None)


@cache
def load_drivers() -> Drivers:
    """Return the tables as shipped, without those of the builds."""
    return parse_drivers(authored.read_data("drivers.toml"))


def parse_drivers(table: _Row) -> Drivers:
    """Return what the rows of ``drivers.toml`` say."""
    partial = table["partially_supported"]
    modules = table["kernel_modules"]
    jetsons = {}
    for row in table["jetsons"]:
        jetsons[row["chip"]] = JetsonChip(row["name"], _capability(row))
    return Drivers(
        branches=tuple(map(_branch, table["branches"])),
        no_compat=frozenset(table["no_compat"]["words"].split()),
        compat=tuple(map(_compat_package, table["compat"])),
        compat_base=table["compat_base"]["branch"],
        floors={row["cuda"]: _floor(row) for row in table["floors"]},
        partially_supported=PartialSupport(
            first=partial["first"],
            last=partial["last"],
            cuda=_cuda(partial),
        ),
        generations=tuple(map(_generation, table["architectures"])),
        first_drivers={_capability(row): _floor(row) for row in table["first_drivers"]},
        tegra={_capability(row): _unification(row) for row in table["tegra"]},
        families={_capability(row, "code"): _family(row) for row in table["families"]},
        compilers={_capability(row): _cuda(row) for row in table["run_time_compilers"]},
        cudnn=tuple(map(_cudnn, table["cudnn"])),
        cudnn_last=tuple(map(_cudnn_last, table["cudnn_last"])),
        unified_memory=frozenset(map(_capability, table["unified_memory"])),
        recommended_branch=table["recommended"]["branch"],
        kernel_modules=KernelModules(
            open_from=_capability(modules, "open_from"),
            open_only_from=_capability(modules, "open_only_from"),
        ),
        jetsons=jetsons,
        jetson_kernels={row["kernel"]: row["l4t"] for row in table["jetson_kernels"]},
        server_l4t=table["jetson"]["l4t"],
    )


def _capability(
    row: _Row,
    key: str = "capability",
) -> ComputeCapability:
    return ComputeCapability.parse(row[key])


def _cuda(row: _Row) -> CudaVersion:
    return CudaVersion.parse(row["cuda"])


def _branch(row: _Row) -> tuple[int, CudaVersion]:
    return row["branch"], _cuda(row)


def _compat_package(row: _Row) -> CompatPackage:
    return CompatPackage(
        driver=DriverVersion.parse(row["driver"]),
        cuda=_cuda(row),
        manifest=row["manifest"],
    )


def _floor(row: _Row) -> Floor:
    return Floor(
        linux=DriverVersion.parse(row["linux"]),
        windows=DriverVersion.parse(row["windows"]),
        after=row.get("after"),
    )


def _generation(row: _Row) -> Generation:
    return Generation(
        name=row["name"],
        first=_capability(row, "from"),
        last=_capability(row, "to"),
        last_branch=row.get("last"),
    )


def _unification(row: _Row) -> Unification | None:
    if "unified" not in row:
        return None
    first = row["unified"]
    return Unification(
        toolkit=CudaVersion.parse(first),
        ran=CudaVersion.parse(row.get("ran", first)),
    )


def _family(row: _Row) -> frozenset[ComputeCapability]:
    names = row["runs_on"].split()
    return frozenset(map(ComputeCapability.parse, names))


def _cudnn(row: _Row) -> tuple[tuple[int, ...], ComputeCapability]:
    version = _numbers(row["version"])
    return version, _capability(row)


def _cudnn_last(row: _Row) -> CudnnLast:
    return CudnnLast(
        capability=_capability(row),
        before=_numbers(row["before"]) if "before" in row else None,
        cuda=row.get("cuda"),
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
