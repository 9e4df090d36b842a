"""Packages of torch's family: which versions load beside a build, and how they are pinned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING

from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Companion
from gpuinstall.finding import Reason
from gpuinstall.plan.python import minor_version
from gpuinstall.plan.requirement import Asked, parse_specifier

if TYPE_CHECKING:
    from collections.abc import Callable

PAIRED = frozenset({"torch", "torchaudio", "torchvision", "triton"})
"""The packages whose versions the catalogue pairs with torch's."""


@dataclass(frozen=True)
class Companions:
    """The requested packages of torch's family, beside torch itself."""

    requirements: Mapping[str, Asked]
    """By name."""

    catalog: Catalog
    newest_patches: frozenset[str] = frozenset()
    """The machine's newest Python of each ``X.Y``, which is the one that an environment is made of."""

    @cached_property
    def suiting(self) -> Callable[[Build, str], tuple[str, ...] | None]:
        """Return the requested versions of a companion that load beside a build; each is looked up once.

        None if the catalogue does not pair the companion with torch.
        """
        return cache(self._suiting)

    def _suiting(self, build: Build, name: str) -> tuple[str, ...] | None:
        requirement = self.requirements[name]
        loading = versions(build, requirement, self.catalog)
        return loading and tuple(version for version in loading if requirement.allows(version))

    def missing(self, build: Build) -> Reason | None:
        """Return which companion has no version that loads beside a build."""
        for name, requirement in self.requirements.items():
            if self.suiting(build, name) == ():
                return Reason("no-companion", _why_none(build, requirement, self.catalog))
        return None

    def pythons(self, build: Build) -> tuple[str, ...]:
        """Return the Pythons that a build and every companion have wheels for."""
        pythons = build.pythons
        for name in self.requirements:
            wheels = [
                _wheels(name, version, self.catalog) for version in self.suiting(build, name) or ()
            ]
            if not wheels:
                continue
            if all(one.pythons is not None for one in wheels):
                pythons = tuple(
                    python for python in pythons if any(one.has_wheel(python) for one in wheels)
                )
            excluded = self.newest_patches.intersection(*(one.excluded for one in wheels))
            pythons = tuple(
                python for python in pythons if python not in set(map(minor_version, excluded))
            )
        return pythons

    def pins(self, build: Build, python: str) -> tuple[str, ...]:
        """Return the requirements of the companions, pinned to a build as far as it is known what goes with it."""
        return tuple(
            self._pin(requirement, build, python) for requirement in self.requirements.values()
        )

    def _pin(self, requirement: Asked, build: Build, python: str) -> str:
        name, catalog = requirement.name, self.catalog
        suiting = self.suiting(build, name)
        if name == "triton" and suiting and requirement.specifier is None:
            return f"triton{catalog.releases[build.torch].triton}"
        if name == "triton" or not suiting:
            return requirement.text
        version = next(
            version for version in suiting if _wheels(name, version, catalog).has_wheel(python)
        )
        label, listed = label_of(build), _listed_versions(build, name, catalog)
        # A listing shows whether its files have a label; without one the catalogue knows it.
        if listed is None:
            has_label = build.platform not in _wheels(name, version, catalog).unlabelled
        else:
            has_label = f"{version}{label}" in listed
        return f"{name}{requirement.extras}=={version}{label if has_label else ''}"

    def built_for_the_cpu(self, build: Build) -> Reason | None:
        """Return the warning that files of companions for this platform carry no code for a GPU."""
        suiting = ((name, self.suiting(build, name)) for name in self.requirements)
        preferred = [(name, versions[0]) for name, versions in suiting if versions]
        unlabelled = [
            f"{name} {version}"
            for name, version in preferred
            if build.platform in _wheels(name, version, self.catalog).unlabelled
        ]
        if not unlabelled:
            return None
        packages = f"{' and '.join(unlabelled)} for {build.os} {build.arch}"
        return Reason(
            "companion-for-the-cpu",
            f"{packages} have no GPU code for this backend: they are CPU builds",
        )


def label_of(build: Build) -> str:
    """Return what the versions of a build's files end with, ``+cu126``; empty if they have no label."""
    return f"+{build.backend}" if build.labelled and build.source is not DEFAULT_INDEX else ""


def versions(build: Build, requirement: Asked, catalog: Catalog) -> tuple[str, ...] | None:
    """Return the versions of a companion that load beside a build, the preferred first.

    None if the catalogue does not pair the companion with torch.
    """
    paired = _paired_versions(build, requirement, catalog)
    if paired is None:
        return None
    return tuple(version for version in paired if _loads(build, requirement.name, version, catalog))


def _paired_versions(build: Build, requirement: Asked, catalog: Catalog) -> tuple[str, ...] | None:
    """Return the versions that belong to a torch, whether or not they have wheels here."""
    release = catalog.releases.get(build.torch)
    if release is None or (requirement.name == "triton" and not release.released):
        return None
    if requirement.name != "triton":
        return {"torchvision": release.torchvision, "torchaudio": release.torchaudio}.get(
            requirement.name
        )
    if not release.triton:
        return ()
    # The first version in torch's pin, and those in it that the requirement names and allows.
    allowed = parse_specifier(release.triton)
    named = (specifier.version.removesuffix(".*") for specifier in requirement.specifier or ())
    fitting = (
        version for version in named if allowed.contains(version) and requirement.allows(version)
    )
    return (release.triton.lstrip("=~"), *fitting)


def _loads(build: Build, name: str, version: str, catalog: Catalog) -> bool:
    """Whether a release has wheels that load beside a build: as the sources list today, else as far as is known."""
    wheels, listed = _wheels(name, version, catalog), _listed_versions(build, name, catalog)
    if listed is None:
        has_wheels = wheels.was_seen(build)
    else:
        has_wheels = not listed.isdisjoint((version, f"{version}+{build.backend}"))
    return has_wheels and wheels.loads_in(build)


def _listed_versions(build: Build, name: str, catalog: Catalog) -> frozenset[str] | None:
    """Return the versions that a listing found for a build of a source; None if nothing was listed."""
    listed = catalog.offered.get((name, build.backend.tag)) if build.listed_at else None
    if name == "triton" and not listed:
        # Its files serve every build: what the build's own source has not comes from the default index.
        return None
    return listed


def _wheels(name: str, version: str, catalog: Catalog) -> Companion:
    """Return the wheels of a release; of a patch release that the catalogue does not know, those of the first."""
    major, minor, *_ = (*version.split("."), "0")
    return catalog.companions.get((name, version)) or catalog.companions[name, f"{major}.{minor}.0"]


def _why_none(build: Build, requirement: Asked, catalog: Catalog) -> str:
    name = requirement.name
    loading = versions(build, requirement, catalog) or ()
    if _listed_versions(build, name, catalog) == frozenset():
        return f"no source lists {name} for {build.backend}"
    paired = _paired_versions(build, requirement, catalog) or ()
    wheels = {version: _wheels(name, version, catalog) for version in paired}
    if paired and not any(build.platform in companion.platforms for companion in wheels.values()):
        return f"{name} {paired[0]} has no wheel for {build.os} {build.arch}"
    unseen = [version for version, companion in wheels.items() if companion.loads_in(build)]
    if unseen and not loading:
        return f"no known source has {name} {unseen[0]}+{build.backend} for {build.os} {build.arch}"
    only = f", only {' and '.join(loading)}" if loading else ""
    return f"no {requirement.text} loads beside it{only}"
