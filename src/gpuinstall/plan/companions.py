"""Packages of torch's family: which versions load beside a build, and how they are pinned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.catalog.build import DEFAULT_INDEX
from gpuinstall.plan.python import number
from gpuinstall.plan.requirement import parse_specifier
from gpuinstall.plan.values import Reason

if TYPE_CHECKING:
    from gpuinstall.catalog.build import Build
    from gpuinstall.catalog.catalog import Catalog, Release
    from gpuinstall.plan.context import PlanContext
    from gpuinstall.plan.requirement import Asked

PAIRED = frozenset({"torch", "torchaudio", "torchvision", "triton"})
"""The packages whose versions the catalogue pairs with torch's."""


def missing_companion(build: Build, context: PlanContext) -> Reason | None:
    """Say which companion asked for has no version that loads beside this build."""
    for requirement in context.demand.family.values():
        known = versions(build, requirement, context.catalog)
        if known is not None and not _suiting(requirement, known):
            those = f", only {' and '.join(known)}" if known else ""
            return Reason("no-companion", f"no {requirement.text} loads beside it{those}")
    return None


def versions(build: Build, requirement: Asked, catalog: Catalog) -> tuple[str, ...] | None:
    """List the versions of a companion that load beside a build, the preferred first; None if nobody has looked."""
    name = requirement.name
    release = catalog.releases.get(build.torch)
    listed = _listed(release, requirement) if release else None
    if listed is None:
        return None
    anywhere = (build.backend,)
    offered = catalog.offered.get((name, build.backend.tag), listed) if build.source else listed
    return tuple(
        version
        for version in listed
        if version in offered and build.backend in catalog.backend_bound.get((name, version), anywhere)
    )


def shared_pythons(build: Build, context: PlanContext) -> tuple[str, ...]:
    """List the Pythons that a build and every companion asked for have wheels for."""
    pythons = build.pythons
    if not pythons or number(pythons[-1]) <= context.catalog.shared_python:
        return pythons
    for requirement in context.demand.family.values():
        suiting = _suiting(requirement, versions(build, requirement, context.catalog) or ())
        if suiting and all((requirement.name, version) in context.catalog.last_pythons for version in suiting):
            pythons = tuple(one for one in pythons if _with_wheel(requirement, suiting, one, context.catalog))
    return pythons


def pinned(build: Build, python: str, context: PlanContext) -> tuple[str, ...]:
    """Write what to install: torch and its companions pinned to the build, the rest as it was asked for."""
    demand = context.demand
    family = [_pin(requirement, build, python, context.catalog) for requirement in demand.family.values()]
    return (f"torch{demand.extras}=={build.torch}{_label(build)}", *family, *demand.others)


def _pin(requirement: Asked, build: Build, python: str, catalog: Catalog) -> str:
    known = versions(build, requirement, catalog)
    if requirement.name == "triton" and known and requirement.specifier is None:
        return f"triton{catalog.releases[build.torch].triton}"
    if requirement.name == "triton" or not known:
        return requirement.text
    version = _with_wheel(requirement, _suiting(requirement, known), python, catalog)[0]
    return f"{requirement.name}{requirement.extras}=={version}{_label(build)}"


def _listed(release: Release, requirement: Asked) -> tuple[str, ...] | None:
    if requirement.name == "triton":
        return _triton(release.triton, requirement) if release.triton else ()
    return {"torchvision": release.torchvision, "torchaudio": release.torchaudio}.get(requirement.name)


def _triton(pin: str, requirement: Asked) -> tuple[str, ...]:
    """The first version in torch's pin, and those in it that the requirement names and allows."""
    allowed = parse_specifier(pin)
    named = (specifier.version.removesuffix(".*") for specifier in requirement.specifier or ())
    return (
        pin.lstrip("=~"),
        *(version for version in named if allowed.contains(version) and requirement.allows(version)),
    )


def _suiting(requirement: Asked, known: tuple[str, ...]) -> list[str]:
    return [version for version in known if requirement.allows(version)]


def _with_wheel(requirement: Asked, suiting: list[str], python: str, catalog: Catalog) -> list[str]:
    lasts = [(version, catalog.last_pythons.get((requirement.name, version), python)) for version in suiting]
    return [version for version, last in lasts if number(python) <= number(last)]


def _label(build: Build) -> str:
    return f"+{build.backend}" if build.labelled and build.source != DEFAULT_INDEX else ""
