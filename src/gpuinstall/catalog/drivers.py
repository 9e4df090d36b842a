"""What NVIDIA's drivers serve, which chip runs which code, and which chip is which: the rows of ``drivers.toml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from gpuinstall.catalog import authored
from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion


class Floor(NamedTuple):
    """The oldest driver for something, on Linux and on Windows (whose numbers count in WSL too).

    Where it is unknown, ``after`` is the newest that is known not to be it, and these are assumed.
    """

    linux: DriverVersion
    windows: DriverVersion
    after: str | None = None


class Generation(NamedTuple):
    """A generation of chips, by compute capability, and the last driver branch that drives it."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    last_branch: int | None = None


class CudnnLast(NamedTuple):
    """The last compute capability that a cuDNN ``before`` a version, or one for a CUDA major, serves."""

    capability: ComputeCapability
    before: tuple[int, ...] | None = None
    cuda: int | None = None

    def holds(self, cudnn: tuple[int, ...], cuda: int | None) -> bool:
        """Say whether a cuDNN for a CUDA major is one of those."""
        return cuda == self.cuda if self.before is None else cudnn < self.before


class PartialSupport(NamedTuple):
    """The branches, first to last, on which some kernels of a build of ``cuda`` or newer may fail."""

    first: int
    last: int
    cuda: CudaVersion

    def includes(self, branch: int | None) -> bool:
        """Say whether a driver branch is one of them."""
        return branch is not None and self.first <= branch <= self.last


class KernelModules(NamedTuple):
    """The open kernel modules drive chips ``open_from`` on; ``open_only_from`` on only they do."""

    open_from: ComputeCapability
    open_only_from: ComputeCapability


class Unification(NamedTuple):
    """The toolkit from which on a Tegra chip runs the code of its desktop relatives, and one with which it was seen to.

    None: it runs none of it.
    """

    toolkit: CudaVersion
    ran: CudaVersion


class JetsonChip(NamedTuple):
    """A Tegra chip: the family of its modules, and what its GPU can execute."""

    name: str
    capability: ComputeCapability


@dataclass(frozen=True, eq=False)
class Drivers:
    """The tables. ``branches`` ascend; ``vgpu`` are by the release of vGPU software, ``floors`` by CUDA major;
    ``no_compat`` are words in the names of GPUs for which the forward-compatibility package is not made.

    ``first_drivers`` are those that know a chip first, where an older one serves some CUDA; ``tegra`` chips run no code
    of their desktop relatives (before the toolkit named); ``families`` says who runs code with the suffix ``f``;
    ``compilers`` which toolkit first compiles for a chip at run time; ``cudnn`` from which version on (ascending) a
    cuDNN has code only for that capability and later, ``cudnn_last`` which have none for later chips;
    ``unified_memory`` are the chips that share the processor's memory; ``recommended_branch`` is the driver to install
    where none is there.
    ``jetsons`` are by their name in the device tree; ``jetson_kernels`` maps Linux's ``X.Y`` to the release of Jetson
    Linux, and ``server_l4t`` is the one from which on a Jetson runs the wheels for servers.
    """

    branches: tuple[tuple[int, CudaVersion], ...]
    vgpu: Mapping[int, int]
    no_compat: frozenset[str]
    floors: Mapping[int, Floor]
    partially_supported: PartialSupport
    generations: tuple[Generation, ...]
    first_drivers: Mapping[ComputeCapability, Floor]
    tegra: Mapping[ComputeCapability, Unification | None]
    families: Mapping[ComputeCapability, frozenset[ComputeCapability]]
    compilers: Mapping[ComputeCapability, CudaVersion]
    cudnn: tuple[tuple[tuple[int, ...], ComputeCapability], ...]
    cudnn_last: tuple[CudnnLast, ...]
    unified_memory: frozenset[ComputeCapability]
    recommended_branch: int
    kernel_modules: KernelModules
    jetsons: Mapping[str, JetsonChip]
    jetson_kernels: Mapping[str, str]
    server_l4t: int

    def branch(self, version: DriverVersion) -> tuple[int, CudaVersion] | None:
        """Find the branch that a release belongs to and the CUDA that it reports; None for one before them all."""
        return next((row for row in reversed(self.branches) if row[0] <= version.branch), None)

    def generation(self, capability: ComputeCapability) -> Generation | None:
        """Find the generation of a chip; None for one that the catalogue does not know."""
        return next((row for row in self.generations if row.first <= capability <= row.last), None)

    def cudnn_floor(self, version: str) -> ComputeCapability | None:
        """The lowest compute capability that a cuDNN such as ``9.1.0.70`` has code for; None: all."""
        number = _numbers(version)
        return next((floor for first, floor in reversed(self.cudnn) if number >= first), None)

    def cudnn_ceiling(self, version: str, cuda: int | None) -> ComputeCapability | None:
        """The highest compute capability that a cuDNN such as ``9.1.0.70`` for a CUDA major serves; None: all."""
        number = _numbers(version)
        return min((row.capability for row in self.cudnn_last if row.holds(number, cuda)), default=None)


@cache
def load_drivers() -> Drivers:
    """Load the tables as shipped, without those of the builds."""
    return parse_drivers(authored.read_data("drivers.toml"))


def parse_drivers(table: Mapping[str, Any]) -> Drivers:
    """Read the tables of ``drivers.toml``."""
    capability = ComputeCapability.parse
    partial, modules = table["partially_supported"], table["kernel_modules"]
    families, compilers = table["families"], table["run_time_compilers"]
    return Drivers(
        branches=tuple((row["branch"], CudaVersion.parse(row["cuda"])) for row in table["branches"]),
        no_compat=frozenset(table["no_compat"]["words"].split()),
        vgpu={row["release"]: row["branch"] for row in table["vgpu"]},
        floors={row["cuda"]: _floor(row) for row in table["floors"]},
        partially_supported=PartialSupport(partial["first"], partial["last"], CudaVersion.parse(partial["cuda"])),
        generations=tuple(
            Generation(row["name"], capability(row["from"]), capability(row["to"]), row.get("last"))
            for row in table["architectures"]
        ),
        first_drivers={capability(row["capability"]): _floor(row) for row in table["first_drivers"]},
        tegra={capability(row["capability"]): _unification(row) for row in table["tegra"]},
        families={capability(row["code"]): frozenset(map(capability, row["runs_on"].split())) for row in families},
        compilers={capability(row["capability"]): CudaVersion.parse(row["cuda"]) for row in compilers},
        cudnn=tuple((_numbers(row["version"]), capability(row["capability"])) for row in table["cudnn"]),
        cudnn_last=tuple(_cudnn_last(row) for row in table["cudnn_last"]),
        unified_memory=frozenset(capability(row["capability"]) for row in table["unified_memory"]),
        recommended_branch=table["recommended"]["branch"],
        kernel_modules=KernelModules(capability(modules["open_from"]), capability(modules["open_only_from"])),
        jetsons={row["chip"]: JetsonChip(row["name"], capability(row["capability"])) for row in table["jetsons"]},
        jetson_kernels={row["kernel"]: row["l4t"] for row in table["jetson_kernels"]},
        server_l4t=table["jetson"]["l4t"],
    )


def _unification(row: Mapping[str, Any]) -> Unification | None:
    if "unified" not in row:
        return None
    return Unification(CudaVersion.parse(row["unified"]), CudaVersion.parse(row.get("ran", row["unified"])))


def _cudnn_last(row: Mapping[str, Any]) -> CudnnLast:
    before = _numbers(row["before"]) if "before" in row else None
    return CudnnLast(ComputeCapability.parse(row["capability"]), before, row.get("cuda"))


def _floor(row: Mapping[str, Any]) -> Floor:
    return Floor(DriverVersion.parse(row["linux"]), DriverVersion.parse(row["windows"]), row.get("after"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
