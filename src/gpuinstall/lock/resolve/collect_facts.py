"""Collect facts about packages in a resolution for the next run of uv."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from gpuinstall.base.requirement import Constraint, Requirement, requirement_names
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.request.lock_sources import find_extension
from gpuinstall.lock.resolve.extensions import choose_prebuilt
from gpuinstall.lock.resolve.inspect import (
    ResolutionInspector,
    create_wheel_fact,
    find_sdists,
)
from gpuinstall.lock.resolve.knowledge import Fact, Knowledge, UvResolution
from gpuinstall.lock.resolve.older_releases import OlderReleaseSearch
from gpuinstall.lock.uv.builds import find_build_tools
from gpuinstall.wheels.compatibility import Compatibility


def collect_facts(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Knowledge:
    """Return the known facts and those about the packages in a resolution.

    Extension files and build tools are added only if nothing else is new.
    """
    grown = known | Knowledge(seen=frozenset(resolution.versions))
    grown |= Knowledge.from_facts(inspector.find_companion_facts(resolution))
    if not inspector.is_idle:
        grown = _inspect_wheels(resolution, grown, inspector)
        grown |= Knowledge.from_facts(inspector.find_source_facts(resolution))
    grown |= Knowledge(
        torch_constraints=tuple(_find_violated_constraints(resolution, inspector))
    )
    grown |= Knowledge.from_facts(_exclude_prereleases(resolution, grown, inspector))
    if grown.facts_for_uv == known.facts_for_uv:
        grown |= Knowledge(files=_find_prebuilt(resolution, grown, inspector))
    if grown.facts_for_uv == known.facts_for_uv:
        undeclared = inspector.resolver_input.catalog.find_undeclared_packages(
            resolution.versions
        )
        added = map(
            Requirement.of, (*find_build_tools(resolution.packages), *undeclared)
        )
        grown |= Knowledge(requirements=tuple(added))
    return grown


def _inspect_wheels(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Knowledge:
    """Inspect the wheels of a resolution, and return all known facts."""
    known |= Knowledge(required_by_extras=inspector.find_required_by_extras(resolution))
    for found in inspector.inspect(resolution, known):
        known |= _find_wheel_facts(found, resolution, known, inspector)
    return known | Knowledge(linked=inspector.find_linked_dependencies(resolution))


def _find_wheel_facts(
    found: Compatibility,
    resolution: UvResolution,
    known: Knowledge,
    inspector: ResolutionInspector,
) -> Knowledge:
    """Return the facts of a wheel and, if rejected, of older releases."""
    package = found.wheel.package
    fact = create_wheel_fact(found, resolution.torch)
    if fact is None or inspector.is_optional(package):
        return Knowledge()
    learned = Knowledge.from_facts([fact])
    # Keep a requested package at its latest release if another torch runs with it.
    is_dependency = not inspector.is_requested(package, known)
    if fact.excludes:
        pure = inspector.find_pure_files(found)
        if pure:
            return Knowledge(files={package: pure})
    elif not is_dependency or not fact.rejects(resolution.torch):
        return learned
    elif package not in known.before_torch and inspector.has_only_older_cuda(
        found, resolution
    ):
        return learned | Knowledge(before_torch=(package,))
    search = OlderReleaseSearch(found, inspector, resolution, known)
    return learned | Knowledge.from_facts(search.find_facts())


def _find_violated_constraints(
    resolution: UvResolution, inspector: ResolutionInspector
) -> Iterator[tuple[Version, Constraint]]:
    """Yield constraints of torch that METADATA omits and uv violated."""
    torch = resolution.build.torch
    for constraint in inspector.resolver_input.catalog.constraints(torch):
        version = resolution.versions.get(constraint.name)
        if version and not constraint.allows(version):
            yield torch, constraint


def _exclude_prereleases(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> Iterator[Fact]:
    """Exclude pre-releases that uv selects if facts exclude final releases.

    A fact may be about the package itself or about requirements of its latest release.
    """
    index = inspector.index
    excluded = {fact.package for fact in known.facts.values() if fact.excludes}
    for package, version in resolution.versions.items():
        if not excluded or not Version(version).is_prerelease:
            continue
        limits = index.find_limits(package)
        if any(one.specifier and one.specifier.prereleases for one in limits):
            continue
        newest = next(iter(index.find_releases(package).values()), None)
        if newest is None:
            continue
        required = requirement_names(index.read_metadata_requirements(newest))
        if excluded.isdisjoint({package, *required}):
            continue
        versions = {str(one.version) for one in index.find_wheels(package)}
        for other in {version, *versions}:
            if Version(other).is_prerelease:
                yield Fact(package, other, builds=frozenset())


def _find_prebuilt(
    resolution: UvResolution, known: Knowledge, inspector: ResolutionInspector
) -> dict[str, tuple[Wheel, ...]]:
    """Return prebuilt files of extensions that would be compiled."""
    resolver_input = inspector.resolver_input
    beside = resolver_input.with_builds([resolution.build])
    files = dict[str, tuple[Wheel, ...]]()
    for name in sorted(load_extensions().rows.keys() & find_sdists(resolution)):
        row = find_extension(name, inspector.index.session)
        fit = choose_prebuilt(
            row, beside, inspector.index.session, Requirement.of(name)
        ).fit
        if fit and name not in known.files and name not in resolver_input.files:
            files[name] = (fit.wheel,)
    return files
