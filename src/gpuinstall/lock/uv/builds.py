"""Report and check source builds before anything is downloaded.

Packages whose setup imports torch are built in the environment itself, after all
other packages. A single ``uv pip sync`` does this for the packages in uv's setting
``[pip] no-build-isolation-package``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import tomli_w
from packaging.version import Version

from gpuinstall.base.advice import Advice, make_command
from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.location import PackageSource, SourceKind, SourceOrigin
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import format_count, is_verbose, join_names
from gpuinstall.base.uv import BuildVariables
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import data_files
from gpuinstall.lock.file.lock import (
    Packages,
    list_built_sources,
)
from gpuinstall.sources import Sources
from gpuinstall.sources.uv_settings import (
    BUILD_DEPENDENCIES,
    BUILD_VARIABLES,
    UvSettings,
)

NO_WHEEL = "has no wheel for this machine, and only-binary forbids building it"
COMPILE = "run python -m pip install --no-build-isolation"
"""The command that builds a package with the torch of the environment."""

COMPILED_FOR = "TORCH_CUDA_ARCH_LIST"
"""The variable that selects compute capabilities for torch's extensions."""
CXX_20_SINCE = Version("2.14")
"""The first torch version whose headers require C++20."""


class KnownBuild(Value):
    """A row of ``source_builds.toml``; that file documents the fields."""

    imports_torch: bool = False
    compiles: str = ""
    tools: tuple[str, ...] = ()
    gib_per_job: int = 1
    environment: Mapping[str, str] = {}
    cxx: int = 0
    note: str = ""
    metadata: Mapping[str, Any] = {}


@cache
def load_known_builds() -> Mapping[str, KnownBuild]:
    """Load ``source_builds.toml``, by package."""
    table = data_files.read_data("source_builds.toml")
    return {
        row["name"]: read_object(KnownBuild, {**table["default"], **row})
        for row in table["packages"]
    }


def needs_older_torch(known: KnownBuild, torch: Version | str) -> bool:
    """Return whether a package uses C++17 but torch's headers need C++20."""
    return known.cxx == 17 and Version(str(torch)) >= CXX_20_SINCE


class SourceBuild(Value):
    """A package to build from source."""

    package: str
    version: str
    source: PackageSource
    known: KnownBuild

    @property
    def origin(self) -> str:
        """The source of the build, for messages."""
        match self.source.kind:
            case SourceKind.REPOSITORY:
                return f"commit {self.source.reference[:12]} of {self.source.address}"
            case SourceKind.DIRECTORY:
                return f"the folder {self.source.address}"
            case kind:
                return str(kind.value)

    @property
    def is_introduced(self) -> bool:
        """Whether only a lock requires the package."""
        return self.source.origin is SourceOrigin.LOCK

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


class BuildContext(Value):
    """The machine and environment variables for source builds."""

    backend: Backend
    versions: Mapping[str, str]
    """The versions of all packages in the environment."""

    machine: Machine
    environ: Mapping[str, str]
    sources: Sources = Sources()
    """The user's variables and uv's settings for builds."""

    @property
    def torch(self) -> str:
        """The version and backend of torch, for messages."""
        return f"torch {self.versions.get('torch', '')} ({self.backend})"

    @property
    def is_for_cuda(self) -> bool:
        """Whether nvcc compiles GPU code; other GPU builds are unsupported."""
        return self.backend.kind == "cuda"

    @property
    def architectures(self) -> tuple[str, ...]:
        """Compute capabilities to compile for, from the user or the GPUs."""
        given = self.environ.get(COMPILED_FOR)
        if given:
            return tuple(given.split(";"))
        capabilities = {gpu.compute_capability for gpu in self.machine.gpus}
        known = sorted(filter(None, capabilities))
        return tuple(map(str, known))


def find_source_builds(
    packages: Packages, requested: Collection[str] | None = None
) -> list[SourceBuild]:
    """Return the packages to build because they have no wheel.

    Args:
        packages: The packages of a lock.
        requested: The packages that the user and the folder's files require. None: all.
    """
    builds = []
    for package, source in list_built_sources(packages):
        is_required = requested is None or package.name in requested
        origin = SourceOrigin.FOLDER if is_required else SourceOrigin.LOCK
        selected = replace(source, origin=origin)
        known = load_known_builds().get(package.name, KnownBuild())
        version = str(package.version or "")
        builds.append(SourceBuild(package.name, version, selected, known))
    return builds


def find_build_tools(packages: Packages) -> tuple[str, ...]:
    """Return missing build dependencies of packages that import torch.

    The builds are not isolated, so the lock must contain these dependencies.
    """
    tools = dict[str, None]()
    for build in find_source_builds(packages):
        tools |= dict.fromkeys(build.known.tools)
    for package in packages:
        tools.pop(package.name, None)
    return tuple(tools)


def create_no_wheel_error(package: object, settings: UvSettings) -> NoBuildError:
    """Return the error for a source build if only wheels are allowed."""
    message = f"{package} {NO_WHEEL}"
    return NoBuildError("only-binary", message, hint=settings.build_hints)


def check_wheels(builds: Iterable[SourceBuild], settings: UvSettings) -> None:
    """Raise NoBuildError for an sdist of an index or an introduced package."""
    for build in builds:
        if build.source.kind is SourceKind.SDIST or build.is_introduced:
            raise create_no_wheel_error(build, settings)


def report_builds(
    builds: Iterable[SourceBuild],
    site: BuildContext,
    reporter: Reporter,
) -> None:
    """Report source builds and their requirements.

    Args:
        builds: The packages without a wheel.
        site: The machine and environment of the builds.
        reporter: The reporter.
    """
    for build in builds:
        needs = [*format_build_needs(build.known, site.backend)]
        if needs_older_torch(build.known, site.versions.get("torch", "0")):
            needs.append(f"torch older than {CXX_20_SINCE}, for its C++17 headers")
        given = BuildVariables(
            build.is_introduced, site.sources.policy.pass_build_variables
        )
        withheld = given.list_withheld(site.environ)
        if withheld:
            names = f": {join_names(withheld)}" if is_verbose() else ""
            needs.append(
                f"without {format_count(len(withheld), 'environment variable')}{names}"
            )
        if keys := site.sources.uv.list_build_settings(build.package):
            needs.append(f"as {join_names(keys)} specifies")
        text = ", ".join([f"{build} is built from {build.origin}", *needs])
        reporter.notice("Source", text)


def check_builds(
    builds: Iterable[SourceBuild], site: BuildContext, *, here: bool
) -> None:
    """Check that packages can be built.

    Args:
        builds: The packages without a wheel.
        site: The machine and environment of the builds.
        here: Whether the builds run on this machine, which then needs the compilers.

    Raises:
        NoBuildError: A compiler is missing or is for another CUDA version, or a package
            has only GPU code and torch has none.
    """
    for build in builds:
        if build.known.compiles == "gpu" and not site.is_for_cuda:
            raise NoBuildError(
                "build-needs-gpu",
                f"{build} requires a GPU build of torch, but {site.torch} is not one",
                hint=make_command(
                    "lock --target cu126",
                    note=f"for machines with GPUs; or remove {build.package}",
                ),
            )
        if here and build.known.compiles:
            if site.is_for_cuda:
                _check_gpu_compiler(build, site)
            _check_cxx_compiler(build, site)


def format_build_needs(known: KnownBuild, backend: Backend) -> Iterator[str]:
    """Yield the compilers and the memory that a build needs, for messages."""
    if known.compiles:
        nvcc = f"nvcc from CUDA {backend.version}, " if backend.kind == "cuda" else ""
        yield f"with {nvcc}a C++ compiler"
        yield f"{known.gib_per_job} GB of memory per job (MAX_JOBS)"
    if known.note:
        yield known.note


def _check_gpu_compiler(build: SourceBuild, site: BuildContext) -> None:
    from gpuinstall.machine.nvidia.toolchain import create_toolkit_fix, find_compiler

    version = site.backend.version or ""
    compiler = find_compiler(site.environ)
    hint = create_toolkit_fix(version, site.machine, build.package)
    if compiler is None:
        raise NoBuildError(
            "toolkit-missing",
            f"{build} is built from source, but nvcc is not installed",
            why=f"{site.torch} requires nvcc from CUDA {version}",
            hint=hint,
            id="F57",
        )
    if compiler.version and not compiler.supports_toolkit(version):
        raise NoBuildError(
            "toolkit-differs",
            f"{build} is built from source, but nvcc is from CUDA {compiler.version}, and torch is built with CUDA {version}",
            why="torch extensions require a CUDA toolkit of the same major version",
            evidence=f"{compiler.path} · {site.torch}",
            hint=hint,
            id="F57",
        )


def _check_cxx_compiler(build: SourceBuild, site: BuildContext) -> None:
    if site.machine.os == "windows":
        return
    requested = site.environ.get("CXX", "").split()
    path = site.environ.get("PATH", os.defpath)
    for name in (*requested[:1], "c++", "g++", "clang++"):
        if shutil.which(name, path=path):
            return
    raise NoBuildError(
        "compiler-missing",
        f"{build} is built from source, but no C++ compiler is installed",
        hint=Advice(
            "sudo",
            ("apt-get", "install", "g++"),
            note="or your system's package for it",
        ),
    )


def create_torch_entry(index: str, *, is_explicit: bool) -> dict[str, Any]:
    """Return the entry of torch's index, which is part of uv's cache key.

    If the index is not explicit, uv also requests build dependencies from it, which
    may return 403.
    """
    return {
        "name": "torch",
        "url": index,
        "explicit": is_explicit,
        "ignore-error-codes": [403],
    }


def create_sync_settings(
    builds: Sequence[SourceBuild],
    site: BuildContext,
    indexes: Sequence[Mapping[str, Any]],
) -> str:
    """Return uv's settings for an installation with source builds.

    uv's cache key for a build includes the build variables in the settings, but not
    torch. Therefore, a variable contains torch and the GPU architectures. Otherwise uv
    would reuse a build for another torch.

    Args:
        builds: The packages to build.
        site: The machine and environment of the builds.
        indexes: The index entries with the logins of servers. Environment variables
            would reveal the logins to package code.
    """
    settings: dict[str, Any] = {"index": indexes, "pip": {}}
    if builds:
        words = (site.versions.get("torch", ""), *site.architectures)
        variables = {"GPUINSTALL_BUILT_FOR": " ".join(words)}
        names = [build.package for build in builds]
        with_torch = [build.package for build in builds if build.known.imports_torch]
        settings |= site.sources.uv.build_keys
        settings[BUILD_DEPENDENCIES] = site.sources.uv.find_build_requirements(
            names, site.versions
        )
        extra = settings.get(BUILD_VARIABLES, {})
        settings[BUILD_VARIABLES] = {
            name: {**extra.get(name, {}), **variables} for name in names
        }
        settings["pip"]["no-build-isolation-package"] = with_torch
    if site.sources.uv.passed.get("require-hashes"):
        settings["pip"]["require-hashes"] = True
    return tomli_w.dumps(settings)


def create_sync_variables(
    builds: Iterable[SourceBuild],
    site: BuildContext,
) -> dict[str, str]:
    """Return the environment variables for builds.

    They list the GPU architectures, because a build in a container may not detect the
    GPUs and would omit their code.
    """
    if not site.is_for_cuda:
        return {}
    variables = dict[str, str]()
    for build in builds:
        variables |= build.known.environment
        if build.known.compiles and site.architectures:
            variables[COMPILED_FOR] = ";".join(site.architectures)
    return variables
