"""What keeps the native code of a package from running on the GPUs of a lock, beside a build of torch: one rule each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.values import dataclass
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.wheels.companions import load_members
from gpuinstall.wheels.learned.row import as_build, made_with, refused_by_driver
from gpuinstall.wheels.needs import load_libraries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.base.machine import Gpu
    from gpuinstall.catalog import Build
    from gpuinstall.machine.protocol import Rules
    from gpuinstall.wheels.learned.row import LearnedRow
    from gpuinstall.wheels.needs import TorchNeeds


_OF_ANOTHER_ABI = {("2.6", "cu126")}
"""Builds with the strings of C++11, where the others of the same release have those before it: nobody measured them.

https://github.com/pytorch/pytorch/releases/tag/v2.6.0
"""


@dataclass(frozen=True)
class CodeSurroundings:
    """What native code meets where it is installed."""

    gpus: tuple[tuple[Rules, Gpu], ...]
    """Each with the rules of its machine."""
    versions: Mapping[str, str]
    """The packages of the same lock."""


def for_another_system(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that all libraries of a package are for another system, although its name says any."""
    if row.system == "windows" and build.os != "windows":
        return f"has libraries for Windows alone, although its file {row.file} is for any platform"
    return None


def below_lowest(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that a GPU is older than the makers of a package support."""
    version = Version(row.version)
    lowest = load_members().lowest_capability(row.package, version)
    if lowest is None:
        return None
    for _, gpu in around.gpus:
        capability = gpu.compute_capability
        if capability and capability < ComputeCapability.parse(lowest):
            need = f"requires compute capability {lowest} or newer"
            return f"{need}, and {gpu.label} has {capability}"
    return None


def beyond_driver(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return that a driver does not run the CUDA that a package is made with."""
    return refused_by_driver(row, build, around.gpus)


def without_runtime(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return that torch brings another CUDA than the one that a package is linked to."""
    if _may_load(row, build, around):
        return None
    software = around.gpus[0][0].software if around.gpus else "CUDA"
    made = made_with(row, as_build(row, build), software)
    return f"is incompatible with torch {build.name}: {made}"


def without_symbols(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:  # noqa: ARG001
    """Return that a torch lacks a symbol that a package uses."""
    needs = row.of_torch
    if has_symbols(needs, build) is not False:
        return None
    return f"is incompatible with torch {build.name}: its code works with {needs.torches}"


def has_symbols(needs: TorchNeeds, build: Build) -> bool | None:
    """Whether a build of torch has the symbols that code uses; None if that is not known."""
    minor = build.minor
    if needs.kind == "ordinary" and (minor, build.backend.tag) in _OF_ANOTHER_ABI:
        return None
    return needs.verdict(minor)


CERTAIN = (for_another_system, below_lowest, beyond_driver, without_runtime, without_symbols)
"""The rules by which a part of a package suffices."""


def certainly_against(row: LearnedRow, build: Build, around: CodeSurroundings) -> str | None:
    """Return why a package does not run beside a build, whatever else it has code for."""
    reasons = (rule(row, build, around) for rule in CERTAIN)
    return next(filter(None, reasons), None)


def _may_load(row: LearnedRow, build: Build, around: CodeSurroundings) -> bool:
    """Whether the runtime that a package is made for comes with torch, or with something else in the lock."""
    if row.toolkit is None or build.toolkit is None:
        return True
    opens = row.package in load_members().must_open
    if opens and not lacking(row, around):
        return True
    if not opens and not load_libraries().names_runtime(row.needs, row.opens):
        # A runtime that is linked in, or lies in the wheel, is its own.
        return True
    majors = {build.toolkit[0]}
    if row.of_torch.kind in {"stable", "ordinary"}:
        # Torch's own libraries are in the process before it, with torch's own CUDA.
        return row.toolkit[0] in majors
    for name, version in around.versions.items():
        if load_members().runtime.fullmatch(name):
            majors.add(Version(version).major)
    return row.toolkit[0] in majors


def is_for_single_chips(row: LearnedRow) -> bool:
    """Whether all code of a package is for single chips, ``sm_90a``: such kernels stand beside what runs everywhere.

    Not of a package that is such kernels by its name.
    """
    is_single = all(name.startswith("sm_") and name.endswith("a") for name in row.architectures)
    return is_single and not load_members().is_optional_package(row.package)


def lacking(row: LearnedRow, around: CodeSurroundings) -> tuple[str, ...]:
    """Return the missing packages with libraries that a package needs or does nothing without."""
    if not row.toolkit:
        return ()
    names = list(row.needs)
    must_open = load_members().must_open.get(row.package)
    if must_open:
        names += filter(must_open.fullmatch, row.opens)
    packages = dict[str, None]()
    for name in names:
        library = load_libraries().row(name)
        if library is None:
            continue
        package = library.package_for(row.toolkit[0])
        if package and package not in around.versions:
            packages[package] = None
    return tuple(packages)
