"""What is built on this machine: reported before anything is fetched, refused if it cannot be built.

Packages whose setup imports torch are built in the environment itself, after everything else in it: uv does so for
the packages that its settings name (tried: ``[pip] no-build-isolation-package``, in one ``uv pip sync``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import tomli_w
from packaging.version import Version

from gpuinstall.base.codec import read_object
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.machine import Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.text import is_verbose, number_of, some
from gpuinstall.base.uv import BuildVariables
from gpuinstall.base.values import Value
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import authored
from gpuinstall.machine.nvidia.toolchain import COMPILED_FOR, find_compiler, toolkit_fix

Packages = Sequence[Mapping[str, Any]]
"""Those of uv's own lock, or of one of ours, as a document has them."""

SDIST = "its sdist"
NO_WHEEL = "has no wheel for this machine, and only-binary allows nothing else"
WITH_SOURCES = "Run it again without only-binary (GPUINSTALL_ONLY_BINARY), or request another version"


CXX_20_SINCE = Version("2.14")
"""The torch whose headers want C++20 of what is compiled beside it."""


class KnownBuild(Value):
    """What the build of a package needs; the file documents each field."""

    imports_torch: bool = False
    compiles: str = ""
    tools: tuple[str, ...] = ()
    gib_per_job: int = 1
    environment: Mapping[str, str] = {}
    cxx: int = 0
    note: str = ""
    metadata: Mapping[str, Any] = {}


@cache
def known_builds() -> Mapping[str, KnownBuild]:
    """Load the table as shipped, by name."""
    table = authored.read_data("source_builds.toml")
    return {
        row["name"]: read_object(KnownBuild, {**table["default"], **row})
        for row in table["packages"]
    }


def wants_older_torch(known: KnownBuild, torch: Version | str) -> bool:
    """Whether the sources of a package are of an older C++ than a torch compiles with."""
    return known.cxx == 17 and Version(str(torch)) >= CXX_20_SINCE


class SourceBuild(NamedTuple):
    """A package that has no wheel here."""

    package: str
    version: str
    origin: str
    known: KnownBuild
    """What is known of its build."""

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


class BuildSite(NamedTuple):
    """Where packages are built."""

    backend: Backend
    versions: Mapping[str, str]
    """Those of the packages that are installed with them."""

    machine: Machine
    environ: Mapping[str, str]
    passed: tuple[str, ...] = ()
    """The variables that the user passes to every build."""

    @property
    def torch(self) -> str:
        """The torch that it is, for messages."""
        return f"torch {self.versions.get('torch', '')} ({self.backend})"

    @property
    def is_for_cuda(self) -> bool:
        """Whether nvcc compiles for its GPUs: nothing else compiles for others yet."""
        return self.backend.kind == "cuda"

    @property
    def architectures(self) -> tuple[str, ...]:
        """The compute capabilities to compile for: those that the user gives, or those of the GPUs that are here."""
        given = self.environ.get(COMPILED_FOR)
        if given:
            return tuple(given.split(";"))
        capabilities = {gpu.compute_capability for gpu in self.machine.gpus}
        known = sorted(filter(None, capabilities))
        return tuple(map(str, known))


def source_builds(packages: Packages) -> tuple[SourceBuild, ...]:
    """Return what a lock, or uv's own, has no wheel of."""
    builds = []
    for package in packages:
        origin = _origin(package)
        if not origin:
            continue
        build = SourceBuild(
            package=package["name"],
            version=package.get("version", ""),
            origin=origin,
            known=known_builds().get(package["name"], KnownBuild()),
        )
        builds.append(build)
    return tuple(builds)


def _origin(package: Mapping[str, Any]) -> str:
    """Return what a package is built from; empty if it has a wheel."""
    if package.get("wheels"):
        return ""
    if "sdist" in package:
        return SDIST
    if "vcs" in package:
        repository = package["vcs"]
        return f"commit {repository['commit-id'][:12]} of {repository.get('url') or repository.get('path')}"
    if "directory" in package:
        return f"the folder {package['directory']['path']}"
    archive = package.get("archive", {})
    place = archive.get("url") or archive.get("path", "")
    is_wheel = place.partition("#")[0].endswith(".whl")
    return "an archive" if place and not is_wheel else ""


def build_tools(packages: Packages) -> tuple[str, ...]:
    """Return the packages that builds in the environment itself need there, and that a lock does not have yet.

    Args:
        packages: Those of uv's lock.
    """
    tools = dict[str, None]()
    for build in source_builds(packages):
        tools |= dict.fromkeys(build.known.tools)
    for package in packages:
        tools.pop(package["name"], None)
    return tuple(tools)


def without_wheel(what: object) -> NoBuildError:
    """Return the error of something that has no wheel, although only wheels are allowed."""
    return NoBuildError("only-binary", f"{what} {NO_WHEEL}", hint=WITH_SOURCES)


def check_wheels(
    builds: Iterable[SourceBuild], introduced: Collection[str] = ()
) -> None:
    """Raise NoBuildError if a package of an index would be built, although only wheels are allowed."""
    for build in builds:
        if build.origin == SDIST or build.package in introduced:
            raise without_wheel(build)


def report_builds(
    builds: Iterable[SourceBuild],
    site: BuildSite,
    reporter: Reporter,
    introduced: Collection[str] = (),
) -> None:
    """Report what will be built and what it needs.

    Args:
        builds: The packages without a wheel.
        site: Where they are built; torch's CUDA decides of which nvcc is needed.
        reporter: Reports it.
        introduced: The packages that only a lock introduced.
    """
    for build in builds:
        needs = [*build_needs(build.known, site.backend)]
        if wants_older_torch(build.known, site.versions.get("torch", "0")):
            needs.append(f"torch below {CXX_20_SINCE}, whose headers take C++17")
        given = BuildVariables(build.package in introduced, site.passed)
        withheld = given.withheld(site.environ)
        if withheld:
            names = f": {some(withheld)}" if is_verbose() else ""
            needs.append(
                f"without {number_of(len(withheld), 'environment variable')}{names}"
            )
        text = ", ".join([f"{build} is built from {build.origin}", *needs])
        reporter.notice("Source", text)


def check_builds(builds: Iterable[SourceBuild], site: BuildSite, *, here: bool) -> None:
    """Check that packages can be built.

    Args:
        builds: The packages without a wheel.
        site: Where they are built.
        here: Whether that is this very machine, whose compilers count.

    Raises:
        NoBuildError: A compiler is missing or of another CUDA, or a package has code for GPUs alone and torch none.
    """
    for build in builds:
        if build.known.compiles == "gpu" and not site.is_for_cuda:
            raise NoBuildError(
                "build-needs-gpu",
                f"{build} has code for GPUs only, and {site.torch} is not a GPU build",
                hint=f"gpuinstall lock --target cu126   # for machines with GPUs; or leave {build.package} out",
            )
        if here and build.known.compiles:
            if site.is_for_cuda:
                _check_gpu_compiler(build, site)
            _check_cxx_compiler(build, site)


def build_needs(known: KnownBuild, backend: Backend) -> Iterator[str]:
    """Yield what a build beside torch for a backend needs: compilers, memory."""
    if known.compiles:
        if backend.kind == "cuda":
            yield f"with nvcc of CUDA {backend.version}"
        yield "a C++ compiler"
        yield f"{known.gib_per_job} GB of memory for each job (MAX_JOBS)"
    if known.note:
        yield known.note


def _check_gpu_compiler(build: SourceBuild, site: BuildSite) -> None:
    version = site.backend.version or ""
    compiler = find_compiler(site.environ)
    hint = toolkit_fix(version, site.machine)
    if compiler is None:
        raise NoBuildError(
            "toolkit-missing",
            f"{build} is built from source, but there is no nvcc here",
            why=f"{site.torch} compiles with nvcc of CUDA {version}",
            hint=hint,
            id="F57",
        )
    if compiler.version and not compiler.serves(version):
        raise NoBuildError(
            "toolkit-differs",
            f"{build} is built from source, but nvcc here is of CUDA {compiler.version}, torch of CUDA {version}",
            why="torch compiles only with a toolkit of its own major version",
            evidence=f"{compiler.path} · {site.torch}",
            hint=hint,
            id="F57",
        )


def _check_cxx_compiler(build: SourceBuild, site: BuildSite) -> None:
    if site.machine.os == "windows":
        return
    requested = site.environ.get("CXX", "").split()
    path = site.environ.get("PATH", os.defpath)
    for name in (*requested[:1], "c++", "g++", "clang++"):
        if shutil.which(name, path=path):
            return
    raise NoBuildError(
        "compiler-missing",
        f"{build} is built from source, but there is no C++ compiler here",
        hint="sudo apt-get install g++   # or your system's package of it",
    )


def sync_settings(
    builds: Sequence[SourceBuild],
    site: BuildSite,
    index: str | None = None,
    default_index: str | None = None,
    *,
    extra: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    logins: Sequence[Mapping[str, Any]] = (),
) -> str:
    """Return uv's settings to install with: what is built beside the torch that it imports, and that torch's index.

    uv's cache keeps what was built by the variables that its settings give it, and knows no torch (tried: it gave what
    was compiled beside another); so they name torch and what is compiled for.

    Args:
        builds: What is built.
        site: Where.
        index: The index of torch, if it serves.
        extra: The variables of the user's settings for single packages.
        logins: The indexes that give uv the logins of servers.
        default_index: The default index with its login, which no variable tells the code of packages.
    """
    settings: dict[str, Any] = {"index": [*logins]}
    if index:
        # What a build needs is looked for there too, and many an index answers 403 for what it has not.
        settings["index"].append({"url": index, "ignore-error-codes": [403]})
    if default_index:
        settings["index"].append({"url": default_index, "default": True})
    if builds:
        words = (site.versions.get("torch", ""), *site.architectures)
        variables = {"GPUINSTALL_BUILT_FOR": " ".join(words)}
        beside_torch = [build.package for build in builds if build.known.imports_torch]
        settings["extra-build-variables"] = {
            build.package: {**extra.get(build.package, {}), **variables}
            for build in builds
        }
        settings["pip"] = {"no-build-isolation-package": beside_torch}
    return tomli_w.dumps(settings)


def sync_variables(
    builds: Iterable[SourceBuild],
    site: BuildSite,
) -> dict[str, str]:
    """Return the variables to build with.

    Args:
        builds: What is built.
        site: Where. Its GPUs are named, for a build that sees none, as in a container's, would leave their code out.
    """
    if not site.is_for_cuda:
        return {}
    variables = dict[str, str]()
    for build in builds:
        variables |= build.known.environment
        if build.known.compiles and site.architectures:
            variables[COMPILED_FOR] = ";".join(site.architectures)
    return variables
