"""Tables of NVIDIA's drivers and chips, from ``drivers.toml``."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

from gpuinstall.base.codec import WordSet, read_object
from gpuinstall.base.values import Value
from gpuinstall.base.versions import (
    ComputeCapability,
    CudaVersion,
    DriverVersion,
    version_key,
)
from gpuinstall.catalog import data_files

_Row = Mapping[str, Any]


_Numbers = Annotated[tuple[int, ...], version_key]
_KEYS = {
    "floors": "cuda",
    "oldest_chips": "cuda capability",
    "first_drivers": "capability",
    "tegra": "capability",
    "families": "code runs_on",
    "run_time_compilers": "capability cuda",
    "unified_memory": "capability",
    "jetsons": "chip",
    "jetson_kernels": "kernel l4t",
}
"""The key and the value of each list that is read as a mapping."""
_FACTS = {
    "no_compat": "words",
    "compat_base": "branch",
    "recommended": "branch",
    "jetson": "l4t",
}
"""The tables that contain a single value, and the value's key."""


class Floor(Value):
    """The minimum driver for a CUDA major version."""

    linux: DriverVersion
    windows: DriverVersion
    """The minimum driver on Windows and WSL."""
    after: str | None = None
    """The newest driver known to be too old, if the minimum is assumed."""


class Generation(Value):
    """A generation of chips, by compute capability."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    last_branch: int | None = None
    """The last driver branch that supports these chips."""


class Branch(NamedTuple):
    """A driver branch and the CUDA version that it reports."""

    branch: int
    cuda: CudaVersion


class Cudnn(Value):
    """The first cuDNN release with a given lowest compute capability."""

    version: _Numbers
    capability: ComputeCapability


class CudnnLast(Value):
    """The last compute capability that some cuDNN releases support."""

    capability: ComputeCapability
    before: _Numbers | None = None
    """The first cuDNN release without the limit, or None."""
    cuda: int | None = None


class PartialSupport(Value):
    """The driver branches on which some kernels of newer builds may fail."""

    first: int
    last: int
    cuda: CudaVersion
    """The oldest CUDA version whose builds may fail."""


class KernelModules(Value):
    """The chips that NVIDIA's open kernel modules support."""

    open_from: ComputeCapability
    """The first chip that the open kernel modules support."""
    open_only_from: ComputeCapability
    """The first chip that requires the open kernel modules."""


class Tegra(Value):
    """Toolkits that build the same code for a Tegra chip and desktop GPUs."""

    unified: CudaVersion | None = None
    """The first toolkit that builds the same code for both, if any."""
    ran: CudaVersion | None = None
    """A toolkit whose code works on the chip according to a user's report."""


class JetsonChip(Value):
    """A Tegra chip: its module family and compute capability."""

    name: str
    capability: ComputeCapability


class Drivers(Value, eq=False):
    """The parsed tables of ``drivers.toml``."""

    branches: tuple[Branch, ...]
    """The driver branches, oldest first."""
    no_compat: WordSet
    """Words in names of GPUs that cuda-compat does not support."""
    compat_base: int
    """The oldest driver branch that cuda-compat is known to support."""
    floors: Mapping[int, Floor]
    """The oldest driver for each CUDA major."""
    oldest_chips: Mapping[int, ComputeCapability]
    """The oldest chip that the compilers of each CUDA major support."""
    partially_supported: PartialSupport
    generations: tuple[Generation, ...]
    first_drivers: Mapping[ComputeCapability, Floor]
    """The first driver for each chip that its CUDA's minimum driver lacks."""
    tegra: Mapping[ComputeCapability, Tegra]
    """The chips that run only some or no code for desktop GPUs."""
    families: Mapping[ComputeCapability, WordSet]
    """The chips that run the family code (suffix ``f``) of each chip."""
    run_time_compilers: Mapping[ComputeCapability, CudaVersion]
    """The first toolkit with a runtime compiler for a chip."""
    cudnn: tuple[Cudnn, ...]
    """The lowest compute capability for cuDNN releases, oldest first."""
    cudnn_last: tuple[CudnnLast, ...]
    unified_memory: Mapping[ComputeCapability, Mapping[str, Any]]
    """The chips that share memory with the processor."""
    recommended: int
    """The driver branch to install on a machine without a driver."""
    kernel_modules: KernelModules
    jetsons: Mapping[str, JetsonChip]
    """The chips of Jetsons, by name in the device tree."""
    jetson_kernels: Mapping[str, str]
    """The release of Jetson Linux, by Linux kernel ``X.Y``."""
    jetson: str
    """The first release of Jetson Linux that runs wheels for servers."""

    @property
    def versions(self) -> list[DriverVersion]:
        """A driver version for each branch, oldest first."""
        return [DriverVersion.parse(str(branch)) for branch, _ in self.branches]

    def list_thresholds(self, os: str) -> list[DriverVersion]:
        """Return the drivers at which facts change, oldest first.

        ``580.0`` was never released and represents the first driver of the branch.
        """
        releases = {DriverVersion.parse(f"{branch}.0") for branch, _ in self.branches}
        for floor in (*self.floors.values(), *self.first_drivers.values()):
            release = floor.windows if os == "windows" else floor.linux
            # Skip a minimum that is only a branch, because the list includes the branch's first release.
            if len(release.parts) > 1:
                releases.add(release)
        return sorted(releases)

    def find_first_branch(self, cuda: tuple[int, int]) -> int | None:
        """Return the oldest driver branch with a CUDA version, if any."""
        return next((row.branch for row in self.branches if row.cuda >= cuda), None)

    def list_cuda_versions(self, oldest: DriverVersion) -> tuple[CudaVersion, ...]:
        """Return the CUDA versions that a driver and newer ones report."""
        cudas = {cuda for branch, cuda in self.branches if branch >= oldest.branch}
        return tuple(sorted(cudas))

    def branch(self, version: DriverVersion) -> Branch | None:
        """Return the branch of a driver, or None if it is older than all."""
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
        """Return the lowest compute capability that a cuDNN release supports.

        The result is None if the cuDNN release is older than the table.
        """
        cudnn = version_key(version)
        for row in reversed(self.cudnn):
            if cudnn >= row.version:
                return row.capability
        return None

    def cudnn_ceiling(
        self,
        version: str,
        cuda: int | None,
    ) -> ComputeCapability | None:
        """Return the highest compute capability that a cuDNN release supports.

        The result is None if the cuDNN release has no known limit.
        """
        cudnn = version_key(version)
        ceilings = [
            row.capability
            for row in self.cudnn_last
            if (cudnn < row.before if row.before else cuda == row.cuda)
        ]
        return min(ceilings, default=None)


@cache
def load_drivers() -> Drivers:
    """Load the shipped tables of drivers and chips."""
    return parse_drivers(data_files.read_data("drivers.toml"))


def parse_drivers(table: _Row) -> Drivers:
    """Parse the rows of ``drivers.toml``."""
    tables = dict(table)
    for name, keys in _KEYS.items():
        key, _, fact = keys.partition(" ")
        tables[name] = {row[key]: row[fact] if fact else row for row in table[name]}
    for name, fact in _FACTS.items():
        tables[name] = table[name][fact]
    return read_object(Drivers, tables)
