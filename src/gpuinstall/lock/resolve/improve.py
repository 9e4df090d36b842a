"""Request newer releases from uv.

Its answer is better, or its conflict explains why the packages are not newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.base.requirement import Constraint
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS
from gpuinstall.lock.resolve.found import Found, Refused
from gpuinstall.lock.resolve.question import is_library_of_torch
from gpuinstall.lock.resolve.settle import settle
from gpuinstall.lock.uv.conflict import Conflict

if TYPE_CHECKING:
    from gpuinstall.lock.resolve.lane import Lane

ALONE = 3
"""Maximum number of packages for which a newer release is requested alone."""

RELEASES_READ = 24
"""Maximum number of releases whose METADATA is checked for compatibility."""


def improve(best: Found, lane: Lane) -> Found | Refused:
    """Request newer releases from uv, all at once, and then one by one.

    A mirror that lists torch without its companions is rejected, because only programs
    that are years old do not require them.
    """
    behind = _find_newer_releases(best, lane)
    conflicts = dict[str, Conflict]()
    for attempt in _list_attempts(behind):
        # A previous run may have selected some of these releases.
        later = {
            package: newest
            for package, newest in attempt.items()
            if _is_older(best.find_version(package), newest)
        }
        if not later:
            continue
        outcome = _request(later, best, lane)
        if isinstance(outcome, Refused) and len(later) == 1:
            conflicts |= dict.fromkeys(later, outcome.conflict)
            best = replace(best, known=outcome.known)
            if _lacks_companions(outcome.conflict, lane):
                return outcome
            # After facts or conflicts, uv skips releases that run.
            if "torch" in later or not best.known.is_empty:
                outcome = _request(later, best, lane, any_later=True)
        if isinstance(outcome, Found):
            best = outcome
        else:
            best = replace(best, known=outcome.known)
    return replace(best, conflicts=conflicts)


def _list_attempts(behind: Mapping[str, Version]) -> Iterator[Mapping[str, Version]]:
    """Yield the newer releases to request: all, then one by one."""
    if len(behind) > 1:
        yield behind
    for package in [*behind][:ALONE]:
        yield {package: behind[package]}


def _is_older(selected: Version | None, newest: Version) -> bool:
    return selected is None or selected < newest


def _request(
    later: Mapping[str, Version], best: Found, lane: Lane, *, any_later: bool = False
) -> Found | Refused:
    """Request newer releases, and keep the other ones.

    Args:
        later: The newer releases.
        best: The best answer so far.
        lane: The lane of the answer.
        any_later: Whether to request any later releases instead of these.
    """
    bounds = []
    for package in {**lane.releases.newest_releases(), **later}:
        selected = best.find_version(package)
        newest = later.get(package)
        if newest and any_later:
            bounds.append(Constraint.of(package, f">{selected}"))
        elif newest:
            bounds.append(Constraint.of(package, f">={newest}"))
        elif selected and not selected.is_prerelease:
            bounds.append(Constraint.of(package, f">={selected}"))
    question = replace(lane.question, bounds=tuple(bounds))
    return settle(question, best.known, lane, best.answer)


def _lacks_companions(conflict: Conflict, lane: Lane) -> bool:
    """Return whether the index lists torch without its companions."""
    if not conflict.unlisted:
        return False
    lane.pages.read(COMPANIONS)
    return not any(map(lane.pages.read_pages().get, COMPANIONS))


def _find_newer_releases(best: Found, lane: Lane) -> dict[str, Version]:
    """Return possible newer releases of programs and of torch.

    Programs at their latest release determine the packages that they pin, as does the
    latest torch.
    """
    behind = dict[str, Version]()
    fixed = []
    for package in _list_open_programs(best, lane):
        newest = _find_newer_release(package, best, lane)
        if newest:
            behind[package] = newest
        else:
            fixed.append(package)
    later = _find_later_torch(best)
    if later:
        behind["torch"] = later
    elif best.answer.build.torch == max(best.question.torches):
        fixed.append("torch")
    # The list grows while it is read.
    for package in fixed:
        version = best.answer.versions.get(package, "")
        for one in best.known.log.find_dependencies(package, version):
            newest = behind.get(one.name)
            if newest and not one.allows(newest):
                del behind[one.name]
            if one.is_exact and one.name not in {*best.bound, *fixed}:
                fixed.append(one.name)
    return behind


def _list_open_programs(best: Found, lane: Lane) -> list[str]:
    """Return the requested programs for which uv selected the release."""
    return [
        package
        for package, listed in lane.releases.newest_releases().items()
        if listed
        and package in best.answer.versions
        and package not in best.question.preferences
        and not is_library_of_torch(package)
    ]


def _find_newer_release(package: str, best: Found, lane: Lane) -> Version | None:
    """Return the latest release that no fact excludes, if it is newer.

    If the release has a wheel, its METADATA must allow a build of torch.
    """
    listed = lane.releases.newest_releases()[package]
    selected = best.find_version(package)
    if not selected or not listed or listed <= selected:
        return None
    wheels = lane.releases.find_releases(package)
    excluded = best.known.find_excluded_versions(package)
    releases = [one for one in {listed: None, **wheels} if str(one) not in excluded]
    for version in releases[:RELEASES_READ]:
        is_sdist = version not in wheels
        if is_sdist or lane.find_allowed_builds(wheels[version]):
            public = parse_public_version(version)
            return public if public > selected else None
    return None


def _find_later_torch(best: Found) -> Version | None:
    """Return the newest torch that all packages of an answer allow."""
    answer, known = best.answer, best.known
    if "torch" in best.question.preferences:
        return None
    limits = known.log.find_demands("torch", answer.versions)
    later = [
        build.torch
        for version, build in best.builds.items()
        if build.torch > answer.build.torch
        and not known.rejects(answer.versions, version)
        and all(one.allows(build.torch) for one in limits)
    ]
    return max(later, default=None)
