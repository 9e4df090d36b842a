"""What NVIDIA's drivers serve, and which chip runs which code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.versions import ComputeCapability, CudaVersion, DriverVersion

if TYPE_CHECKING:
    from collections.abc import Mapping


class Floor(NamedTuple):
    """The oldest driver for something, on Linux and on Windows (whose numbers count in WSL too)."""

    linux: DriverVersion
    windows: DriverVersion


class Generation(NamedTuple):
    """A generation of chips, by compute capability: the first driver and the last driver branch that drive it."""

    name: str
    first: ComputeCapability
    last: ComputeCapability
    floor: Floor | None = None
    last_branch: int | None = None


class Drivers(NamedTuple):
    """The tables. ``branches`` ascend; ``floors`` are by CUDA major.

    ``shaky`` are the first and last branch on which some kernels of a build of that CUDA or newer may fail.
    ``tegra`` chips run no code of their desktop relatives (before the toolkit named); ``families`` says who runs
    code with the suffix ``f``; ``compilers`` which CUDA major first compiles for a chip at run time;
    ``server_l4t`` the release of Jetson Linux from which on a Jetson runs the wheels for servers.
    """

    branches: tuple[tuple[int, CudaVersion], ...]
    floors: Mapping[int, Floor]
    shaky: tuple[int, int, CudaVersion]
    generations: tuple[Generation, ...]
    tegra: Mapping[ComputeCapability, CudaVersion | None]
    families: Mapping[ComputeCapability, frozenset[ComputeCapability]]
    compilers: Mapping[ComputeCapability, int]
    server_l4t: int

    def branch(self, version: DriverVersion) -> tuple[int, CudaVersion] | None:
        """Find the branch that a release belongs to and the CUDA that it reports; None for one before them all."""
        return next((row for row in reversed(self.branches) if row[0] <= version.branch), None)

    def generation(self, capability: ComputeCapability) -> Generation | None:
        """Find the generation of a chip; None for one that the catalogue does not know."""
        return next((row for row in self.generations if row.first <= capability <= row.last), None)


def parse_drivers(table: Mapping[str, Any]) -> Drivers:
    """Read the tables of ``drivers.toml``."""
    shaky = table["shaky"]
    return Drivers(
        branches=tuple((row["branch"], CudaVersion.parse(row["cuda"])) for row in table["branches"]),
        floors={row["cuda"]: _floor(row) for row in table["floors"]},
        shaky=(shaky["first"], shaky["last"], CudaVersion.parse(shaky["cuda"])),
        generations=tuple(_generation(row) for row in table["architectures"]),
        tegra={
            ComputeCapability.parse(row["capability"]): CudaVersion.parse(row["unified"]) if "unified" in row else None
            for row in table["tegra"]
        },
        families={
            ComputeCapability.parse(row["code"]): frozenset(map(ComputeCapability.parse, row["runs_on"].split()))
            for row in table["families"]
        },
        compilers={ComputeCapability.parse(row["capability"]): row["cuda"] for row in table["run_time_compilers"]},
        server_l4t=table["jetson"]["l4t"],
    )


def _generation(row: Mapping[str, Any]) -> Generation:
    return Generation(
        name=row["name"],
        first=ComputeCapability.parse(row["from"]),
        last=ComputeCapability.parse(row["to"]),
        floor=_floor(row) if "linux" in row else None,
        last_branch=row.get("last"),
    )


def _floor(row: Mapping[str, Any]) -> Floor:
    return Floor(DriverVersion.parse(row["linux"]), DriverVersion.parse(row["windows"]))
