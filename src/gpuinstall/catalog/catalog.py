"""The catalog: releases and builds of torch, and their drivers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from packaging.version import Version

from gpuinstall.base.advice import Hint
from gpuinstall.base.codec import Words, WordSet
from gpuinstall.base.machine import Gpu, Machine, platform_processor
from gpuinstall.base.requirement import Constraint, parse_constraint
from gpuinstall.base.text import matches
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import CPU, Backend, ComputeCapability

if TYPE_CHECKING:
    from packaging.tags import Tag

    from gpuinstall.catalog.drivers import Drivers


# The sets of package names, smallest first:
# - COMPANIONS: packages that have versions for each release of torch.
# - PAIRED: the companions, torch, and Triton. The catalog lists their versions.
# - Catalog.family: the packages that only the torch index may serve, including PAIRED.
# - TorchPages.names (lock): the family and other packages that the torch index hosts.
# - Catalog.copied: packages on the torch index whose files are hosted by the default index.
# - Catalog.tied: copied packages whose version depends on the build of torch.
# Members.with_torch (wheels) is a separate set: the dependencies of torch's builds.
COMPANIONS = frozenset({"torchaudio", "torchvision"})
PAIRED = COMPANIONS | {"torch", "triton"}


class ConfiguredIndex(Enum):
    """A configured index as the source of a wheel or a build."""

    TORCH = "torch"
    DEFAULT = "default"


DEFAULT_INDEX = ConfiguredIndex.DEFAULT
WheelSource = ConfiguredIndex | str
"""The origin of a wheel: a configured index, a URL, or a folder."""


class Wheel(Value):
    """A wheel that an index or folder lists."""

    package: str
    version: Version
    filename: str
    url: str
    tags: frozenset[Tag]
    sha256: str | None = None
    metadata: bool = False
    """Whether the index serves the wheel's METADATA separately."""
    metadata_sha256: str | None = None
    backend: str | None = None
    """The backend tag from the wheel's local version or index page."""
    source: WheelSource = DEFAULT_INDEX
    """The index or folder that lists the wheel."""
    requires_python: str | None = None
    uploaded: str = ""
    """The upload time, such as ``2026-01-31T08:15:00Z``; empty if unknown."""
    size: int = 0
    """The size in bytes; 0 if unknown."""
    by_address: bool = False
    """Whether to install the wheel by URL: METADATA lacks the local label."""

    @property
    def is_pure(self) -> bool:
        """Whether the wheel's name is for any platform."""
        return all(tag.platform == "any" for tag in self.tags)


class Build(Value):
    """A build of torch. A listing sets ``source`` and the fields after it."""

    torch: Version
    backend: Backend
    os: str
    arch: str
    code: tuple[str, ...] = ()
    """The GPU architectures: ``sm_80``, ``compute_90``, or ``gfx1100``."""
    toolkit: tuple[int, int] | None = None
    """The release of the vendor's toolkit."""
    libraries: tuple[tuple[str, str], ...] = ()
    """The versions of bundled libraries that limit the supported GPUs."""
    pythons: tuple[str, ...] = ()
    """The Python versions ``X.Y`` with a wheel, except free-threaded ones."""
    glibc: str | None = None
    """The minimum glibc version in the platform tag."""
    macos: str | None = None
    """The minimum macOS version in the platform tag."""
    on_default_index: bool = False
    """Whether the default index has this build."""
    is_labeled: bool = True
    """Whether the version has a label, as in ``2.14.1+cu126``."""
    evidence: tuple[str, ...] = ()
    source: WheelSource = ConfiguredIndex.TORCH
    """The source of the build: a configured index, a URL, or a folder."""
    absent: str | None = None
    """The reason why the build is unavailable, such as ``withdrawn``.

    The reason is ``unverified`` until an index lists the build.
    """
    unread: tuple[Wheel, ...] = ()
    """The wheels to inspect if the catalog lacks the build."""
    obstacle: str | None = None
    """The error if none of the wheels could be inspected."""
    learned: str | None = None
    """The day on which the facts above were read from a wheel, if any."""

    @cached_property
    def name(self) -> str:
        """The version of the build with its label: ``2.14.1+cu126``."""
        return f"{self.torch}+{self.backend}"

    def mark_as_published(self) -> Build:
        """Return the build without the mark ``unverified``."""
        if self.absent == "unverified":
            return replace(self, absent=None)
        return self

    @property
    def minor(self) -> str:
        """The minor release of torch, such as ``2.13``."""
        return "{}.{}".format(*self.torch.release)

    @property
    def lists_no_code(self) -> bool:
        """Whether a GPU wheel of the build was inspected and lists no code."""
        return bool(self.learned and self.backend != CPU and not self.code)

    @cached_property
    def platform(self) -> str:
        """The operating system and processor, such as ``linux_x86_64``."""
        return f"{self.os}_{self.arch}"

    def index(self, base: str) -> str | None:
        """Return the index of the backend, or None for the default index.

        Args:
            base: The torch index.
        """
        if self.source is DEFAULT_INDEX:
            return None
        return self.listed_at or f"{base}/{self.backend}"

    @property
    def listed_at(self) -> str:
        """The URL or folder that lists the build; empty for an index."""
        return self.source if isinstance(self.source, str) else ""


@cache
def parse_toolkit(version: str | None) -> tuple[int, int] | None:
    """Return the major and minor numbers of a release such as ``13.0.2``."""
    release = re.match(r"(\d{1,3})\.(\d{1,2})", version or "", re.ASCII)
    if release is None:
        return None
    return int(release[1]), int(release[2])


def platform_name(os: str, arch: str) -> str:
    """Return the catalog's name of a platform."""
    return f"{os}_{platform_processor(os, arch)}"


def _parse_backends(tags: str) -> frozenset[Backend]:
    return frozenset(map(Backend.parse, tags.split()))


_Backends = Annotated[frozenset[Backend], _parse_backends]


class Release(Value):
    """A release of torch with the compatible versions of its companions."""

    torch: Annotated[Version, Version]
    released: str
    """The release date; empty if unknown."""
    torchvision: Words = ()
    """The compatible versions of torchvision, preferred first."""
    torchaudio: Words = ()
    """The compatible versions of torchaudio, preferred first."""
    triton: str | None = None
    """The version of Triton in torch's METADATA, such as ``==3.6.0``."""
    constraints: tuple[str, ...] = ()
    """Constraints that torch's METADATA omits."""
    default: Mapping[str, str] = MappingProxyType({})
    """The tag of the GPU build on the default index, by platform."""
    pythons: Mapping[str, Words] = MappingProxyType({})
    """The Python versions with a wheel, by platform or ``any``."""
    index_pythons: Words = ()
    """The Python versions that have a wheel only on the torch index."""

    @property
    def companions(self) -> dict[str, Words]:
        """The compatible versions of each companion, preferred first."""
        return {"torchvision": self.torchvision, "torchaudio": self.torchaudio}

    def list_pythons_on(self, platform: str) -> tuple[str, ...]:
        """Return the Python versions that have a wheel for a platform."""
        return self.pythons.get(platform, self.pythons["any"])


class CudaName(Value):
    """The CUDA major version in the name of a package or extra."""

    major: int
    names: Mapping[int, str]
    """The name of the package or extra for each CUDA major version."""
    lowest: str | None = None
    """The lowest compute capability that its releases support."""

    def may_support(self, gpus: Iterable[Gpu]) -> bool:
        """Return whether a release may run on the GPUs."""
        lowest = ComputeCapability.parse(self.lowest or "0.0")
        return all((gpu.compute_capability or lowest) >= lowest for gpu in gpus)


class Companion(Value):
    """The wheels of a companion such as torchvision, by platform."""

    platforms: WordSet
    pythons: WordSet = frozenset()
    """The Python versions with a wheel; ``any`` if one supports all."""
    unlabelled: WordSet = frozenset()
    """The platforms whose wheels have no local version label."""
    backends: _Backends | None = None
    """The backends of the companion; None for all backends of torch."""
    unverified: Mapping[str, _Backends] = MappingProxyType({})
    """The backends whose wheels no index is known to list, by platform."""
    undeclared: WordSet = frozenset()
    """The packages that the companion imports but METADATA omits."""

    def may_have_wheel_for(self, build: Build) -> bool:
        """Return whether the companion may have a wheel for a build."""
        if build.platform not in self.platforms:
            return False
        return self.backends is None or build.backend in self.backends

    def is_known_to_be_listed(self, build: Build) -> bool:
        """Return whether an index is known to list the wheels for a build."""
        return build.backend not in self.unverified.get(build.platform, ())

    def has_wheel(self, python: str) -> bool:
        """Return whether the companion has a wheel for the Python ``X.Y``."""
        return "any" in self.pythons or python in self.pythons


class Catalog(Value, eq=False):
    """The tables from which a build is selected."""

    date: str
    torch_index: str
    """The URL of the torch index, the parent of ``<backend>/<package>/``."""
    builds: tuple[Build, ...]
    releases: Mapping[Version, Release]
    drivers: Drivers
    family: frozenset[str]
    """The packages that only the torch index may serve."""
    copied: tuple[str, ...]
    """Patterns of packages that are copied from the default index."""
    tied: tuple[str, ...]
    """Patterns of the copied packages that depend on the build of torch."""
    companions: Mapping[tuple[str, str], Companion]
    """The companions of torch, by package and version."""
    settled_python: str
    """The Python version ``X.Y`` to install if no other is preferred."""
    chips: Callable[[str], Mapping[str, Any]]
    """The function that loads the chips of vendors other than NVIDIA."""
    cuda_names: Callable[[], Mapping[str, CudaName]]
    """The function that reads package names with a CUDA version."""
    driver_commands: Callable[[Machine, str, bool], tuple[Hint, ...]]
    """The function that returns commands to install a driver branch."""
    gpu_packages: Callable[[], frozenset[str]] = frozenset
    """The function that reads the extensions that run only on a GPU."""
    offered: Mapping[tuple[str, str], frozenset[str]] = {}
    """The companion versions that an index lists, by name and backend.

    The backend of the default index is empty.
    """
    further: Mapping[str, Callable[[], Iterable[Build]]] = {}
    """The functions that load builds of other kinds, such as ``rocm``."""

    @cached_property
    def with_kind(self) -> Callable[[str], Catalog]:
        """Return a copy of the catalog with the builds of another kind."""
        return cache(self._with_kind)

    def _with_kind(self, kind: str) -> Catalog:
        if kind not in self.further:
            return self
        further = dict(self.further)
        builds = (*self.builds, *further.pop(kind)())
        return replace(self, builds=builds, further=further)

    def select_builds(self, *builds: Build) -> Catalog:
        """Return a copy of the catalog with only these builds."""
        return replace(self, builds=builds, further={})

    def exclude_builds(
        self,
        is_excluded: Callable[[Build], bool],
        why: str,
    ) -> Catalog:
        """Return a copy of the catalog that marks builds as unavailable.

        Args:
            is_excluded: The function that returns whether to mark a build.
            why: The reason, as in ``Build.absent``.
        """

        builds = [
            replace(build, absent=why) if is_excluded(build) else build
            for build in self.builds
        ]
        return replace(self, builds=tuple(builds))

    def constraints(self, torch: Version) -> tuple[Constraint, ...]:
        """Return the constraints that torch's METADATA omits."""
        release = self.releases.get(torch)
        if release is None:
            return ()
        constraints = tuple(map(parse_constraint, release.constraints))
        if not release.triton:
            return constraints
        # Builds of Triton for Windows, such as 3.4.0.post20, require no torch.
        minor, _, _ = release.triton.lstrip("=~").rpartition(".")
        return (*constraints, Constraint.of("triton-windows", f"=={minor}.*"))

    @cached_property
    def uncataloged(self) -> Mapping[tuple[str, str], list[Version]]:
        """The newer listed companion versions that the catalog lacks."""
        found = {}
        for (name, tag), listed in self.offered.items():
            known = {version for package, version in self.companions if package == name}
            unknown = {version.partition("+")[0] for version in listed} - known
            oldest = min(map(Version, known))
            newer = [one for one in map(Version, unknown) if one > oldest]
            found[name, tag] = [one for one in newer if not one.is_prerelease]
        return found

    def find_undeclared_packages(self, versions: Mapping[str, str]) -> tuple[str, ...]:
        """Return missing packages that companions need but do not declare."""
        needed = set[str]()
        for name, version in versions.items():
            companion = self.companions.get((name, version))
            if companion:
                needed |= companion.undeclared
        return tuple(sorted(needed - versions.keys()))

    def is_tied(self, name: str) -> bool:
        """Return whether a package depends on the build of torch."""
        return name in self.family or any(
            matches(name, pattern) for pattern in self.tied
        )

    def builds_for(
        self,
        os: str,
        arch: str,
    ) -> tuple[Build, ...]:
        """Return the torch builds for a platform, latest release first."""
        return self._builds_by_platform(platform_name(os, arch))

    @cached_property
    def _builds_by_platform(self) -> Callable[[str], tuple[Build, ...]]:
        return cache(self._sorted_builds)

    def _sorted_builds(self, platform: str) -> tuple[Build, ...]:
        builds = [build for build in self.builds if build.platform == platform]
        return tuple(
            sorted(
                builds,
                key=lambda one: (one.torch, one.toolkit or (0, 0), one.backend.tag),
                reverse=True,
            )
        )
