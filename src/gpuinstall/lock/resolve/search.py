"""Ask uv and inspect wheels until there is no new fact.

Then newer releases of requested packages are requested from uv. Its answer is better, or
its conflict explains why the packages are not newer.
"""

from __future__ import annotations

from collections.abc import Mapping

from packaging.version import Version

from gpuinstall.base.advice import make_change, make_shell_line
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Constraint, Requirement
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.resolve.ask import ask
from gpuinstall.lock.resolve.facts import (
    SEARCH_ENDED,
    TORCH_ADDED,
    Answer,
    Facts,
    Found,
    Newest,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.inspect import find_sdists, inspect
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.question import Question, is_library_of_torch
from gpuinstall.lock.resolve.reading import Reading, open_scope
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import find_failed_package

TURNS = 12
"""Maximum number of uv runs with new facts for one question."""

ALONE = 3
"""Maximum number of packages for which a newer release is requested alone."""

RELEASES_READ = 24
"""Maximum number of releases whose METADATA is checked for compatibility."""


def search(lane: Lane) -> Found | Refused:
    """Return the best answer of a lane, with the latest possible releases.

    Raises:
        InstallationError: uv fails for a reason other than the request.
    """
    # Check URLs first: resolving a package from the wrong index can run its code.
    known = Facts(requirements=lane.find_nested_requirements())
    outcome = _settle(lane.question, known, lane)
    steps = [_improve, _keep_project_versions]
    for step in [_keep_torch] if lane.question.is_strict else steps:
        if isinstance(outcome, Found):
            outcome = step(outcome, lane)
    if isinstance(outcome, Refused):
        return _complete_refusal(outcome, lane)
    return _complete(outcome, lane)


def _keep_torch(found: Found, lane: Lane) -> Found | Refused:
    """Return an answer with the locked torch if none may be better."""
    locked, versions = lane.question.preferences, found.answer.versions
    is_open = any(
        fact.builds is not None or locked.get(fact.package) != fact.version
        for fact in found.known.facts.values()
    )
    is_behind = any(
        newest and parse_public_version(versions[package]) < newest
        for package, newest in lane.newest_releases().items()
        if package in versions and package not in locked
    )
    if not (is_open or is_behind):
        return found
    error = NoBuildError("torch-kept", "another torch may allow newer packages")
    return _refuse(lane.question, Conflict(error), found.known)


def _keep_project_versions(found: Found, lane: Lane) -> Found | Refused:
    """Return an answer with an added torch and all locked versions."""
    question, answer = lane.question, found.answer
    locked = question.lock_request.request.preferred
    changed = [
        one
        for one in locked
        if one.name in answer.versions and not one.allows(answer.versions[one.name])
    ]
    log = found.known.log
    if not changed or not is_torch_added(question, log, answer.versions.items()):
        return found
    pinned = replace(question, bounds=locked)
    outcome = _settle(pinned, found.known, lane, answer)
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
    return _refuse(question, Conflict(error), outcome.known)


def _settle(
    question: Question, known: Facts, lane: Lane, previous: Answer | None = None
) -> Found | Refused:
    """Ask uv until its answer results in no new facts."""
    for _ in range(TURNS):
        outcome, known = ask(question, known, lane, previous)
        if isinstance(outcome, Facts):
            known |= outcome
        elif isinstance(outcome, Answer):
            grown = inspect(outcome, known, lane)
            if grown.facts_for_uv == known.facts_for_uv:
                bound = lane.pages.names()
                return Found(lane.question, outcome, grown, lane.builds, bound)
            known, previous = grown, outcome
        elif known.decided_first:
            # Other versions of a package may not require these dependencies.
            known |= Facts(after_torch=frozenset(known.decided_first))
        elif not question.is_strict and any(
            fact.is_about_files for fact in known.facts.values()
        ):
            # Programs that do not use torch may share files with its packages.
            known = known.without_shared_files()
        else:
            return _refuse(question, outcome, known)
    message = f"no compatible versions were found after {TURNS} attempts"
    error = NoBuildError(SEARCH_ENDED, message)
    return _refuse(question, Conflict(error), known)


def _refuse(question: Question, conflict: Conflict, known: Facts) -> Refused:
    """Return the refusal of a question, with its lower bounds."""
    bounds = frozenset(one.text for one in question.bounds)
    return Refused(question, replace(conflict, bounds=bounds), known)


# Newer releases.


def _improve(best: Found, lane: Lane) -> Found | Refused:
    """Request newer releases from uv, all at once, and then one by one.

    A mirror that lists torch without its companions is rejected.
    """
    behind = _find_newer_releases(best, lane)
    conflicts = dict[str, Conflict]()
    alone = [{package: newest} for package, newest in behind.items()]
    for attempt in ([behind] if len(behind) > 1 else []) + alone[:ALONE]:
        # A previous run may have selected some of these releases.
        later = {
            package: f">={newest}"
            for package, newest in attempt.items()
            if (best.find_version(package) or Version("0")) < newest
        }
        if not later:
            continue
        outcome = _request(later, best, lane)
        if isinstance(outcome, Refused) and len(later) == 1:
            conflicts |= dict.fromkeys(later, outcome.conflict)
            best = replace(best, known=outcome.known)
            if outcome.conflict.unlisted:
                lane.pages.read(COMPANIONS)
                # Only programs that are years old do not require companions of torch.
                if not any(map(lane.pages.read_pages().get, COMPANIONS)):
                    return outcome
            # After facts or conflicts, uv skips releases that run.
            if "torch" in later or not best.known.is_empty:
                any_later = {one: f">{best.find_version(one) or 0}" for one in later}
                outcome = _request(any_later, best, lane)
        if isinstance(outcome, Found):
            best = outcome
        else:
            best = replace(best, known=outcome.known)
    return replace(best, conflicts=conflicts)


def _request(later: Mapping[str, str], best: Found, lane: Lane) -> Found | Refused:
    """Request newer releases, and keep the other ones.

    Args:
        later: The limits of the newer releases.
        best: The best answer so far.
        lane: The lane of the answer.
    """
    selected = {one: best.find_version(one) for one in lane.newest_releases()}
    floors = {
        package: f">={version}"
        for package, version in selected.items()
        if version and not version.is_prerelease
    }
    limits = {**floors, **later}.items()
    bounds = tuple(Constraint.of(package, limit) for package, limit in limits)
    question = replace(lane.question, bounds=bounds)
    outcome = _settle(question, best.known, lane, best.answer)
    if isinstance(outcome, Found):
        newer = filter(None, map(outcome.find_version, later))
        # Without a final release that can be used, uv selects a pre-release.
        if any(version.is_prerelease for version in newer):
            return replace(best, known=outcome.known)
    return outcome


def _find_newer_releases(best: Found, lane: Lane) -> dict[str, Version]:
    """Return possible newer releases of programs and of torch.

    Programs at their latest release determine the packages that they pin, as does the
    latest torch.
    """
    behind = dict[str, Version]()
    fixed = []
    for package, listed in _find_open_programs(best, lane).items():
        newest = _find_newer_release(package, listed, best, lane)
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


def _find_open_programs(best: Found, lane: Lane) -> dict[str, Version]:
    """Return the programs for which uv selected the release, with the latest.

    They are the requested programs and dependencies whose sdist uv selected, maybe
    because later wheels require another torch.
    """
    listed = lane.newest_releases()
    if lane.session.sources.uv.selects_latest:
        sdists = find_sdists(best.answer)
        listed = {one: _find_latest_wheel(one, best, lane) for one in sdists} | listed
    return {
        package: newest
        for package, newest in listed.items()
        if newest
        and package in best.answer.versions
        and package not in best.question.preferences
        and not is_library_of_torch(package)
    }


def _find_latest_wheel(package: str, best: Found, lane: Lane) -> Version | None:
    """Return the latest release with a wheel that all requirements allow."""
    demands = best.known.log.find_demands(package, best.answer.versions)
    for version in lane.find_releases(package):
        if all(one.allows(version) for one in demands):
            return version
    return None


def _find_newer_release(
    package: str, listed: Version, best: Found, lane: Lane
) -> Version | None:
    """Return the latest release that no fact excludes, if it is newer.

    If the release has a wheel, its METADATA must allow a build of torch.
    """
    selected = best.find_version(package)
    if not selected or listed <= selected:
        return None
    wheels = lane.find_releases(package)
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


# The facts that an explanation needs.


def _complete(found: Found, lane: Lane) -> Found:
    """Return an answer with the facts that its explanation needs."""
    scope = open_scope(found.answer, found.known, lane)
    reading = Reading(scope, found.known, lane)
    return replace(
        found,
        newest=_find_newest(found, lane),
        inspected=reading.results,
        unread=reading.find_unread(),
        lacking=reading.find_lacking_libraries(),
    )


def _complete_refusal(refused: Refused, lane: Lane) -> Refused:
    """Return a refusal with the glibc that packages without wheels require."""
    is_listed = refused.conflict.unlisted in lane.pages.listed()
    is_listed = is_listed and not lane.session.sources.uv.exclude_newer
    refused = replace(refused, is_listed=is_listed)
    package, _ = refused.conflict.incompatible
    failed = map(find_failed_package, refused.known.unbuildable.values())
    for one in filter(None, (package, *failed)):
        newest = max(lane.find_releases(one), default=Version("0"))
        demands = refused.known.log.find_demands(one)
        wheel = _find_newer_glibc(one, newest, demands, lane)
        if wheel:
            return replace(refused, glibc=wheel.glibc)
    return refused


def _find_newest(found: Found, lane: Lane) -> dict[str, Newest]:
    """Return the latest releases of packages that may be older."""
    listed = lane.newest_releases()
    newest: dict[str, Newest] = {}
    for package in (*listed, *find_sdists(found.answer)):
        selected = found.find_version(package)
        if selected:
            demands = found.known.log.find_demands(package, found.answer.versions)
            one = _find_newer_glibc(package, selected, demands, lane)
            latest = listed.get(package)
            if latest and latest > (one.version if one else selected):
                one = Newest(latest)
            newest |= {package: one} if one else {}
    return newest


def _find_newer_glibc(
    package: str, selected: Version, demands: list[Requirement], lane: Lane
) -> Newest | None:
    """Return the next release with a wheel for a newer glibc, if any."""
    wheel = lane.find_wheel_for_newer_glibc(package, selected, demands)
    if wheel is None or not lane.find_allowed_builds(wheel):
        return None
    named = [(wheel.package, wheel.filename)]
    return Newest(wheel.version, find_required_glibc(named, least="2.5") or "")
