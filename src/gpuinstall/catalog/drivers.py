"""What NVIDIA's drivers serve, which chip runs which code, and which chip is which.

All of it is read from ``drivers.toml``.
"""

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
"""The lists that are looked things up in: by what, and the one thing that is looked up if it is not the whole row."""
_FACTS = {
    "no_compat": "words",
    "compat_base": "branch",
    "recommended": "branch",
    "jetson": "l4t",
}
"""The rows that stand for one fact."""


class Floor(Value):
    """The oldest driver for something."""

    linux: DriverVersion
    windows: DriverVersion
    """Its number counts in WSL too."""
    after: str | None = None
    """If the oldest is unknown, the newest that is known not to be it; the others are assumed."""


class Generation(Value):
    """A generation of chips, by compute capability."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    last_branch: int | None = None
    """The last driver branch that drives it."""


class Branch(NamedTuple):
    """A driver branch, and the CUDA that it reports."""

    branch: int
    cuda: CudaVersion


class Cudnn(Value):
    """A release from which on cuDNN has code only for a capability and later."""

    version: _Numbers
    capability: ComputeCapability


class CudnnLast(Value):
    """The last compute capability that some releases of cuDNN serve."""

    capability: ComputeCapability
    before: _Numbers | None = None
    """The first release that is not one of them; None: the releases are those for ``cuda``."""
    cuda: int | None = None


class PartialSupport(Value):
    """The branches, first to last, on which some kernels of newer builds may fail."""

    first: int
    last: int
    cuda: CudaVersion
    """The oldest CUDA of such a build."""


class KernelModules(Value):
    """Which chips NVIDIA's open kernel modules drive."""

    open_from: ComputeCapability
    """The first that they drive."""
    open_only_from: ComputeCapability
    """The first that only they drive."""


class Tegra(Value):
    """Which toolkits make code that a Tegra chip shares with its desktop relatives."""

    unified: CudaVersion | None = None
    """The first; None: none does."""
    ran: CudaVersion | None = None
    """One with which the chip was seen to run such code."""


class JetsonChip(Value):
    """A Tegra chip: the family of its modules, and what its GPU can execute."""

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
    """The first driver that knows a chip, if an older one serves some CUDA."""
    tegra: Mapping[ComputeCapability, Tegra]
    """The chips that run no code of their desktop relatives, or only that of some toolkits."""
    families: Mapping[ComputeCapability, WordSet]
    """The chips that run code with the suffix ``f``."""
    run_time_compilers: Mapping[ComputeCapability, CudaVersion]
    """The first toolkit that compiles for a chip at run time."""
    cudnn: tuple[Cudnn, ...]
    """Ascending."""
    cudnn_last: tuple[CudnnLast, ...]
    unified_memory: Mapping[ComputeCapability, Mapping[str, Any]]
    """The chips that share the processor's memory."""
    recommended: int
    """The branch of the driver to install if there is none."""
    kernel_modules: KernelModules
    jetsons: Mapping[str, JetsonChip]
    """By the chip's name in the device tree."""
    jetson_kernels: Mapping[str, str]
    """The release of Jetson Linux by Linux's ``X.Y``."""
    jetson: str
    """The release of Jetson Linux from which on a Jetson runs the wheels for servers."""

    @property
    def versions(self) -> list[DriverVersion]:
        """Every branch as a driver of its newest release, ascending."""
        return [DriverVersion.parse(str(branch)) for branch, _ in self.branches]

    def branch(self, version: DriverVersion) -> Branch | None:
        """Return a release's branch; None before the first."""
        for row in reversed(self.branches):
            if row.branch <= version.branch:
                return row
        return None

    def generation(self, capability: ComputeCapability) -> Generation | None:
        """Return the generation of a chip; None for one that the catalogue does not know."""
        for generation in self.generations:
            if generation.first <= capability <= generation.last:
                return generation
        return None

    def cudnn_floor(self, version: str) -> ComputeCapability | None:
        """Return the lowest compute capability that a cuDNN has code for; None: all."""
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
        """Return the highest compute capability that a cuDNN for a CUDA major serves; None: all."""
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
    """Return what the rows of ``drivers.toml`` say."""
    tables = dict(table)
    for name, keys in _KEYS.items():
        key, _, fact = keys.partition(" ")
        tables[name] = {row[key]: row[fact] if fact else row for row in table[name]}
    for name, fact in _FACTS.items():
        tables[name] = table[name][fact]
    return read_object(Drivers, tables)
