"""Find compatible versions of torchvision and other companions of torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement, parse_specifier
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Companion


class Companions(Value):
    """The requested companions of torch, such as torchvision."""

    requirements: tuple[Requirement, ...]
    catalog: Catalog
    is_before_triton: bool = False
    """Whether none of the requested torch versions requires triton."""

    def find_requested_versions(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return the requested versions of a companion that a build supports.

        Returns:
            The versions, or None if only METADATA determines them.
        """
        versions = self.find_available_versions(build, requirement)
        if versions is None or self.is_uncataloged(build, requirement):
            return None
        return [version for version in versions if requirement.allows(version)]

    def is_uncataloged(self, build: Build, requirement: Requirement) -> bool:
        """Return whether a build's source lists unknown requested versions."""
        tag = build.backend.tag if build.listed_at else ""
        versions = self.catalog.uncataloged.get((requirement.name, tag), ())
        return any(map(requirement.allows, versions))

    def find_rejection(self, build: Build) -> Reason | None:
        """Return a reason if a companion is incompatible with a build."""
        for requirement in self.requirements:
            # If the versions are unknown (None), the resolver reads the companion's METADATA.
            if self.find_requested_versions(build, requirement) == []:
                return Reason(
                    "no-companion", self._explain_rejection(build, requirement)
                )
        return None

    def find_pythons(self, build: Build, *only: Requirement) -> tuple[str, ...]:
        """Return Python versions that a build and its companions support.

        Args:
            build: The build.
            only: The companions to consider. By default, all requested ones.
        """
        pythons = build.pythons
        for requirement in only or self.requirements:
            versions = self.find_requested_versions(build, requirement) or ()
            wheels = [
                self._find_wheels(requirement.name, version) for version in versions
            ]
            if wheels:
                pythons = tuple(
                    python
                    for python in pythons
                    if any(each.has_wheel(python) for each in wheels)
                )
        return pythons

    def create_pins(
        self,
        build: Build,
        python: str,
    ) -> Iterator[Requirement]:
        """Yield a requirement for each companion, pinned if possible."""
        for requirement in self.requirements:
            name = requirement.name
            versions = self.find_requested_versions(build, requirement)
            # triton has no local version for a torch build, so use the pin in torch's METADATA.
            if name == "triton" and versions and requirement.specifier is None:
                pin = self.catalog.releases[build.torch].triton
                yield Requirement.of("triton", pin or "")
            elif name == "triton" or not versions:
                yield requirement
            else:
                yield self._pin_version(requirement, versions, build, python)

    def _pin_version(
        self,
        requirement: Requirement,
        versions: Sequence[str],
        build: Build,
        python: str,
    ) -> Requirement:
        """Pin a companion to the first version with a compatible wheel.

        Args:
            requirement: The requirement for the companion.
            versions: The compatible versions, preferred first.
            build: The torch build, which determines the companion's local version.
            python: The selected Python version, as ``X.Y``.
        """
        name = requirement.name
        for version in versions:
            wheels = self._find_wheels(name, version)
            if wheels.has_wheel(python):
                break
        label = format_build_label(build)
        listed = self._find_listed_versions(build, name)
        # If the index was not listed, the catalog states whether the files have a local version.
        if listed is None:
            is_labeled = build.platform not in wheels.unlabelled
        else:
            is_labeled = f"{version}{label}" in listed
        pin = f"=={version}{label if is_labeled else ''}"
        return replace(requirement, marker=None).with_specifier(pin)

    def list_cpu_builds(self, build: Build) -> Iterator[str]:
        """Yield companions that have no GPU code for a build's platform."""
        for requirement in self.requirements:
            name = requirement.name
            for version in (self.find_requested_versions(build, requirement) or ())[:1]:
                if build.platform in self._find_wheels(name, version).unlabelled:
                    yield f"{name} {version}"

    def find_available_versions(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return companion versions with wheels for a build, preferred first.

        Returns:
            The versions, or None if the catalog does not list them for this torch version.
        """
        versions = self._find_paired_versions(build, requirement)
        if versions is None:
            return None
        name = requirement.name
        return [
            version for version in versions if self._has_wheels(build, name, version)
        ]

    def _find_paired_versions(
        self,
        build: Build,
        requirement: Requirement,
    ) -> Sequence[str] | None:
        """Return the companion versions that belong to a torch release."""
        release = self.catalog.releases.get(build.torch)
        if release is None:
            # The resolver reads the METADATA of the listed versions.
            is_unlisted = (
                self._find_listed_versions(build, requirement.name) == frozenset()
            )
            return () if is_unlisted else None
        if requirement.name != "triton":
            return release.companions.get(requirement.name)
        if not release.released:
            return None
        if not release.triton:
            # Any triton version is compatible. If another requested torch requires triton, prefer that torch.
            if self.is_before_triton and build.os == "linux":
                return None
            return ()
        # Torch's pin allows its own version, and the requirement can mention other compatible versions.
        versions = [release.triton.lstrip("=~")]
        pin = parse_specifier(release.triton)
        for specifier in requirement.specifier or ():
            version = specifier.version.removesuffix(".*")
            if pin.contains(version) and requirement.allows(version):
                versions.append(version)
        return versions

    def _has_wheels(
        self,
        build: Build,
        name: str,
        version: str,
    ) -> bool:
        """Return whether a companion version has wheels for a torch build.

        Args:
            build: The torch build.
            name: The package name of the companion.
            version: The version of the companion, without a local version.
        """
        wheels = self._find_wheels(name, version)
        listed = self._find_listed_versions(build, name)
        if listed is None:
            has_wheels = wheels.is_known_to_be_listed(build)
        else:
            has_wheels = version in listed or f"{version}+{build.backend}" in listed
        return has_wheels and wheels.may_have_wheel_for(build)

    def _find_listed_versions(
        self,
        build: Build,
        name: str,
    ) -> frozenset[str] | None:
        """Return the versions of a package on the index of a torch build."""
        if not build.listed_at:
            return None
        listed = self.catalog.offered.get((name, build.backend.tag))
        if name == "triton" and not listed:
            # The wheels of triton support every torch build and are also on the default index.
            return None
        return listed

    def _find_wheels(
        self,
        name: str,
        version: str,
    ) -> Companion:
        """Return the wheels of a companion version, or of X.Y.0 if unknown."""
        companions = self.catalog.companions
        major, minor, *_ = (*version.split("."), "0")
        first = companions.get((name, f"{major}.{minor}.0"), Companion(frozenset()))
        return companions.get((name, version), first)

    def _explain_rejection(
        self,
        build: Build,
        requirement: Requirement,
    ) -> str:
        """Explain why no requested version is compatible with a build."""
        if self._find_listed_versions(build, requirement.name) == frozenset():
            return f"no source lists {requirement.name} for {build.backend}"
        text = requirement.written or requirement.text
        compatible = self.find_available_versions(build, requirement)
        if compatible:
            return f"no {text} is compatible with it, only {' and '.join(compatible)}"
        return f"no {text} for {build.os} {build.arch} is compatible with it"


def format_build_label(build: Build) -> str:
    """Return the local version suffix of a torch build, such as ``+cu126``."""
    if build.source is DEFAULT_INDEX or not build.is_labeled:
        return ""
    return f"+{build.backend}"
