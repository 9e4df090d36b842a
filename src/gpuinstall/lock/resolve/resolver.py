"""Resolve one target: run uv and inspect wheels until there are no new facts.

Then the resolver tries lower bounds for requested packages that are not at their latest
possible release, and selects the best resolution.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Constraint, requirement_names
from gpuinstall.base.values import Value, replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS
from gpuinstall.catalog.listing import find_family_links
from gpuinstall.lock.request.project import find_nested_requirements
from gpuinstall.lock.resolve.collect_facts import collect_facts
from gpuinstall.lock.resolve.inspect import ResolutionInspector
from gpuinstall.lock.resolve.knowledge import Knowledge, UvResolution
from gpuinstall.lock.resolve.package_index import PackageIndex
from gpuinstall.lock.resolve.resolver_input import ResolverInput
from gpuinstall.lock.resolve.run_uv import (
    is_library_of_torch,
    limit_backends,
    resolve_once,
)
from gpuinstall.lock.uv.errors import FAMILY_UNLISTED, Conflict
from gpuinstall.lock.uv.resolution import check_required_urls
from gpuinstall.sources.session import Session

if TYPE_CHECKING:
    from packaging.version import Version

TURNS = 12
"""Maximum number of uv runs with new facts for one input."""

RUNS = 3
"""Number of uv runs after which no newer release is tried."""

RUNS_WITH_FACTS = 6
"""The same number if facts exclude releases."""

RELEASES_READ = 24
"""Maximum number of releases whose METADATA is checked for compatibility."""


class ResolvedInput(Value):
    """uv's resolution of a resolver input, and the facts passed to uv."""

    resolution: UvResolution
    known: Knowledge

    accounts: Mapping[str, str]
    """The reason why uv could not select a newer release, by package."""


class RefusedInput(Value):
    """uv's conflict for a resolver input, and the facts passed to uv."""

    conflict: Conflict
    known: Knowledge


class Resolver:
    """A resolver for one target that reads each page and wheel only once."""

    def __init__(self, resolver_input: ResolverInput, session: Session) -> None:
        self.resolver_input = resolver_input
        sources = session.sources.filter_by_markers(resolver_input.markers)
        family = resolver_input.catalog.family
        links = find_family_links(sources, session.client, family)
        sources = replace(sources, family_links=links)
        self.session = replace(session, sources=sources)
        self.index = PackageIndex(resolver_input, self.session)
        self.index.read_ahead()
        self.inspector = ResolutionInspector(resolver_input, self.index)
        self._runs = 0
        nested = find_nested_requirements(
            resolver_input.requirements, self.session.folder, sources.no_sources
        )
        self._nested = tuple(dict.fromkeys(nested))
        # Check this first: resolving a package from the wrong index can run its code.
        counting = filter(resolver_input.is_applicable, resolver_input.requirements)
        by_name = {one.name for one in counting if not one.url}
        by_name -= requirement_names(self._nested)
        check_required_urls(dict.fromkeys(by_name, ()), sources)

    def resolve(self) -> ResolvedInput | RefusedInput:
        """Return the best resolution, with the latest possible releases.

        Raises:
            InstallationError: uv fails for a reason other than the request.
        """
        resolver_input = self.resolver_input
        known = Knowledge(requirements=self._nested)
        outcome = self._run_until_stable(resolver_input, known)
        if isinstance(outcome, RefusedInput):
            return outcome
        if not resolver_input.alternative.keeps_torch:
            return self._improve(outcome)
        locked = resolver_input.alternative.preferences
        is_open = any(
            fact.builds is not None or locked.get(fact.package) != fact.version
            for fact in outcome.known.facts.values()
        )
        versions = outcome.resolution.versions
        is_behind = any(
            newest and parse_public_version(versions[package]) < newest
            for package, newest in self.index.newest_releases().items()
            if package in versions and package not in locked
        )
        if is_open or is_behind:
            error = NoBuildError("torch-kept", "another torch may allow newer packages")
            return RefusedInput(Conflict(error), outcome.known)
        return outcome

    def _run_until_stable(
        self,
        resolver_input: ResolverInput,
        known: Knowledge,
        previous: UvResolution | None = None,
    ) -> ResolvedInput | RefusedInput:
        """Run uv until its resolution results in no new facts."""
        for _ in range(TURNS):
            self._runs += 1
            outcome = resolve_once(resolver_input, known, self.index, previous)
            if isinstance(outcome, Knowledge):
                known |= outcome
            elif isinstance(outcome, UvResolution):
                grown = collect_facts(outcome, known, self.inspector)
                if grown.facts_for_uv == known.facts_for_uv:
                    return ResolvedInput(outcome, grown, {})
                known, previous = grown, outcome
            elif known.decided_first:
                # Other versions of a package may not require these dependencies.
                known |= Knowledge(after_torch=frozenset(known.decided_first))
            elif any(fact.is_about_files for fact in known.facts.values()):
                # Programs that do not use torch may share files with its packages.
                known = known.without_shared_files()
            else:
                return RefusedInput(outcome, known)
        message = (
            f"no compatible versions found after {TURNS} attempts: too many candidates "
            "require another CUDA version or lack code for these GPUs"
        )
        error = NoBuildError(
            "search-ended", message, hint="Pin versions that are known to work"
        )
        return RefusedInput(Conflict(error), known)

    # Newer releases.

    def _improve(self, best: ResolvedInput) -> ResolvedInput | RefusedInput:
        """Try to resolve newer releases, with a lower bound for each.

        A mirror that lists torch without its companions is rejected, because only
        programs that are years old do not require them.
        """
        if not self._find_newer_releases(best):
            return self._try_backends(best)
        accounts: dict[str, str] = {}
        for package, newest in self._find_newer_releases(best).items():
            selected = best.resolution.versions[package]
            # uv may select torch before a package that torch then makes much older.
            for limit in (f">={newest}", f">{parse_public_version(selected)}"):
                if self._runs >= (RUNS if best.known.is_empty else RUNS_WITH_FACTS):
                    break
                bound = Constraint.of(package, limit)
                other = replace(self.resolver_input, bounds=(bound,))
                outcome = self._run_until_stable(other, best.known, best.resolution)
                best = self._choose_better(best, outcome)
                if isinstance(outcome, ResolvedInput):
                    break
                if outcome.conflict.error.code == FAMILY_UNLISTED:
                    self.index.read(COMPANIONS)
                    if not any(map(self.index.read_pages().get, COMPANIONS)):
                        return outcome
                accounts.setdefault(package, outcome.conflict.why)
        return replace(self._try_backends(best), accounts=accounts)

    def _try_backends(self, best: ResolvedInput) -> ResolvedInput:
        """Try later torch versions of each backend, without older programs.

        After several conflicts, uv decides CUDA's libraries before torch, and skips
        builds that require other libraries. The number of backends limits the runs.
        """
        resolution = best.resolution
        programs = [
            Constraint.of(package, f">={parse_public_version(version)}")
            for package, version in resolution.versions.items()
            if package in self.index.newest_releases()
        ]
        for bound in limit_backends(self.index, self._find_later_builds(best)):
            other = replace(self.resolver_input, bounds=(bound, *programs))
            outcome = self._run_until_stable(other, best.known, resolution)
            if isinstance(outcome, ResolvedInput):
                return outcome
        return best

    def _find_later_builds(self, best: ResolvedInput) -> list[str]:
        """Return builds of later torch versions that all packages allow."""
        resolution = best.resolution
        if "torch" in self.resolver_input.alternative.preferences:
            return []
        limits = [
            one
            for package in resolution.versions
            for one in self.inspector.find_dependencies(package, resolution)
            if one.name == "torch"
        ]
        return [
            version
            for version, build in self.index.builds().items()
            if build.torch > resolution.build.torch
            and not best.known.rejects(resolution.versions, version)
            and all(one.allows(build.torch) for one in limits)
        ]

    def find_newest_release(self, package: str, known: Knowledge) -> Version | None:
        """Return the latest release of a program that no fact excludes.

        If the release has a wheel, its METADATA must allow a build of torch.
        """
        listed = self.index.newest_releases()[package]
        wheels = self.index.find_releases(package)
        excluded = known.find_excluded_versions(package)
        if listed not in wheels and str(listed) not in excluded:
            return listed
        newest = [version for version in wheels if str(version) not in excluded]
        for version in newest[:RELEASES_READ]:
            if self.inspector.find_allowed_builds(wheels[version]):
                return version
        return next(iter(newest), listed)

    def _find_newer_releases(self, resolved: ResolvedInput) -> dict[str, Version]:
        """Return the newer releases of programs that may be possible.

        Programs at their latest release determine the packages that they pin, as does
        the latest torch.
        """
        resolution, known = resolved.resolution, resolved.known
        behind = {}
        fixed = []
        for package, listed in self.index.newest_releases().items():
            version = resolution.versions.get(package)
            is_kept = package in self.resolver_input.alternative.preferences
            if not version or not listed or is_kept or is_library_of_torch(package):
                continue
            selected = parse_public_version(version)
            newest = None
            if listed > selected:
                newest = self.find_newest_release(package, known)
            if newest and parse_public_version(newest) > selected:
                behind[package] = parse_public_version(newest)
            else:
                fixed.append(package)
        if resolution.build.torch == max(self.resolver_input.torches):
            fixed.append("torch")
        own = self.index.names()
        # The list grows while it is read.
        for package in fixed:
            for one in self.inspector.find_dependencies(package, resolution):
                newest = behind.get(one.name)
                if newest and not one.allows(newest):
                    del behind[one.name]
                if one.is_exact and one.name not in {*own, *fixed}:
                    fixed.append(one.name)
        return behind

    def _choose_better(
        self, first: ResolvedInput, second: ResolvedInput | RefusedInput
    ) -> ResolvedInput:
        """Return the better of two resolutions, with the facts from both.

        The second resolution is better if a requested package is newer and none is
        older. A pre-release counts as older than every final release.
        """
        known = second.known
        if isinstance(second, RefusedInput):
            return replace(first, known=known)
        kept = self.resolver_input.alternative.preferences
        changes = [
            (_rank(package, first.resolution), _rank(package, second.resolution))
            for package in self.index.newest_releases()
            if package not in kept
        ]
        is_newer = any(after > before for before, after in changes)
        is_older = any(after < before for before, after in changes)
        return second if is_newer and not is_older else replace(first, known=known)


def _rank(package: str, resolution: UvResolution) -> tuple[bool, Version]:
    """Return the rank of a package's version; a missing package is lowest."""
    version = parse_public_version(resolution.versions.get(package, "0.dev0"))
    return not version.is_prerelease, version
