"""The catalogue: every release and build of torch, what drivers serve, and where it was learnt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from gpuinstall.backend import CPU, Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from packaging.tags import Tag
    from packaging.version import Version

    from gpuinstall.catalog.drivers import Drivers


DEFAULT_INDEX = ""
"""What stands for the default index where a source is named."""


@dataclass(frozen=True)
class Wheel:
    """One wheel of a source.

    ``backend`` is the tag of its local version, or that of its page where it has none; ``metadata`` says that
    ``<url>.metadata`` is served; ``size`` is in bytes; ``source`` is the index or folder that lists it.
    """

    package: str
    version: Version
    filename: str
    url: str
    tags: frozenset[Tag]
    sha256: str | None = None
    metadata: bool = False
    metadata_sha256: str | None = None
    size: int | None = None
    backend: str | None = None
    source: str = DEFAULT_INDEX
    requires_python: str | None = None


@dataclass(frozen=True)
class Build:
    """One build.

    ``code`` are the maker's own names of the code in it, such as ``sm_80``, ``compute_90`` or ``gfx1100``; ``toolkit``
    is the release of the maker's toolkit that it was made with; ``libraries`` are those in the wheel, with their
    versions, that narrow what runs it. ``pythons`` are ``X.Y`` (``X.Yt`` free-threaded) for which a wheel exists;
    ``glibc`` and ``macos`` are the floors of its platform tag; ``confidence`` high, medium, low or unverified;
    ``on_default_index`` says that pip's default index serves this very build, ``labelled`` that its files carry the tag
    (``2.14.1+cu126``).

    A listing sets the rest. ``source`` is where it found the build (None: on the index of torch, as the catalogue
    says; DEFAULT_INDEX; an address or a folder), ``absent`` why it cannot be had today: "withdrawn", "unreachable",
    "failed", "without-code", or as the catalogue says "split". ``unread`` are the wheels of a build that only the
    listing knows, ``obstacle`` says why none of them could be read; ``learned`` is the day on which one was, and the
    facts above are its own.
    """

    torch: Version
    backend: Backend
    os: str
    arch: str
    code: tuple[str, ...] = ()
    toolkit: tuple[int, int] | None = None
    libraries: tuple[tuple[str, str], ...] = ()
    pythons: tuple[str, ...] = ()
    glibc: str | None = None
    macos: str | None = None
    confidence: str = "high"
    on_default_index: bool = False
    labelled: bool = True
    evidence: tuple[str, ...] = ()
    source: str | None = None
    absent: str | None = None
    unread: tuple[Wheel, ...] = ()
    obstacle: str | None = None
    learned: str | None = None

    def __hash__(self) -> int:
        """Hash what tells builds apart: what a choice keeps of each build is looked up often."""
        return hash((self.name, self.platform, self.source))

    @cached_property
    def name(self) -> str:
        """The build as people write it: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"

    @property
    def lists_no_code(self) -> bool:
        """Say whether it was read, is for GPUs, and does not say which."""
        return self.learned is not None and not self.code and self.backend != CPU

    @cached_property
    def platform(self) -> str:
        """Its operating system and processor as the catalogue names them: ``linux_x86_64``."""
        return f"{self.os}_{self.arch}"

    def is_called(self, name: str) -> bool:
        """Say whether a name means this build: its backend, its torch (``2.13`` is every 2.13) or both."""
        torch, _, backend = name.partition("+")
        torches = f"{self.torch}."
        return name == self.backend.tag or (torches.startswith(f"{torch}.") and backend in {"", self.backend.tag})

    def index(self, base: str) -> str | None:
        """The address or folder of its family, where ``base`` is the torch index; None is the default index."""
        if self.source == DEFAULT_INDEX:
            return None
        return self.source or f"{base}/{self.backend}"


_SAME_CHIP = {("linux", "arm64"): "aarch64", ("macos", "aarch64"): "arm64", ("windows", "aarch64"): "arm64"}


def index_arch(os: str, arch: str) -> str:
    """The processor's name in the platform tags of a system: Linux says aarch64 where the others say arm64."""
    return _SAME_CHIP.get((os, arch), arch)


class KindOfBuilds(NamedTuple):
    """The builds of one kind, the authored rows about the chips that they are for, and the sources of both."""

    builds: tuple[Build, ...]
    chips: Mapping[str, Any]
    evidence: Mapping[str, tuple[str, str]]


class Release(NamedTuple):
    """A release of torch: when, and the versions of its companions that load beside it, the preferred one first.

    ``triton`` is the pin in torch's own metadata, such as ``==3.6.0``. One that only a listing knows was ``released``
    on no known day, and its triton is left to that metadata. ``beside`` are constraints that the metadata leaves out.
    """

    torch: Version
    released: str
    torchvision: tuple[str, ...] = ()
    torchaudio: tuple[str, ...] = ()
    triton: str | None = None
    beside: tuple[str, ...] = ()


class CudaName(NamedTuple):
    """A CUDA that a name or an extra of a package carries; ``names`` is how to ask for the package by CUDA's major."""

    major: int
    names: Mapping[int, str]


class Companion(NamedTuple):
    """The wheels of one release of a companion, platforms named as in ``linux_x86_64``.

    ``pythons`` None: one wheel for all of them. ``unlabelled`` are the platforms whose files carry no ``+tag``;
    ``backends`` are the only ones that it loads in (None: it is built for all of torch's), ``unverified`` those of
    them, by platform, that nobody has seen; ``excluded`` are the patch releases of Python that its metadata forbids.
    """

    platforms: frozenset[str]
    pythons: frozenset[str] | None = None
    unlabelled: frozenset[str] = frozenset()
    backends: frozenset[Backend] | None = None
    unverified: Mapping[str, frozenset[Backend]] = MappingProxyType({})
    excluded: frozenset[str] = frozenset()

    def loads_in(self, build: Build) -> bool:
        """Say whether it has wheels that load beside a build, seen or not."""
        return build.platform in self.platforms and (self.backends is None or build.backend in self.backends)

    def was_seen(self, build: Build) -> bool:
        """Say whether somebody has seen its wheels for the platform and the backend of a build."""
        return build.backend not in self.unverified.get(build.platform, ())

    def has_wheel(self, python: str) -> bool:
        """Say whether it has a wheel for the Python ``X.Y``."""
        return self.pythons is None or python in self.pythons


@dataclass(frozen=True)
class Catalog:
    """All that a choice knows of the world.

    ``torch_index`` is the base below which ``<backend>/<package>/`` lie; ``family`` are the packages that come from
    it, ``copied`` those that it only passes on (``nvidia-*`` are all that begin so), ``tied`` those of them that come
    with a build of torch and go with it; ``companions`` maps (package, version) to the wheels of a companion;
    ``settled_python`` is the ``X.Y`` to fetch where any would do; ``evidence`` maps each key to source and date.
    ``offered`` maps a companion and a backend's tag to the versions that a listing found there, with their labels.
    ``further`` are the other kinds of builds, to be read where they are needed; ``chips`` the rows about chips of those
    that were, by kind; ``cuda_names`` reads those of packages, ``collectives`` the version of NCCL that a torch and a
    backend's tag come with.
    """

    date: str
    torch_index: str
    builds: tuple[Build, ...]
    releases: Mapping[Version, Release]
    drivers: Drivers
    family: frozenset[str]
    copied: tuple[str, ...]
    tied: tuple[str, ...]
    companions: Mapping[tuple[str, str], Companion]
    settled_python: str
    evidence: Mapping[str, tuple[str, str]]
    offered: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    further: Mapping[str, Callable[[], KindOfBuilds]] = field(default_factory=dict)
    chips: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    cuda_names: Callable[[], Mapping[str, CudaName]] = dict
    collectives: Callable[[], Mapping[tuple[str, str], str]] = dict

    def serving(self, kind: str) -> Catalog:
        """Return the catalogue with the builds of a kind, which are read only for machines with such GPUs."""
        if kind not in self.further:
            return self
        others = {other: read for other, read in self.further.items() if other != kind}
        own = self.further[kind]()
        chips = {**self.chips, kind: own.chips}
        evidence = {**self.evidence, **own.evidence}
        return replace(self, builds=(*self.builds, *own.builds), further=others, chips=chips, evidence=evidence)

    def only(self, *builds: Build) -> Catalog:
        """Return the catalogue with these builds alone, of whatever kind: no others are read."""
        further = {kind: partial(_without_builds, read) for kind, read in self.further.items()}
        return replace(self, builds=builds, further=further)

    def without(self, excluded: Callable[[Build], bool], why: str) -> Catalog:
        """Return the catalogue with some builds marked as not to be had; ``why`` is a reason of ``Build.absent``."""
        builds = (replace(build, absent=why) if excluded(build) else build for build in self.builds)
        return replace(self, builds=tuple(builds))

    def beside(self, torch: Version) -> tuple[str, ...]:
        """The constraints that hold beside a release of torch, whatever its metadata says."""
        release = self.releases.get(torch)
        return release.beside if release else ()

    def is_tied(self, name: str) -> bool:
        """Say whether the version of a package is that of torch's build: the family, and the libraries of its maker."""
        return name in self.family or any(fnmatchcase(name, row) for row in self.tied)

    def builds_for(self, os: str, arch: str) -> tuple[Build, ...]:
        """Return the builds for a platform, the newest torch first."""
        return self._platforms.get((os, index_arch(os, arch)), ())

    @cached_property
    def _platforms(self) -> dict[tuple[str, str], tuple[Build, ...]]:
        platforms: dict[tuple[str, str], list[Build]] = {}
        for build in self.builds:
            platforms.setdefault((build.os, build.arch), []).append(build)

        def newness(build: Build) -> tuple[Version, tuple[int, int], str]:
            return build.torch, build.toolkit or (0, 0), build.backend.tag

        return {key: tuple(sorted(builds, key=newness, reverse=True)) for key, builds in platforms.items()}


def _without_builds(read: Callable[[], KindOfBuilds]) -> KindOfBuilds:
    return read()._replace(builds=())
