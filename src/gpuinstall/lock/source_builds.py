"""What of a resolution or a lock is built on this machine: said before anything is fetched, refused where it cannot be.

Packages whose setup imports torch are built in the environment itself, after everything else in it: uv does so for
the packages that its settings name (tried: ``[pip] no-build-isolation-package``, in one ``uv pip sync``).
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import tomli_w

from gpuinstall.catalog import authored, load_catalog
from gpuinstall.errors import NoBuildError
from gpuinstall.facts.host import Capacity, read_capacity
from gpuinstall.files import check_cache, own_cache_folder
from gpuinstall.lock.compiled import kept_wheel
from gpuinstall.shell import joined

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.backend import Backend
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Choice
    from gpuinstall.reporter import Reporter
    from gpuinstall.session import Session
    from gpuinstall.vendors.nvidia.toolchain import Compiler, Toolchain


SDIST = "its sdist"
NO_WHEEL = "has no wheel for this machine, and --only-binary allows nothing else"
WITH_SOURCES = "the same without --only-binary   # or request another version"

Compiles = Literal["gpu", "any", ""]


@dataclass(frozen=True)
class KnownBuild:
    """What the build of a package needs; the file says what each field means."""

    imports_torch: bool
    compiles: Compiles
    tools: Sequence[str]
    gib_per_job: int
    core_minutes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@cache
def known_builds() -> Mapping[str, KnownBuild]:
    """Load the table as shipped, by name."""
    table = authored.read_data("source_builds.toml")
    rows = ({**table["default"], **row} for row in table["packages"])
    keys = KnownBuild.__dataclass_fields__
    return {
        row["name"]: KnownBuild(**{key: row[key] for key in keys if key in row}) for row in rows
    }


class SourceBuildError(NoBuildError):
    """A package that has to be built cannot be built here."""


class SourceBuild(NamedTuple):
    """A package that has no wheel here; ``known`` is what is known of its build.

    ``source`` is the SHA-256 of the file or the commit that it is built from, empty for a folder, which may change.
    """

    package: str
    version: str
    origin: str
    known: KnownBuild | None
    source: str = ""

    def __str__(self) -> str:
        return f"{self.package} {self.version}".strip()


class BuildSite(NamedTuple):
    """Where packages are built: beside which torch, on which machine, with which variables, capacity and Python.

    ``versions`` are those of the packages that are installed with them; what was compiled is ``kept`` in a folder.
    """

    backend: Backend
    versions: Mapping[str, str]
    machine: Machine
    environ: Mapping[str, str]
    capacity: Capacity
    python: str = ""
    kept: Path = Path()

    @property
    def torch(self) -> str:
        """The torch that it is, for people."""
        return f"torch {self.versions.get('torch', '')} ({self.backend})"

    @property
    def toolchain(self) -> Toolchain | None:
        """What compiles for its GPUs."""
        from gpuinstall.vendors.toolchains import TOOLCHAINS

        return TOOLCHAINS.get(self.backend.kind)

    @property
    def architectures(self) -> tuple[str, ...]:
        """The compute capabilities to compile for: those that the user names, or those of the GPUs that are here."""
        if self.toolchain and (named := self.environ.get(self.toolchain.compiled_for)):
            return tuple(named.split(";"))
        capabilities = {
            gpu.compute_capability for gpu in self.machine.gpus if gpu.compute_capability
        }
        return tuple(map(str, sorted(capabilities)))

    def compiled(self, build: SourceBuild) -> Path:
        """The folder of the wheels of a build, by what it is compiled from, beside and for."""
        machine, beside = (
            self.machine,
            (self.versions.get("torch"), str(self.backend), self.python, self.architectures),
        )
        facts = (
            build.package,
            build.version,
            build.source,
            *beside,
            machine.os,
            machine.arch,
            machine.glibc,
        )
        return self.kept / sha256(repr(facts).encode()).hexdigest()

    def compiler(self) -> Compiler | None:
        """The compiler for its GPUs: one that is installed with them, or the machine's."""
        chain = self.toolchain
        return (chain.from_wheels(self.versions) or chain.find(self.environ)) if chain else None

    def jobs(self, build: KnownBuild) -> int:
        """How many compilers may run at once: what the user says, or what cores and memory allow."""
        if (asked := self.environ.get("MAX_JOBS", "")).isdigit() and int(asked):
            return int(asked)
        free = self.capacity.free_gib
        fitting = self.capacity.cores if free is None else int(free // build.gib_per_job)
        return max(1, min(self.capacity.cores, fitting))


def source_builds(document: Mapping[str, Any]) -> tuple[SourceBuild, ...]:
    """Find what a lock, or uv's own, has no wheel of."""
    return tuple(
        SourceBuild(
            each["name"],
            each.get("version", ""),
            origin,
            known_builds().get(each["name"]),
            _source(each),
        )
        for each in document.get("packages", ())
        if (origin := _origin(each))
    )


def build_tools(document: Mapping[str, Any]) -> tuple[str, ...]:
    """What builds in the environment itself need there, and the document does not have."""
    here = {package["name"] for package in document.get("packages", ())}
    needed = {
        tool: None for build in source_builds(document) if build.known for tool in build.known.tools
    }
    return tuple(tool for tool in needed if tool not in here)


def check_builds(
    builds: Sequence[SourceBuild], site: BuildSite, reporter: Reporter, *, here: bool
) -> None:
    """Say what will be built and what it needs; where that is ``here``, raise SourceBuildError where it cannot work."""
    if builds and here:
        check_cache(site.kept, reporter)
    compiled = [build for build in builds if here and kept_wheel(site.compiled(build), reporter)]
    for build in compiled:
        reporter.step("Source", f"{build} was compiled before for {site.torch}")
    builds = [build for build in builds if build not in compiled]
    for build in builds:
        needs = build_needs(build.known, site, here=here) if build.known else ()
        reporter.step("Source", ", ".join([f"{build} is built from {build.origin}", *needs]))
    for build in builds:
        if build.known and build.known.compiles == "gpu" and site.toolchain is None:
            message = f"{build} has code for GPUs only, and {site.torch} is not a GPU build"
            hint = f"gpuinstall lock --target cu126   # for machines with GPUs; or leave {build.package} out"
            raise SourceBuildError("build-needs-gpu", message, hint=hint)
        if here and build.known and build.known.compiles:
            _check_compilers(build, build.known, site)
            _check_memory(build, build.known, site)


def check_wheels(builds: Iterable[SourceBuild]) -> None:
    """Where only wheels are wanted, raise SourceBuildError for what would be built of an index's package."""
    if unwanted := next((build for build in builds if build.origin == SDIST), None):
        raise SourceBuildError("only-binary", f"{unwanted} {NO_WHEEL}", hint=WITH_SOURCES)


def this_site(
    choice: Choice,
    versions: Mapping[str, str],
    machine: Machine,
    session: Session,
    wheels: Path | None = None,
) -> BuildSite:
    """This machine, beside the torch of a choice; ``wheels`` is a folder that files come from first."""
    kept, environ = (wheels or own_cache_folder()) / "compiled", session.environment
    return BuildSite(
        choice.build.backend, versions, machine, environ, read_capacity(), choice.python, kept
    )


def sync_settings(builds: Sequence[SourceBuild], site: BuildSite, index: str | None = None) -> str:
    """uv's settings to install with: what is built beside the torch that it imports, and the ``index`` of that torch.

    uv's cache keeps what was built by the variables that its settings give it, and knows no torch (tried: it gave what
    was compiled beside another); so they name torch and what is compiled for.
    """
    # What a build needs is looked for there too, and many an index answers 403 for what it has not.
    settings = {"index": [{"url": index, "ignore-error-codes": [403]}]} if index else {}
    if not builds:
        return tomli_w.dumps(settings)
    names = [build.package for build in builds if build.known and build.known.imports_torch]
    said = {"GPUINSTALL_BUILT_FOR": " ".join((site.versions.get("torch", ""), *site.architectures))}
    variables = {build.package: said for build in builds}
    beside_torch = {
        "extra-build-variables": variables,
        "pip": {"no-build-isolation-package": names},
    }
    return tomli_w.dumps({**settings, **beside_torch})


def sync_variables(
    builds: Iterable[SourceBuild], site: BuildSite, site_packages: str
) -> dict[str, str]:
    """The variables to build with; ``site_packages`` is the folder of the packages that are installed first."""
    known = [build.known for build in builds if build.known and build.known.compiles]
    chain = site.toolchain
    if not known:
        return {}
    majors = ";".join(dict.fromkeys(f"{name.partition('.')[0]}0" for name in site.architectures))
    own = {chain.compiled_for: ";".join(site.architectures)} if chain and majors else {}
    for name, value in (
        (name, value) for each in known if chain for name, value in each.environment.items()
    ):
        own |= {name: value.format(majors=majors)} if majors or "{" not in value else {}
    home = chain.home_in(site_packages, site.versions) if chain else None
    found = dict(chain.settings(home)) if chain and home else {}
    return {**own, **found, "MAX_JOBS": str(min(map(site.jobs, known)))}


def resolver_settings(
    pages: Iterable[str], index: Path, sources: Mapping[str, Any] | None = None
) -> str:
    """Return uv's settings to resolve with: metadata that needs no build, and no project's source for the family.

    Args:
        pages: The packages that uv is given a page of, which has no upload times.
        index: Comes after those that uv is named on its command line, and before those of ``sources``.
        sources: Further settings of uv, with indexes that come before the default one.
    """
    sources = sources or {}
    metadata = [
        {"name": name, **known.metadata} for name, known in known_builds().items() if known.metadata
    ]
    indexes = [{"url": index.as_uri()}, *sources.get("index", ())]
    # Also where torch comes from the default index: a project that is installed editable may name another for it.
    family = load_catalog().family.union(pages)
    bound = {"index": indexes, "pip": {"no-sources-package": sorted(family)}}
    if newest := sources.get("exclude-newer"):
        # Their pages have no dates: uv would take none of their files.
        bound |= {
            "exclude-newer": newest,
            "exclude-newer-package": dict.fromkeys(sorted(pages), False),
        }
    return tomli_w.dumps({"dependency-metadata": metadata, **bound})


def _source(package: Mapping[str, Any]) -> str:
    file = package.get("sdist", package.get("archive", {}))
    return str(file.get("hashes", {}).get("sha256") or package.get("vcs", {}).get("commit-id", ""))


def _origin(package: Mapping[str, Any]) -> str:
    if package.get("wheels"):
        return ""
    if "sdist" in package:
        return SDIST
    if vcs := package.get("vcs"):
        return f"commit {vcs['commit-id'][:12]} of {vcs['url']}"
    if directory := package.get("directory"):
        return f"the folder {directory['path']}"
    archive = package.get("archive", {})
    place = archive.get("url") or archive.get("path", "")
    return "" if place.partition("#")[0].endswith(".whl") or not place else "an archive"


def build_needs(known: KnownBuild, site: BuildSite, *, here: bool) -> Iterator[str]:
    """Say what a build needs: compilers, memory, time."""
    chain = site.toolchain
    if chain and known.compiles:
        yield f"with {chain.compiler} of {chain.software} {site.backend.version}"
    if known.compiles:
        yield "a C++ compiler"
        yield f"{known.gib_per_job} GB of memory for each job"
    if known.compiles and here:
        jobs = site.jobs(known)
        yield f"{jobs} at once (MAX_JOBS)"
        if known.core_minutes:
            yield f"about {max(1, round(known.core_minutes / jobs))} minutes"
    if known.note:
        yield known.note


def _check_compilers(build: SourceBuild, known: KnownBuild, site: BuildSite) -> None:
    chain, wanted = site.toolchain, site.backend.version or ""
    if chain and known.compiles:
        compiler = site.compiler()
        if compiler is None:
            message = f"{build} is built from source, but there is no {chain.compiler} here"
            why = f"{site.torch} compiles with {chain.compiler} of {chain.software} {wanted}"
            hint = _compiler_hint(chain, wanted, site)
            raise SourceBuildError("toolkit-missing", message, why=why, hint=hint, id="F57")
        if compiler.version and not chain.serves(compiler.version, wanted):
            here = f"{chain.compiler} here is of {chain.software} {compiler.version}"
            message = (
                f"{build} is built from source, but {here}, torch of {chain.software} {wanted}"
            )
            why = "torch compiles only with a toolkit of its own major version"
            hint, evidence = _compiler_hint(chain, wanted, site), f"{compiler.path} · {site.torch}"
            raise SourceBuildError(
                "toolkit-differs", message, why=why, evidence=evidence, hint=hint, id="F57"
            )
    compilers = (*site.environ.get("CXX", "").split()[:1], "c++", "g++", "clang++")
    path = site.environ.get("PATH", os.defpath)
    if site.machine.os != "windows" and not any(
        shutil.which(name, path=path) for name in compilers
    ):
        message = f"{build} is built from source, but there is no C++ compiler here"
        hint = "sudo apt-get install g++   # or your system's package of it"
        raise SourceBuildError("compiler-missing", message, hint=hint)


def _compiler_hint(chain: Toolchain, wanted: str, site: BuildSite) -> str:
    wheels = chain.wheels(wanted)
    brought = f"the same with {joined(wheels)}   # {chain.compiler} as a wheel" if wheels else ""
    return "\n".join(filter(None, (brought, chain.fix(wanted, site.machine))))


def _check_memory(build: SourceBuild, known: KnownBuild, site: BuildSite) -> None:
    free = site.capacity.free_gib
    if free is None or free >= known.gib_per_job or site.environ.get("MAX_JOBS"):
        return
    message = f"{build} is built from source, but only {free:.1f} GB of memory is free"
    why = f"one compiler job takes up to {known.gib_per_job} GB"
    raise SourceBuildError(
        "memory-too-small", message, why=why, hint="export MAX_JOBS=1   # or free some memory"
    )
