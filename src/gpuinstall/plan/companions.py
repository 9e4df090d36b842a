"""Packages of torch's family: which versions load beside a build, and how they are pinned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement, parse_specifier
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Companion


class Companions(Value):
    """The requested packages of torch's family, beside torch itself."""

    requirements: tuple[Requirement, ...]
    catalog: Catalog
    is_before_triton: bool = False
    """Whether every requested torch is one that requires no triton."""

    def suiting(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return the requested versions of a companion that load beside a build.

        None if the catalogue does not pair the companion with torch.
        """
        versions = self.loading(build, requirement)
        if versions is None:
            return None
        return [version for version in versions if requirement.allows(version)]

    def missing(self, build: Build) -> Reason | None:
        """Return which companion has no version that loads beside a build."""
        for requirement in self.requirements:
            # Not None, which is unknown: then METADATA decides.
            if self.suiting(build, requirement) == []:
                return Reason("no-companion", self._why_none(build, requirement))
        return None

    def pythons(self, build: Build) -> tuple[str, ...]:
        """Return the Pythons that a build and every companion have wheels for."""
        pythons = build.pythons
        for requirement in self.requirements:
            versions = self.suiting(build, requirement) or ()
            wheels = [self._wheels(requirement.name, version) for version in versions]
            if wheels:
                pythons = tuple(
                    python
                    for python in pythons
                    if any(each.has_wheel(python) for each in wheels)
                )
        return pythons

    def pins(self, build: Build, python: str) -> Iterator[Requirement]:
        """Yield the requirements of the companions, pinned to a build as far as it is known what goes with it."""
        for requirement in self.requirements:
            name = requirement.name
            versions = self.suiting(build, requirement)
            # In the words of torch, which pins triton itself: no label ties a triton to a build.
            if name == "triton" and versions and requirement.specifier is None:
                pin = self.catalog.releases[build.torch].triton
                yield Requirement.of("triton", pin or "")
            elif name == "triton" or not versions:
                yield requirement
            else:
                yield self._pin(requirement, versions, build, python)

    def _pin(
        self,
        requirement: Requirement,
        versions: Sequence[str],
        build: Build,
        python: str,
    ) -> Requirement:
        """Pin a companion to the first version with a wheel for a Python.

        Args:
            requirement: What is requested of it.
            versions: Those that load beside the build, the preferred first.
            build: The build of torch, whose label its files have too.
            python: The ``X.Y`` of the plan.
        """
        name = requirement.name
        for version in versions:
            wheels = self._wheels(name, version)
            if wheels.has_wheel(python):
                break
        label = label_of(build)
        listed = self._listed_versions(build, name)
        # A listing shows whether its files have a label; without one the catalogue knows it.
        if listed is None:
            is_labelled = build.platform not in wheels.unlabelled
        else:
            is_labelled = f"{version}{label}" in listed
        pin = f"=={version}{label if is_labelled else ''}"
        return replace(requirement, marker=None).with_specifier(pin)

    def cpu_builds(self, build: Build) -> Iterator[str]:
        """Yield the companions whose files for the platform of a build have no code for a GPU."""
        for requirement in self.requirements:
            name = requirement.name
            for version in (self.suiting(build, requirement) or ())[:1]:
                if build.platform in self._wheels(name, version).unlabelled:
                    yield f"{name} {version}"

    def loading(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return the versions of a companion that load beside a build, the preferred first.

        None if the catalogue does not pair the companion with torch.
        """
        versions = self._paired_versions(build, requirement)
        if versions is None:
            return None
        return [
            version
            for version in versions
            if self._loads(build, requirement.name, version)
        ]

    def _paired_versions(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return the versions that belong to a torch, whether or not they have wheels here."""
        release = self.catalog.releases.get(build.torch)
        if release is None:
            # METADATA tells which of those that are listed go with it.
            is_unlisted = self._listed_versions(build, requirement.name) == frozenset()
            return () if is_unlisted else None
        if requirement.name != "triton":
            return release.companions.get(requirement.name)
        if not release.released:
            return None
        if not release.triton:
            # Any triton goes with it, but where torch is left open, one that requires triton is taken.
            if self.is_before_triton and build.os == "linux":
                return None
            return ()
        # The first version in torch's pin, and those in it that the requirement names and allows.
        versions = [release.triton.lstrip("=~")]
        pin = parse_specifier(release.triton)
        for specifier in requirement.specifier or ():
            version = specifier.version.removesuffix(".*")
            if pin.contains(version) and requirement.allows(version):
                versions.append(version)
        return versions

    def _loads(
        self,
        build: Build,
        name: str,
        version: str,
    ) -> bool:
        """Whether a release has wheels that load beside a build: as the sources list today, else as far as is known.

        Args:
            build: The build of torch.
            name: The companion.
            version: Its release, without a label.
        """
        wheels = self._wheels(name, version)
        listed = self._listed_versions(build, name)
        if listed is None:
            has_wheels = wheels.was_seen(build)
        else:
            has_wheels = version in listed or f"{version}+{build.backend}" in listed
        return has_wheels and wheels.loads_in(build)

    def _listed_versions(self, build: Build, name: str) -> frozenset[str] | None:
        """Return the versions that a listing found for a build of a source; None if nothing was listed."""
        if not build.listed_at:
            return None
        listed = self.catalog.offered.get((name, build.backend.tag))
        if name == "triton" and not listed:
            # Its files serve every build: what the build's own source has not comes from the default index.
            return None
        return listed

    def _wheels(self, name: str, version: str) -> Companion:
        """Return the wheels of a release; of a patch release that the catalogue does not know, those of the first."""
        companions = self.catalog.companions
        major, minor, *_ = (*version.split("."), "0")
        return companions.get((name, version)) or companions[name, f"{major}.{minor}.0"]

    def _why_none(self, build: Build, requirement: Requirement) -> str:
        """Return that no version loads beside a build, and which do."""
        if self._listed_versions(build, requirement.name) == frozenset():
            return f"no source lists {requirement.name} for {build.backend}"
        loading = self.loading(build, requirement)
        if loading:
            return (
                f"no {requirement.text} loads beside it, only {' and '.join(loading)}"
            )
        return f"no {requirement.text} for {build.os} {build.arch} loads beside it"


def label_of(build: Build) -> str:
    """Return what the versions of a build's files end with, ``+cu126``; empty if they have no label."""
    if build.source is DEFAULT_INDEX or not build.labelled:
        return ""
    return f"+{build.backend}"
