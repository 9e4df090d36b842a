"""What is built on this machine: reported before anything is fetched, refused if it cannot be built.

Packages whose setup imports torch are built in the environment itself, after everything else in it: uv does so for
the packages that its settings name (tried: ``[pip] no-build-isolation-package``, in one ``uv pip sync``).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tomli_w

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.files import check_cache, own_cache_folder
from gpuinstall.base.shell import joined
from gpuinstall.base.values import dataclass
from gpuinstall.catalog import authored, load_catalog
from gpuinstall.lock.compiled import kept_wheel
from gpuinstall.machine.host import Capacity, read_capacity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.backend import Backend
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Reporter
    from gpuinstall.machine.nvidia.toolchain import Toolchain
    from gpuinstall.plan.values import Choice
    from gpuinstall.sources.session import Session

SDIST = "its sdist"
NO_WHEEL = "has no wheel for this machine, and --only-binary allows nothing else"
WITH_SOURCES = "Run it again without --only-binary, or request another version"


@dataclass(frozen=True)
class KnownBuild:
    """What the build of a package needs; the file documents each field."""

    imports_torch: bool = False
    compiles: Literal["gpu", "any", ""] = ""
    tools: Sequence[str] = ()
    gib_per_job: int = 1
    core_minutes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@cache
def known_builds() -> Mapping[str, KnownBuild]:
    """Load the table as shipped, by name."""
    table = authored.read_data("source_builds.toml")
    builds = {}
    for package in table["packages"]:
        row = {**table["default"], **package}
        known = KnownBuild.__dataclass_fields__.keys() & row.keys()
        builds[row["name"]] = KnownBuild(**{key: row[key] for key in known})
    return builds


class SourceBuild(NamedTuple):
    """A package that has no wheel here."""

    package: str
    version: str
    origin: str
    known: KnownBuild
    """What is known of its build."""

    source: str = ""
    """The SHA-256 of the file or the commit that it is built from; empty for a folder, which may change."""

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


class BuildSite(NamedTuple):
    """Where packages are built."""

    backend: Backend
    versions: Mapping[str, str]
    """Those of the packages that are installed with them."""

    machine: Machine
    environ: Mapping[str, str]
    capacity: Capacity
    python: str = ""
    cache: Path = Path()
    """The folder of what was compiled."""

    @property
    def torch(self) -> str:
        """The torch that it is, for messages."""
        return f"torch {self.versions.get('torch', '')} ({self.backend})"

    @property
    def toolchain(self) -> Toolchain | None:
        """What compiles for its GPUs."""
        from gpuinstall.machine.toolchains import TOOLCHAINS

        return TOOLCHAINS.get(self.backend.kind)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The compute capabilities to compile for: those that the user gives, or those of the GPUs that are here."""
        toolchain = self.toolchain
        if toolchain and self.environ.get(toolchain.compiled_for):
            return tuple(self.environ[toolchain.compiled_for].split(";"))
        capabilities = {gpu.compute_capability for gpu in self.machine.gpus}
        return tuple(map(str, sorted(filter(None, capabilities))))

    def compiled(self, build: SourceBuild) -> Path:
        """Return the folder of the wheels of a build, by what it is compiled from, beside and for."""
        facts = (
            build.package,
            build.version,
            build.source,
            self.versions.get("torch"),
            str(self.backend),
            self.python,
            self.architectures,
            self.machine.os,
            self.machine.arch,
            self.machine.glibc,
        )
        digest = sha256(repr(facts).encode())
        return self.cache / digest.hexdigest()

    def jobs(self, build: KnownBuild) -> int:
        """Return how many compilers may run at once: what the user gives, or what cores and memory allow."""
        given = self.environ.get("MAX_JOBS", "")
        if given.isdigit() and int(given):
            return int(given)
        jobs = self.capacity.cores
        if self.capacity.free_gib is not None:
            jobs = min(jobs, int(self.capacity.free_gib // build.gib_per_job))
        return max(1, jobs)


def this_site(
    choice: Choice,
    versions: Mapping[str, str],
    machine: Machine,
    session: Session,
    wheels: Path | None = None,
) -> BuildSite:
    """Return this machine, beside the torch of a choice; ``wheels`` is a folder that files come from first."""
    return BuildSite(
        backend=choice.build.backend,
        versions=versions,
        machine=machine,
        environ=session.environment,
        capacity=read_capacity(),
        python=choice.python,
        cache=(wheels or own_cache_folder()) / "compiled",
    )


def source_builds(document: Mapping[str, Any]) -> tuple[SourceBuild, ...]:
    """Return what a lock, or uv's own, has no wheel of."""
    builds = []
    for package in document.get("packages", ()):
        origin = _origin(package)
        if not origin:
            continue
        build = SourceBuild(
            package=package["name"],
            version=package.get("version", ""),
            origin=origin,
            known=known_builds().get(package["name"], KnownBuild()),
            source=_source(package),
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
        return f"commit {repository['commit-id'][:12]} of {repository['url']}"
    if "directory" in package:
        return f"the folder {package['directory']['path']}"
    archive = package.get("archive", {})
    place = archive.get("url") or archive.get("path", "")
    is_wheel = place.partition("#")[0].endswith(".whl")
    return "an archive" if place and not is_wheel else ""


def _source(package: Mapping[str, Any]) -> str:
    file = package.get("sdist", package.get("archive", {}))
    sha256 = file.get("hashes", {}).get("sha256")
    commit = package.get("vcs", {}).get("commit-id", "")
    return str(sha256 or commit)


def build_tools(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what builds in the environment itself need there, and the document does not have."""
    tools = dict[str, None]()
    for build in source_builds(document):
        tools |= dict.fromkeys(build.known.tools)
    for package in document.get("packages", ()):
        tools.pop(package["name"], None)
    return tuple(tools)


def check_wheels(builds: Iterable[SourceBuild]) -> None:
    """Raise NoBuildError if a package of an index would be built, although only wheels are allowed."""
    for build in builds:
        if build.origin == SDIST:
            raise NoBuildError(
                "only-binary",
                f"{build} {NO_WHEEL}",
                hint=WITH_SOURCES,
            )


def check_builds(
    builds: Sequence[SourceBuild],
    site: BuildSite,
    reporter: Reporter,
    *,
    here: bool,
) -> None:
    """Report what will be built and what it needs.

    Raises:
        NoBuildError: if it is built ``here`` and that cannot work.
    """
    if builds and here:
        check_cache(site.cache, reporter)
    remaining = []
    for build in builds:
        if here and kept_wheel(site.compiled(build), reporter):
            reporter.step("Source", f"{build} was compiled before for {site.torch}")
        else:
            remaining.append(build)
    for build in remaining:
        needs = build_needs(build.known, site, here=here)
        text = ", ".join([f"{build} is built from {build.origin}", *needs])
        reporter.step("Source", text)
    for build in remaining:
        if build.known.compiles == "gpu" and site.toolchain is None:
            raise NoBuildError(
                "build-needs-gpu",
                f"{build} has code for GPUs only, and {site.torch} is not a GPU build",
                hint=f"gpuinstall lock --target cu126   # for machines with GPUs; or leave {build.package} out",
            )
        if here and build.known.compiles:
            if site.toolchain:
                _check_gpu_compiler(build, site.toolchain, site)
            _check_cxx_compiler(build, site)
            _check_memory(build, site)


def build_needs(
    known: KnownBuild,
    site: BuildSite,
    *,
    here: bool,
) -> Iterator[str]:
    """Yield what a build needs: compilers, memory, time."""
    toolchain = site.toolchain
    if known.compiles:
        if toolchain:
            yield f"with {toolchain.compiler} of {toolchain.software} {site.backend.version}"
        yield "a C++ compiler"
        yield f"{known.gib_per_job} GB of memory for each job"
        if here:
            jobs = site.jobs(known)
            yield f"{jobs} at once (MAX_JOBS)"
            if known.core_minutes:
                minutes = round(known.core_minutes / jobs)
                yield f"about {max(1, minutes)} minutes"
    if known.note:
        yield known.note


def _check_gpu_compiler(
    build: SourceBuild,
    toolchain: Toolchain,
    site: BuildSite,
) -> None:
    version = site.backend.version or ""
    hint = _compiler_hint(toolchain, version, site)
    compiler = toolchain.from_wheels(site.versions) or toolchain.find(site.environ)
    if compiler is None:
        raise NoBuildError(
            "toolkit-missing",
            f"{build} is built from source, but there is no {toolchain.compiler} here",
            why=f"{site.torch} compiles with {toolchain.compiler} of {toolchain.software} {version}",
            hint=hint,
            id="F57",
        )
    if compiler.version and not toolchain.serves(compiler.version, version):
        here = f"{toolchain.compiler} here is of {toolchain.software} {compiler.version}"
        torch = f"torch of {toolchain.software} {version}"
        raise NoBuildError(
            "toolkit-differs",
            f"{build} is built from source, but {here}, {torch}",
            why="torch compiles only with a toolkit of its own major version",
            evidence=f"{compiler.path} · {site.torch}",
            hint=hint,
            id="F57",
        )


def _compiler_hint(
    toolchain: Toolchain,
    version: str,
    site: BuildSite,
) -> str:
    lines = []
    wheels = toolchain.wheels(version)
    if wheels:
        lines.append(f"Request {joined(wheels)} too: {toolchain.compiler} as a wheel")
    fix = toolchain.fix(version, site.machine)
    if fix:
        lines.append(fix)
    return "\n".join(lines)


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


def _check_memory(build: SourceBuild, site: BuildSite) -> None:
    free = site.capacity.free_gib
    needed = build.known.gib_per_job
    if free is None or free >= needed or site.environ.get("MAX_JOBS"):
        return
    raise NoBuildError(
        "memory-too-small",
        f"{build} is built from source, but only {free:.1f} GB of memory is free",
        why=f"one compiler job takes up to {needed} GB",
        hint="export MAX_JOBS=1   # or free some memory",
    )


def sync_settings(
    builds: Sequence[SourceBuild],
    site: BuildSite,
    index: str | None = None,
) -> str:
    """Return uv's settings to install with: what is built beside the torch that it imports, and that torch's index.

    uv's cache keeps what was built by the variables that its settings give it, and knows no torch (tried: it gave what
    was compiled beside another); so they name torch and what is compiled for.
    """
    settings: dict[str, Any] = {}
    if index:
        # What a build needs is looked for there too, and many an index answers 403 for what it has not.
        settings["index"] = [{"url": index, "ignore-error-codes": [403]}]
    if builds:
        words = (site.versions.get("torch", ""), *site.architectures)
        variables = {"GPUINSTALL_BUILT_FOR": " ".join(words)}
        beside_torch = [build.package for build in builds if build.known.imports_torch]
        settings["extra-build-variables"] = {build.package: variables for build in builds}
        settings["pip"] = {"no-build-isolation-package": beside_torch}
    return tomli_w.dumps(settings)


def sync_variables(
    builds: Iterable[SourceBuild],
    site: BuildSite,
    site_packages: str,
) -> dict[str, str]:
    """Return the variables to build with; ``site_packages`` is the folder of the packages that are installed first."""
    compiled = [build.known for build in builds if build.known.compiles]
    if not compiled:
        return {}
    variables = dict[str, str]()
    toolchain = site.toolchain
    if toolchain:
        first_numbers = [name.partition(".")[0] for name in site.architectures]
        majors = ";".join(dict.fromkeys(f"{number}0" for number in first_numbers))
        if majors:
            variables[toolchain.compiled_for] = ";".join(site.architectures)
        for known in compiled:
            for name, value in known.environment.items():
                if majors or "{" not in value:
                    variables[name] = value.format(majors=majors)
        home = toolchain.home_in(site_packages, site.versions)
        if home:
            variables |= toolchain.settings(home)
    jobs = min(map(site.jobs, compiled))
    return {**variables, "MAX_JOBS": str(jobs)}


def resolver_settings(
    pages: Iterable[str],
    index: Path,
    sources: Mapping[str, Any] | None = None,
) -> str:
    """Return uv's settings to resolve with: metadata that needs no build, and no project's source for the family.

    Args:
        pages: The packages that uv is given a page of, which has no upload times.
        index: Comes after those that uv is named on its command line, and before those of ``sources``.
        sources: Further settings of uv, with indexes that come before the default one, and metadata of folders.
    """
    sources = sources or {}
    metadata = list(sources.get("dependency-metadata", ()))
    for name, known in known_builds().items():
        if known.metadata:
            metadata.append({"name": name, **known.metadata})
    # Also if torch comes from the default index: a project that is installed editable may name another for it.
    family = load_catalog().family.union(pages)
    settings = {
        "dependency-metadata": metadata,
        "index": [{"url": index.as_uri()}, *sources.get("index", ())],
        "pip": {"no-sources-package": sorted(family)},
    }
    newest = sources.get("exclude-newer")
    if newest:
        settings["exclude-newer"] = newest
        # Their pages have no dates: uv would take none of their files.
        undated = sorted({*pages, *sources.get("undated", ())})
        settings["exclude-newer-package"] = dict.fromkeys(undated, False)
    return tomli_w.dumps(settings)
