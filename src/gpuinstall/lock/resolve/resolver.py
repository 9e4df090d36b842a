"""Resolve one target: run uv and inspect wheels until there are no new facts.

Then newer releases of requested packages are requested from uv. Its answer is better, or
its conflict explains why the packages are not newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.advice import make_change, make_shell_line
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Constraint, Requirement, requirement_names
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, PAIRED
from gpuinstall.catalog.listing import find_family_links
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.request.project import RemoteArchives, find_nested_requirements
from gpuinstall.lock.resolve.collect_facts import collect_facts
from gpuinstall.lock.resolve.found import (
    TORCH_ADDED,
    Found,
    Newest,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.inspect import ResolutionInspector, find_sdists
from gpuinstall.lock.resolve.knowledge import Knowledge, UvResolution
from gpuinstall.lock.resolve.package_index import PackageIndex
from gpuinstall.lock.resolve.resolver_input import (
    ResolverInput,
    is_library_of_torch,
)
from gpuinstall.lock.resolve.run_uv import resolve_once
from gpuinstall.lock.uv.conflict import Conflict, IncompatibleWheel
from gpuinstall.lock.uv.errors import find_failed_package
from gpuinstall.lock.uv.fetch import read_remote_archive
from gpuinstall.lock.uv.resolution import check_required_urls
from gpuinstall.sources.session import Session
from gpuinstall.sources.sources import check_reported

if TYPE_CHECKING:
    from gpuinstall.catalog import Wheel

TURNS = 12
"""Maximum number of uv runs with new facts for one input."""

ALONE = 3
"""Maximum number of packages for which a newer release is requested alone."""

RELEASES_READ = 24
"""Maximum number of releases whose METADATA is checked for compatibility."""


class Resolver:
    """A resolver for one target that reads each page and wheel only once."""

    def __init__(self, resolver_input: ResolverInput, session: Session) -> None:
        self.resolver_input = resolver_input
        self.is_strict = resolver_input.alternative.kept is not None
        """Whether to refuse a resolution that another torch may improve."""
        sources = session.sources.filter_by_markers(resolver_input.markers)
        family = resolver_input.catalog.family
        links = find_family_links(sources, session.client, family)
        sources = replace(sources, family_links=links)
        self.session = replace(session, sources=sources)
        self.index = PackageIndex(resolver_input, self.session)
        self.inspector = ResolutionInspector(resolver_input, self.index)
        self._nested = self._find_nested_requirements()
        # Check this first: resolving a package from the wrong index can run its code.
        counting = filter(resolver_input.is_applicable, resolver_input.requirements)
        by_name = {one.name for one in counting if not one.url}
        by_name -= requirement_names(self._nested)
        check_required_urls(dict.fromkeys(by_name, ()), sources)

    def _find_nested_requirements(self) -> tuple[Requirement, ...]:
        """Return the paths that requested projects require.

        uv expands variables in METADATA, so METADATA of all URLs is checked.
        """
        one = self.resolver_input
        sources = self.session.sources
        read = partial(read_remote_archive, session=self.session)
        remote = RemoteArchives(read, one.markers)
        find = partial(
            find_nested_requirements,
            folder=self.session.folder,
            no_sources=sources.uv.no_sources,
            remote=remote,
        )
        requested = [*filter(one.is_applicable, one.requirements)]
        limits = [*filter(one.is_applicable, (*one.constraints, *sources.uv.overrides))]
        for requirement in (*requested, *limits):
            check_reported(sources, requirement)
        # Limits add no requirements.
        _ = [*find(limits)]
        return tuple(dict.fromkeys(find(requested)))

    def resolve(self) -> Found | Refused:
        """Return the best answer, with the latest possible releases.

        Raises:
            InstallationError: uv fails for a reason other than the request.
        """
        known = Knowledge(requirements=self._nested)
        outcome = self._settle(self.resolver_input, known)
        if isinstance(outcome, Refused):
            return self._complete_refusal(outcome)
        if self.is_strict:
            return self._keep_torch(outcome)
        outcome = self._improve(outcome)
        if isinstance(outcome, Refused):
            return outcome
        outcome = self._keep_project_versions(outcome)
        if isinstance(outcome, Refused):
            return outcome
        return self._complete(outcome)

    def _keep_project_versions(self, found: Found) -> Found | Refused:
        """Return an answer with an added torch and all locked versions."""
        locked = self.resolver_input.lock_request.request.preferred
        versions = found.answer.versions
        changed = [
            one
            for one in locked
            if one.name in versions and not one.allows(versions[one.name])
        ]
        if not changed or not is_torch_added(
            self.resolver_input, found.log, versions.items()
        ):
            return found
        pinned = replace(self.resolver_input, bounds=locked)
        outcome = self._settle(pinned, found.known, found.answer)
        if isinstance(outcome, Found):
            return outcome
        names = join_names([one.text for one in changed])
        error = NoBuildError(
            TORCH_ADDED,
            f"torch, which gpuinstall adds to every request, is incompatible with {names} of the project's lock",
            why="no package of the project requires torch",
            hint=(
                make_shell_line("uv sync", "installs the project without torch"),
                make_change("torch", note="changes the locked versions"),
            ),
        )
        return self._refuse(self.resolver_input, Conflict(error), outcome.known)

    def _keep_torch(self, found: Found) -> Found | Refused:
        """Return an answer with the locked torch if none may be better."""
        locked = self.resolver_input.alternative.preferences
        is_open = any(
            fact.builds is not None or locked.get(fact.package) != fact.version
            for fact in found.known.facts.values()
        )
        versions = found.answer.versions
        is_behind = any(
            newest and parse_public_version(versions[package]) < newest
            for package, newest in self.index.newest_releases().items()
            if package in versions and package not in locked
        )
        if is_open or is_behind:
            error = NoBuildError("torch-kept", "another torch may allow newer packages")
            return self._refuse(self.resolver_input, Conflict(error), found.known)
        return self._complete(found)

    def _settle(
        self,
        resolver_input: ResolverInput,
        known: Knowledge,
        previous: UvResolution | None = None,
    ) -> Found | Refused:
        """Run uv until its resolution results in no new facts."""
        for _ in range(TURNS):
            outcome = resolve_once(resolver_input, known, self.index, previous)
            if isinstance(outcome, Knowledge):
                known |= outcome
            elif isinstance(outcome, UvResolution):
                grown = collect_facts(outcome, known, self.inspector)
                if grown.facts_for_uv == known.facts_for_uv:
                    return self._find(outcome, grown)
                known, previous = grown, outcome
            elif known.decided_first:
                # Other versions of a package may not require these dependencies.
                known |= Knowledge(after_torch=frozenset(known.decided_first))
            elif not self.is_strict and any(
                fact.is_about_files for fact in known.facts.values()
            ):
                # Programs that do not use torch may share files with its packages.
                known = known.without_shared_files()
            else:
                return self._refuse(resolver_input, outcome, known)
        message = (
            f"no compatible versions found after {TURNS} attempts: too many candidates "
            "require another CUDA version or lack code for these GPUs"
        )
        error = NoBuildError(
            "search-ended", message, hint="Pin versions that are known to work"
        )
        return self._refuse(resolver_input, Conflict(error), known)

    def _find(self, answer: UvResolution, known: Knowledge) -> Found:
        return Found(
            self.resolver_input,
            answer,
            known,
            self.index.log,
            self.index.builds(),
            self.index.names(),
        )

    def _refuse(
        self, resolver_input: ResolverInput, conflict: Conflict, known: Knowledge
    ) -> Refused:
        bounds = frozenset(one.text for one in resolver_input.bounds)
        conflict = replace(conflict, bounds=bounds)
        return Refused(
            resolver_input, conflict, known, self.index.log, self.index.builds()
        )

    # Newer releases.

    def _improve(self, best: Found) -> Found | Refused:
        """Request newer releases from uv, all at once, and then one by one.

        A mirror that lists torch without its companions is rejected, because only
        programs that are years old do not require them.
        """
        behind = self._find_newer_releases(best)
        conflicts = dict[str, Conflict]()
        for attempt in _list_attempts(behind):
            later = {
                package: newest
                for package, newest in attempt.items()
                if _is_older(best.find_version(package), newest)
            }
            # A previous run may have selected these releases.
            if not later:
                continue
            outcome = self._request(later, best)
            is_alone = len(later) == 1
            if isinstance(outcome, Refused) and is_alone:
                conflicts |= dict.fromkeys(later, outcome.conflict)
                best = replace(best, known=outcome.known, log=outcome.log)
                if self._lacks_companions(outcome.conflict):
                    return outcome
                # After facts or conflicts, uv skips releases that run.
                if "torch" in later or not best.known.is_empty:
                    outcome = self._request(later, best, any_later=True)
            if isinstance(outcome, Found):
                best = outcome
            else:
                best = replace(best, known=outcome.known, log=outcome.log)
        return replace(best, conflicts=conflicts)

    def _request(
        self, later: Mapping[str, Version], best: Found, *, any_later: bool = False
    ) -> Found | Refused:
        """Request newer releases, and keep the other ones.

        Args:
            later: The newer releases.
            best: The best answer so far.
            any_later: Whether to request any later releases instead of these.
        """
        bounds = tuple(self._list_bounds(later, best, any_later=any_later))
        other = replace(self.resolver_input, bounds=bounds)
        return self._settle(other, best.known, best.answer)

    def _lacks_companions(self, conflict: Conflict) -> bool:
        """Return whether the index lists torch without its companions."""
        if not conflict.unlisted:
            return False
        self.index.read(COMPANIONS)
        return not any(map(self.index.read_pages().get, COMPANIONS))

    def _list_bounds(
        self, later: Mapping[str, Version], best: Found, *, any_later: bool
    ) -> Iterator[Constraint]:
        """Yield lower bounds for newer releases and for the others."""
        for package in {**self.index.newest_releases(), **later}:
            selected = best.find_version(package)
            newest = later.get(package)
            if newest and any_later:
                yield Constraint.of(package, f">{selected}")
            elif newest:
                yield Constraint.of(package, f">={newest}")
            elif selected and not selected.is_prerelease:
                yield Constraint.of(package, f">={selected}")

    def _find_later_torch(self, best: Found) -> Version | None:
        """Return the newest torch that all packages of an answer allow."""
        answer = best.answer
        if "torch" in self.resolver_input.alternative.preferences:
            return None
        limits = best.log.find_demands("torch", answer.versions)
        later = [
            build.torch
            for version, build in best.builds.items()
            if build.torch > answer.build.torch
            and not best.known.rejects(answer.versions, version)
            and all(one.allows(build.torch) for one in limits)
        ]
        return max(later, default=None)

    def _find_newer_releases(self, best: Found) -> dict[str, Version]:
        """Return possible newer releases of programs and of torch.

        Programs at their latest release determine the packages that they pin, as does
        the latest torch.
        """
        behind = dict[str, Version]()
        fixed = []
        for package in self._list_open_programs(best):
            newest = self._find_newer_release(package, best)
            if newest:
                behind[package] = newest
            else:
                fixed.append(package)
        later = self._find_later_torch(best)
        if later:
            behind["torch"] = later
        elif best.answer.build.torch == max(self.resolver_input.torches):
            fixed.append("torch")
        # The list grows while it is read.
        for package in fixed:
            for one in self.inspector.find_dependencies(package, best.answer):
                newest = behind.get(one.name)
                if newest and not one.allows(newest):
                    del behind[one.name]
                if one.is_exact and one.name not in {*best.bound, *fixed}:
                    fixed.append(one.name)
        return behind

    def _list_open_programs(self, best: Found) -> list[str]:
        """Return the requested programs for which uv selected the release."""
        kept = self.resolver_input.alternative.preferences
        return [
            package
            for package, listed in self.index.newest_releases().items()
            if listed
            and package in best.answer.versions
            and package not in kept
            and not is_library_of_torch(package)
        ]

    def _find_newer_release(self, package: str, best: Found) -> Version | None:
        """Return the latest release that no fact excludes, if it is newer.

        If the release has a wheel, its METADATA must allow a build of torch.
        """
        listed = self.index.newest_releases()[package]
        selected = best.find_version(package)
        if not selected or not listed or listed <= selected:
            return None
        wheels = self.index.find_releases(package)
        excluded = best.known.find_excluded_versions(package)
        releases = [one for one in {listed: None, **wheels} if str(one) not in excluded]
        for version in releases[:RELEASES_READ]:
            is_sdist = version not in wheels
            if is_sdist or self.inspector.find_allowed_builds(wheels[version]):
                public = parse_public_version(version)
                return public if public > selected else None
        return None

    # The facts for an explanation.

    def _complete(self, found: Found) -> Found:
        """Return an answer with the facts that its explanation needs."""
        answer = found.answer
        return replace(
            found,
            newest=self._find_newest(found),
            inspected=self.inspector.find_installed(answer),
            unread=self.inspector.find_unread(answer),
            lacking=self.inspector.find_lacking_libraries(answer),
        )

    def _complete_refusal(self, refused: Refused) -> Refused:
        """Return a refusal with the facts that its explanation needs."""
        unlisted = refused.conflict.unlisted
        is_listed = unlisted in self.index.listed()
        listed = {
            name: tuple(wheel.version for wheel in wheels)
            for name, wheels in self.index.read_pages().items()
            if name in self.resolver_input.requested - PAIRED
        }
        refused = replace(
            refused,
            listed=listed,
            is_listed=is_listed and not self.session.sources.uv.exclude_newer,
        )
        wheel = refused.conflict.incompatible
        packages = [*map(find_failed_package, refused.known.unbuildable.values())]
        if wheel and wheel.glibc:
            packages.insert(0, wheel.package)
        for package in packages:
            demands = refused.log.find_demands(package)
            newest = max(self.index.find_releases(package), default=Version("0"))
            one = self.index.find_wheel_for_newer_glibc(package, newest, demands)
            if one:
                wheel = _create_glibc_wheel(one)
                break
        return replace(refused, incompatible=wheel)

    def _find_newest(self, found: Found) -> dict[str, Newest]:
        """Return the latest releases of packages that may be older."""
        listed = self.index.newest_releases()
        newest: dict[str, Newest] = {}
        for package in dict.fromkeys([*listed, *find_sdists(found.answer)]):
            selected = found.find_version(package)
            if selected:
                one = self._find_limit(package, selected, listed.get(package), found)
                newest |= {package: one} if one else {}
        return newest

    def _find_limit(
        self, package: str, selected: Version, listed: Version | None, found: Found
    ) -> Newest | None:
        """Return a later release, with its requirement of torch or glibc."""
        demands = found.log.find_demands(package, found.answer.versions)
        wheel = self.index.find_wheel_for_newer_glibc(package, selected, demands)
        if wheel:
            torch = self._find_torch_demand(wheel)
            if torch is None:
                return Newest(wheel.version, glibc=_find_glibc(wheel))
            return Newest(max(wheel.version, listed or wheel.version), torch=torch)
        if listed is None or listed <= selected:
            return None
        wheel = self.index.find_releases(package).get(listed)
        # The METADATA of a library or a locked package does not change the answer.
        is_unread = is_library_of_torch(package) or found.is_kept(package)
        if wheel is None or is_unread:
            return Newest(listed)
        return Newest(listed, torch=self._find_torch_demand(wheel))

    def _find_torch_demand(self, wheel: Wheel) -> Requirement | None:
        """Return a wheel's requirement of torch, if no build satisfies it."""
        torches = self.resolver_input.torches
        for one in self.index.read_metadata_requirements(wheel):
            if one.name == "torch" and not any(map(one.allows, torches)):
                return one
        return None


def _list_attempts(behind: Mapping[str, Version]) -> Iterator[Mapping[str, Version]]:
    """Yield the newer releases to request: all, then one by one."""
    if len(behind) > 1:
        yield behind
    for package in [*behind][:ALONE]:
        yield {package: behind[package]}


def _is_older(selected: Version | None, newest: Version) -> bool:
    return selected is None or selected < newest


def _create_glibc_wheel(wheel: Wheel) -> IncompatibleWheel:
    return IncompatibleWheel(wheel.package, str(wheel.version), _find_glibc(wheel))


def _find_glibc(wheel: Wheel) -> str:
    return find_required_glibc([(wheel.package, wheel.filename)], least="2.5") or ""
