"""The catalogue: every release and build of torch, what drivers serve, and where it was learnt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from fnmatch import fnmatchcase
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from packaging.version import Version

from gpuinstall.base.codec import Words, WordSet
from gpuinstall.base.machine import Machine, processor_of
from gpuinstall.base.requirement import Constraint, parse_constraint
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, Backend

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from packaging.tags import Tag

    from gpuinstall.catalog.drivers import Drivers


# Six sets of names, from the narrowest on:
# - COMPANIONS: a release of torch has its own versions of them, which a request may name.
# - PAIRED: they, torch, and the triton that torch requires. The catalogue knows their versions.
# - Catalog.family: all that comes from the torch index alone, PAIRED among them.
# - PackageIndex.names (lock/solve): the family, and what else the torch index of one lock lists as its own.
# - Catalog.copied: what that index only passes on: it may come from the default index as well.
# - Catalog.tied: those of them that come with a build of torch and go with it; is_tied() holds for the family too.
# Members.with_torch (wheels) is none of these: the packages whose files torch's own build answers for.
COMPANIONS = frozenset({"torchaudio", "torchvision"})
PAIRED = COMPANIONS | {"torch", "triton"}


class ConfiguredIndex(Enum):
    """An index as the source of a wheel or a build: its address is a setting."""

    TORCH = "torch"
    DEFAULT = "default"


DEFAULT_INDEX = ConfiguredIndex.DEFAULT
WheelSource = ConfiguredIndex | str
"""A source of wheels: an index by its name, else an address or a folder."""


class Wheel(Value):
    """One wheel of a source."""

    package: str
    version: Version
    filename: str
    url: str
    tags: frozenset[Tag]
    sha256: str | None = None
    metadata: bool = False
    """Whether ``<url>.metadata`` is served."""
    metadata_sha256: str | None = None
    backend: str | None = None
    """The tag of its local version, or that of its page if it has none."""
    source: WheelSource = DEFAULT_INDEX
    """The index or the folder that lists it."""
    requires_python: str | None = None
    by_address: bool = False
    """Whether pip takes it by its address alone: METADATA has its version without the label."""


class Build(Value):
    """One build of torch; what follows ``source`` is set by a listing."""

    torch: Version
    backend: Backend
    os: str
    arch: str
    code: tuple[str, ...] = ()
    """The maker's own names of the code in it: ``sm_80``, ``compute_90``, ``gfx1100``."""
    toolkit: tuple[int, int] | None = None
    """The release of the maker's toolkit that it was made with."""
    libraries: tuple[tuple[str, str], ...] = ()
    """The libraries in the wheel, with their versions, that narrow what runs it."""
    pythons: tuple[str, ...] = ()
    """The Pythons ``X.Y`` that it has a wheel for, but for those that are free-threaded."""
    glibc: str | None = None
    """The oldest glibc that its platform tag allows."""
    macos: str | None = None
    """The oldest macOS that its platform tag allows."""
    on_default_index: bool = False
    """Whether pip's default index serves this very build."""
    labelled: bool = True
    """Whether its files carry the tag: ``2.14.1+cu126``."""
    evidence: tuple[str, ...] = ()
    source: WheelSource = ConfiguredIndex.TORCH
    """An address, a folder, or one of the indexes that are configured."""
    absent: str | None = None
    """Why it is not available, such as ``withdrawn`` or ``unreachable``.

    A build that no index was seen to have is ``unverified``.
    """
    unread: tuple[Wheel, ...] = ()
    """The wheels of a build that only the listing knows."""
    obstacle: str | None = None
    """Why none of the unread wheels could be read."""
    learned: str | None = None
    """The day on which one of the unread wheels was read; the facts above are then its own."""

    @cached_property
    def name(self) -> str:
        """The build as users write it: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"

    def published(self) -> Build:
        """Return it as one that was seen."""
        if self.absent == "unverified":
            return replace(self, absent=None)
        return self

    @property
    def minor(self) -> str:
        """Its torch's minor release, ``2.13``."""
        return "{}.{}".format(*self.torch.release)

    @property
    def lists_no_code(self) -> bool:
        """Whether it was read and is for GPUs, and does not tell for which."""
        return bool(self.learned and self.backend != CPU and not self.code)

    @cached_property
    def platform(self) -> str:
        """Its operating system and processor as the catalogue names them: ``linux_x86_64``."""
        return f"{self.os}_{self.arch}"

    def index(self, base: str) -> str | None:
        """Return the address or the folder of its family; None for the default index.

        Args:
            base: The torch index, for a build whose source is not known.
        """
        if self.source is DEFAULT_INDEX:
            return None
        return self.listed_at or f"{base}/{self.backend}"

    @property
    def listed_at(self) -> str:
        """The address or the folder where a listing found it; empty: an index that is a setting."""
        return self.source if isinstance(self.source, str) else ""


@cache
def toolkit_of(version: str | None) -> tuple[int, int] | None:
    """Return the release of a toolkit, ``13.0`` or ``13.0.2``, as numbers; None if there is none."""
    release = re.match(r"(\d{1,3})\.(\d{1,2})", version or "", re.ASCII)
    if release is None:
        return None
    return int(release[1]), int(release[2])


def platform_of(os: str, arch: str) -> str:
    """Return a platform as the catalogue names it, its processor as platform tags do."""
    return f"{os}_{processor_of(os, arch)}"


def _backends(tags: str) -> frozenset[Backend]:
    return frozenset(map(Backend.parse, tags.split()))


_Backends = Annotated[frozenset[Backend], _backends]


class Release(Value):
    """A release of torch, and the versions of its companions that load beside it."""

    torch: Annotated[Version, Version]
    released: str
    """The day; empty for a release that only a listing knows."""
    torchvision: Words = ()
    """The preferred version first."""
    torchaudio: Words = ()
    """The preferred version first."""
    triton: str | None = None
    """The pin in torch's own metadata, ``==3.6.0``; None: left to that metadata."""
    beside: tuple[str, ...] = ()
    """Constraints that the metadata leaves out."""
    default: Mapping[str, str] = MappingProxyType({})
    """The tag of the default index's build for GPUs, by platform."""
    pythons: Mapping[str, Words] = MappingProxyType({})
    """The Pythons that its builds have wheels for, by platform; ``any`` stands for the others."""
    index_pythons: Words = ()
    """Those that only the torch index has wheels for."""

    @property
    def companions(self) -> dict[str, Words]:
        """The versions of each companion, the preferred first."""
        return {"torchvision": self.torchvision, "torchaudio": self.torchaudio}

    def pythons_on(self, platform: str) -> tuple[str, ...]:
        """Return the Pythons that its builds for a platform have wheels for."""
        return self.pythons.get(platform, self.pythons["any"])


class CudaName(Value):
    """A CUDA that a name or an extra of a package carries."""

    major: int
    names: Mapping[int, str]
    """How to ask for the package, by CUDA's major."""


class Companion(Value):
    """The wheels of one release of a companion; platforms are named as in ``linux_x86_64``."""

    platforms: WordSet
    pythons: WordSet = frozenset()
    """``any``: one wheel for all of them."""
    unlabelled: WordSet = frozenset()
    """The platforms whose files carry no ``+tag``."""
    backends: _Backends | None = None
    """The only backends that it loads in; None: it is built for all of torch's."""
    unverified: Mapping[str, _Backends] = MappingProxyType({})
    """The backends, by platform, that nobody has seen it load in."""
    undeclared: WordSet = frozenset()
    """The packages that it imports and its metadata does not require."""

    def loads_in(self, build: Build) -> bool:
        """Whether it has wheels that load beside a build, seen or not."""
        if build.platform not in self.platforms:
            return False
        return self.backends is None or build.backend in self.backends

    def was_seen(self, build: Build) -> bool:
        """Whether its wheels were seen for the platform and the backend of a build."""
        unverified = self.unverified.get(build.platform, ())
        return build.backend not in unverified

    def has_wheel(self, python: str) -> bool:
        """Whether it has a wheel for the Python ``X.Y``."""
        return "any" in self.pythons or python in self.pythons


class Catalog(Value, eq=False):
    """All that a choice knows of the world."""

    date: str
    torch_index: str
    """The base below which ``<backend>/<package>/`` lie."""
    builds: tuple[Build, ...]
    releases: Mapping[Version, Release]
    drivers: Drivers
    family: frozenset[str]
    """The packages that come from the torch index."""
    copied: tuple[str, ...]
    """Those that the torch index only passes on; ``nvidia-*`` stands for all that begin so."""
    tied: tuple[str, ...]
    """Those of ``copied`` that come with a build of torch and go with it."""
    companions: Mapping[tuple[str, str], Companion]
    """By package and version."""
    settled_python: str
    """The ``X.Y`` to fetch if any would do."""
    chips: Callable[[str], Mapping[str, Any]]
    """Read the rows about the chips of a maker other than NVIDIA."""
    cuda_names: Callable[[], Mapping[str, CudaName]]
    """Read the CUDA that packages carry in their names."""
    driver_commands: Callable[[Machine, str, bool], tuple[str, ...]]
    """Return how the system of a machine gets a driver of a branch, for GPUs that need an old one or for others."""
    offered: Mapping[tuple[str, str], frozenset[str]] = {}
    """The versions, with labels, that a listing found of a companion, by package and tag."""
    further: Mapping[str, Callable[[], Iterable[Build]]] = {}
    """The other kinds of builds, read if they are needed."""

    @cached_property
    def serving(self) -> Callable[[str], Catalog]:
        """Return the catalogue with the builds of a kind, read only for machines with such GPUs."""
        return cache(self._serving)

    def _serving(self, kind: str) -> Catalog:
        if kind not in self.further:
            return self
        further = dict(self.further)
        builds = (*self.builds, *further.pop(kind)())
        return replace(self, builds=builds, further=further)

    def only(self, *builds: Build) -> Catalog:
        """Return the catalogue with these builds alone, of whatever kind: no others are read."""
        return replace(self, builds=builds, further={})

    def without(
        self,
        is_excluded: Callable[[Build], bool],
        why: str,
    ) -> Catalog:
        """Return the catalogue with some builds marked as not to be had.

        Args:
            is_excluded: Whether a build is one of them.
            why: A value of ``Build.absent``.
        """

        builds = [
            replace(build, absent=why) if is_excluded(build) else build
            for build in self.builds
        ]
        return replace(self, builds=tuple(builds))

    def constraints(self, torch: Version) -> tuple[Constraint, ...]:
        """Return the constraints that METADATA of a torch omits."""
        release = self.releases.get(torch)
        if release is None:
            return ()
        constraints = tuple(map(parse_constraint, release.beside))
        if not release.triton:
            return constraints
        # What others compile of Triton for Windows, 3.4.0.post20, names no torch.
        minor, _, _ = release.triton.lstrip("=~").rpartition(".")
        return (*constraints, Constraint.of("triton-windows", f"=={minor}.*"))

    def undeclared(self, versions: Mapping[str, str]) -> tuple[str, ...]:
        """Return what companions among some packages import, require nowhere, and do not find."""
        needed = set[str]()
        for name, version in versions.items():
            companion = self.companions.get((name, version))
            if companion:
                needed |= companion.undeclared
        return tuple(sorted(needed - versions.keys()))

    def is_tied(self, name: str) -> bool:
        """Whether the build of torch decides the version of a package."""
        if name in self.family:
            return True
        return any(fnmatchcase(name, pattern) for pattern in self.tied)

    def builds_for(
        self,
        os: str,
        arch: str,
    ) -> tuple[Build, ...]:
        """Return the builds for a platform, the newest torch first."""
        return self._of_platform(platform_of(os, arch))

    @cached_property
    def _of_platform(self) -> Callable[[str], tuple[Build, ...]]:
        return cache(self._sorted_builds)

    def _sorted_builds(self, platform: str) -> tuple[Build, ...]:
        builds = [build for build in self.builds if build.platform == platform]
        return tuple(sorted(builds, key=_newness, reverse=True))


def _newness(build: Build) -> tuple[Version, tuple[int, int], str]:
    return build.torch, build.toolkit or (0, 0), build.backend.tag
