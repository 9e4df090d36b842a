"""The catalogue: every release and build of torch, what drivers serve, and where it was learnt."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from packaging.version import Version

    from gpuinstall.backend import Backend
    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.drivers import Drivers
    from gpuinstall.catalog.listing import Listing

_SAME_CHIP = {("linux", "arm64"): "aarch64", ("macos", "aarch64"): "arm64", ("windows", "aarch64"): "arm64"}


class Release(NamedTuple):
    """A release of torch: when, and the versions of its companions that load beside it, the preferred one first.

    ``triton`` is the pin in torch's own metadata, such as ``==3.6.0``.
    """

    torch: Version
    released: str
    torchvision: tuple[str, ...] = ()
    torchaudio: tuple[str, ...] = ()
    triton: str | None = None


@dataclass(frozen=True)
class Catalog:
    """All that a choice knows of the world.

    ``torch_index`` is the base below which ``<backend>/<package>/`` lie; ``family`` are the packages that come from
    it; ``backend_bound`` maps a companion's (package, version) to the only backends that it loads in;
    ``last_pythons`` to the newest ``X.Y`` that it has wheels for, where torch has newer ones;
    ``settled_python`` is the ``X.Y`` to fetch where any would do; ``evidence`` maps each key to source and date.
    ``offered`` maps a companion and a backend's tag to the versions that a listing found there.
    """

    date: str
    torch_index: str
    builds: tuple[Build, ...]
    releases: Mapping[Version, Release]
    drivers: Drivers
    family: frozenset[str]
    backend_bound: Mapping[tuple[str, str], frozenset[Backend]]
    last_pythons: Mapping[tuple[str, str], str]
    settled_python: str
    evidence: Mapping[str, tuple[str, str]]
    offered: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)

    def builds_for(self, os: str, arch: str) -> tuple[Build, ...]:
        """Return the builds for a platform, the newest torch first."""
        return self._platforms.get((os, _SAME_CHIP.get((os, arch), arch)), ())

    def narrowed(self, listing: Listing, os: str, arch: str) -> Catalog:
        """Return the catalogue with the builds of a platform as the sources list them today."""
        from gpuinstall.catalog.narrowing import narrowed, offered

        arch = _SAME_CHIP.get((os, arch), arch)
        return replace(self, builds=narrowed(self.builds, listing, os, arch), offered=offered(listing, os, arch))

    @cached_property
    def shared_python(self) -> tuple[int, ...]:
        """The newest Python that every companion has wheels for."""
        return min((tuple(map(int, python.split("."))) for python in self.last_pythons.values()), default=(99,))

    @cached_property
    def _platforms(self) -> dict[tuple[str, str], tuple[Build, ...]]:
        found: dict[tuple[str, str], list[Build]] = {}
        for build in self.builds:
            found.setdefault((build.os, build.arch), []).append(build)
        newest_first = {key: sorted(builds, key=_newness, reverse=True) for key, builds in found.items()}
        return {key: tuple(builds) for key, builds in newest_first.items()}


def _newness(build: Build) -> tuple[Version, tuple[int, int], str]:
    return build.torch, build.toolkit or (0, 0), build.backend.tag
