"""NVIDIA's drivers, chips, and their code, from ``drivers.toml``."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

from gpuinstall.base.codec import WordSet, read_object
from gpuinstall.base.values import Value
from gpuinstall.base.versions import (
    ComputeCapability,
    CudaVersion,
    DriverVersion,
    numbers,
)
from gpuinstall.catalog import authored

_Row = Mapping[str, Any]


_Numbers = Annotated[tuple[int, ...], numbers]
_KEYS = {
    "floors": "cuda",
    "first_drivers": "capability",
    "tegra": "capability",
    "families": "code runs_on",
    "run_time_compilers": "capability cuda",
    "unified_memory": "capability",
    "jetsons": "chip",
    "jetson_kernels": "kernel l4t",
}
"""The key of each lookup list, and its value unless that is the row."""
_FACTS = {
    "no_compat": "words",
    "compat_base": "branch",
    "recommended": "branch",
    "jetson": "l4t",
}
"""The rows of one fact."""


class Floor(Value):
    """A minimum driver."""

    linux: DriverVersion
    windows: DriverVersion
    """WSL uses it too."""
    after: str | None = None
    """The newest known unsuitable driver, if the minimum is assumed."""


class Generation(Value):
    """A generation of chips, by compute capability."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    last_branch: int | None = None
    """The last driver branch that supports it."""


class Branch(NamedTuple):
    """A driver branch and its reported CUDA."""

    branch: int
    cuda: CudaVersion


class Cudnn(Value):
    """The first cuDNN release with this lowest compute capability."""

    version: _Numbers
    capability: ComputeCapability


class CudnnLast(Value):
    """The last compute capability that some cuDNN releases support."""

    capability: ComputeCapability
    before: _Numbers | None = None
    """The first other release, or None for all releases of ``cuda``."""
    cuda: int | None = None


class PartialSupport(Value):
    """The branches on which some kernels of newer builds may fail."""

    first: int
    last: int
    cuda: CudaVersion
    """The oldest CUDA of such a build."""


class KernelModules(Value):
    """The chips that NVIDIA's open kernel modules support."""

    open_from: ComputeCapability
    """The first supported chip."""
    open_only_from: ComputeCapability
    """The first chip that requires them."""


class Tegra(Value):
    """Toolkits that build the same code for a Tegra chip and desktop GPUs."""

    unified: CudaVersion | None = None
    """The first such toolkit, if any."""
    ran: CudaVersion | None = None
    """A toolkit that a user reported to work on the chip."""


class JetsonChip(Value):
    """A Tegra chip: its module family and compute capability."""

    name: str
    capability: ComputeCapability


class Drivers(Value, eq=False):
    """The tables."""

    branches: tuple[Branch, ...]
    """Ascending."""
    no_compat: WordSet
    """Words in names of GPUs that cuda-compat does not support."""
    compat_base: int
    """The oldest driver branch that cuda-compat is known to support."""
    floors: Mapping[int, Floor]
    """By CUDA major."""
    partially_supported: PartialSupport
    generations: tuple[Generation, ...]
    first_drivers: Mapping[ComputeCapability, Floor]
    """The first driver of a chip, if older ones support some CUDA."""
    tegra: Mapping[ComputeCapability, Tegra]
    """The chips that run no or only some code for desktop GPUs."""
    families: Mapping[ComputeCapability, WordSet]
    """The chips that run code with the suffix ``f``."""
    run_time_compilers: Mapping[ComputeCapability, CudaVersion]
    """The first toolkit with a runtime compiler for a chip."""
    cudnn: tuple[Cudnn, ...]
    """Ascending."""
    cudnn_last: tuple[CudnnLast, ...]
    unified_memory: Mapping[ComputeCapability, Mapping[str, Any]]
    """The chips that share the processor's memory."""
    recommended: int
    """The driver branch to install on a machine without a driver."""
    kernel_modules: KernelModules
    jetsons: Mapping[str, JetsonChip]
    """By the chip's name in the device tree."""
    jetson_kernels: Mapping[str, str]
    """The release of Jetson Linux by Linux's ``X.Y``."""
    jetson: str
    """The first Jetson Linux that runs the wheels for servers."""

    @property
    def versions(self) -> list[DriverVersion]:
        """A driver for each branch, ascending."""
        return [DriverVersion.parse(str(branch)) for branch, _ in self.branches]

    def branch(self, version: DriverVersion) -> Branch | None:
        """Return the branch of a release, unless it is older than all."""
        for row in reversed(self.branches):
            if row.branch <= version.branch:
                return row
        return None

    def generation(self, capability: ComputeCapability) -> Generation | None:
        """Return the generation of a chip, if known."""
        for generation in self.generations:
            if generation.first <= capability <= generation.last:
                return generation
        return None

    def cudnn_floor(self, version: str) -> ComputeCapability | None:
        """Return the lowest compute capability of a cuDNN, if limited."""
        cudnn = numbers(version)
        for row in reversed(self.cudnn):
            if cudnn >= row.version:
                return row.capability
        return None

    def cudnn_ceiling(
        self,
        version: str,
        cuda: int | None,
    ) -> ComputeCapability | None:
        """Return the highest compute capability of a cuDNN, if limited."""
        cudnn = numbers(version)
        ceilings = [
            row.capability
            for row in self.cudnn_last
            if (cudnn < row.before if row.before else cuda == row.cuda)
        ]
        return min(ceilings, default=None)


@cache
def load_drivers() -> Drivers:
    """Return the tables as shipped."""
    return parse_drivers(authored.read_data("drivers.toml"))


def parse_drivers(table: _Row) -> Drivers:
    """Parse the rows of ``drivers.toml``."""
    tables = dict(table)
    for name, keys in _KEYS.items():
        key, _, fact = keys.partition(" ")
        tables[name] = {row[key]: row[fact] if fact else row for row in table[name]}
    for name, fact in _FACTS.items():
        tables[name] = table[name][fact]
    return read_object(Drivers, tables)
