"""Packages of torch's family: which versions load beside a build, and how they are pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.catalog.catalog import DEFAULT_INDEX, Build, Catalog, Companion
from gpuinstall.plan.python import minor_version
from gpuinstall.plan.requirement import Asked, parse_specifier
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.plan.context import PlanContext

PAIRED = frozenset({"torch", "torchaudio", "torchvision", "triton"})
"""The packages whose versions the catalogue pairs with torch's."""


def missing_companion(build: Build, context: PlanContext) -> Reason | None:
    """Say which companion asked for has no version that loads beside this build."""
    for requirement in context.demand.family.values():
        if _suiting(build, requirement, context) == ():
            return Reason("no-companion", _why_none(build, requirement, context.catalog))
    return None


def versions(build: Build, requirement: Asked, catalog: Catalog) -> tuple[str, ...] | None:
    """List the versions of a companion that load beside a build, the preferred first; None if nobody has looked."""
    listed = _listed(build, requirement, catalog)
    if listed is None:
        return None
    return tuple(version for version in listed if _loads(build, requirement.name, version, catalog))


def shared_pythons(build: Build, context: PlanContext) -> tuple[str, ...]:
    """List the Pythons that a build and every companion asked for have wheels for."""
    pythons = build.pythons
    for requirement in context.demand.family.values():
        suiting = _suiting(build, requirement, context) or ()
        wheels = [_wheels(requirement.name, version, context.catalog).pythons for version in suiting]
        if wheels and None not in wheels:
            every = frozenset[str]().union(*filter(None, wheels))
            pythons = tuple(python for python in pythons if python in every)
        excluded = [_wheels(requirement.name, version, context.catalog).excluded for version in suiting]
        if excluded and (barred := context.newest_patches & frozenset.intersection(*excluded)):
            pythons = tuple(python for python in pythons if python not in set(map(minor_version, barred)))
    return pythons


def pinned(build: Build, python: str, context: PlanContext) -> tuple[str, ...]:
    """Write what to install: torch and its companions pinned to the build, the rest as it was asked for."""
    demand = context.demand
    family = [_pin(requirement, build, python, context) for requirement in demand.family.values()]
    label = f"+{build.backend}" if _has_labels(build) else ""
    return (f"torch{demand.extras}=={build.torch}{label}", *family, *demand.others)


def built_for_the_cpu(build: Build, context: PlanContext) -> Reason | None:
    """Warn of companions whose files for this platform carry no code for a GPU."""
    unlabelled = [
        f"{requirement.name} {version}"
        for requirement in context.demand.family.values()
        for version in (_suiting(build, requirement, context) or ())[:1]
        if build.platform in _wheels(requirement.name, version, context.catalog).unlabelled
    ]
    packages = f"{' and '.join(unlabelled)} for {build.os} {build.arch}"
    message = f"{packages} have no GPU code for this backend: they are CPU builds"
    return Reason("companion-for-the-cpu", message) if unlabelled else None


def _pin(requirement: Asked, build: Build, python: str, context: PlanContext) -> str:
    suiting, catalog, name = _suiting(build, requirement, context), context.catalog, requirement.name
    if name == "triton" and suiting and requirement.specifier is None:
        return f"triton{catalog.releases[build.torch].triton}"
    if name == "triton" or not suiting:
        return requirement.text
    version = next(version for version in suiting if _wheels(name, version, catalog).has_wheel(python))
    # The label of its files is as a listing shows it, else as the catalogue knows it.
    label, offered = f"+{build.backend}", _offered(build, name, catalog)
    labelled_there = build.platform not in _wheels(name, version, catalog).unlabelled
    has_label = labelled_there if offered is None else f"{version}{label}" in offered
    return f"{name}{requirement.extras}=={version}{label if has_label and _has_labels(build) else ''}"


def _suiting(build: Build, requirement: Asked, context: PlanContext) -> tuple[str, ...] | None:
    """The versions of a companion that load beside a build and are asked for; None if nobody has looked."""
    key = id(build), requirement.name
    if key not in context.suiting:
        loading = versions(build, requirement, context.catalog)
        context.suiting[key] = loading and tuple(version for version in loading if requirement.allows(version))
    return context.suiting[key]


def _listed(build: Build, requirement: Asked, catalog: Catalog) -> tuple[str, ...] | None:
    """List the versions that belong to a torch, whether or not they have wheels here."""
    release = catalog.releases.get(build.torch)
    if release is None or (requirement.name == "triton" and not release.released):
        return None
    if requirement.name != "triton":
        return {"torchvision": release.torchvision, "torchaudio": release.torchaudio}.get(requirement.name)
    if not release.triton:
        return ()
    # The first version in torch's pin, and those in it that the requirement names and allows.
    allowed = parse_specifier(release.triton)
    named = (specifier.version.removesuffix(".*") for specifier in requirement.specifier or ())
    fitting = (version for version in named if allowed.contains(version) and requirement.allows(version))
    return (release.triton.lstrip("=~"), *fitting)


def _why_none(build: Build, requirement: Asked, catalog: Catalog) -> str:
    listed, loading = _listed(build, requirement, catalog) or (), versions(build, requirement, catalog) or ()
    if _offered(build, requirement.name, catalog) == frozenset():
        return f"no source lists {requirement.name} for {build.backend}"
    wheels = {version: _wheels(requirement.name, version, catalog) for version in listed}
    if listed and not any(build.platform in companion.platforms for companion in wheels.values()):
        return f"{requirement.name} {listed[0]} has no wheel for {build.os} {build.arch}"
    unseen = [version for version, companion in wheels.items() if companion.loads_in(build)]
    if unseen and not loading:
        return f"no known source has {requirement.name} {unseen[0]}+{build.backend} for {build.os} {build.arch}"
    return f"no {requirement.text} loads beside it" + (f", only {' and '.join(loading)}" if loading else "")


def _wheels(name: str, version: str, catalog: Catalog) -> Companion:
    """The wheels of a release; those of a patch release that the catalogue does not know are like the first's."""
    companion, (major, minor, *_) = catalog.companions.get((name, version)), (*version.split("."), "0")
    return companion or catalog.companions[name, f"{major}.{minor}.0"]


def _loads(build: Build, name: str, version: str, catalog: Catalog) -> bool:
    """Say whether a release has wheels that load beside a build: as far as is known, or as the sources list today."""
    wheels = _wheels(name, version, catalog)
    offered = _offered(build, name, catalog)
    spellings = (version, f"{version}+{build.backend}")
    there = wheels.was_seen(build) if offered is None else not offered.isdisjoint(spellings)
    return there and wheels.loads_in(build)


def _offered(build: Build, name: str, catalog: Catalog) -> frozenset[str] | None:
    """The versions that a listing found for a build of a source; None where nothing was listed."""
    offered = catalog.offered.get((name, build.backend.tag)) if build.source else None
    if name == "triton" and not offered:
        # Its files serve every build: what the build's own source has not comes from the default index.
        return None
    return offered


def _has_labels(build: Build) -> bool:
    return build.labelled and build.source != DEFAULT_INDEX
