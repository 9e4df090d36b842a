"""The catalogue: every release and build of torch, what drivers serve, and where it was learnt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from packaging.version import Version

    from gpuinstall.backend import Backend
    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.drivers import Drivers

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
    that were, by kind; ``cuda_names`` reads those of packages.
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
        newest_first = {key: sorted(builds, key=_newness, reverse=True) for key, builds in platforms.items()}
        return {key: tuple(builds) for key, builds in newest_first.items()}


def _without_builds(read: Callable[[], KindOfBuilds]) -> KindOfBuilds:
    return read()._replace(builds=())


def _newness(build: Build) -> tuple[Version, tuple[int, int], str]:
    return build.torch, build.toolkit or (0, 0), build.backend.tag
