"""Ask uv and inspect wheels until there is no new fact.

Then newer releases of requested packages are requested from uv. Its answer is better, or
its conflict explains why the packages are not newer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from gpuinstall.base.advice import make_change, make_shell_line
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Constraint, Requirement
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS, PAIRED, Wheel
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.resolve.ask import ask
from gpuinstall.lock.resolve.facts import Answer, Facts
from gpuinstall.lock.resolve.found import (
    SEARCH_ENDED,
    TORCH_ADDED,
    Found,
    Newest,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.inspect import find_sdists, inspect
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.question import Question, is_library_of_torch
from gpuinstall.lock.resolve.reading import Reading, open_scope
from gpuinstall.lock.uv.conflict import Conflict, IncompatibleWheel
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
    locked = lane.question.preferences
    is_open = any(
        fact.builds is not None or locked.get(fact.package) != fact.version
        for fact in found.known.facts.values()
    )
    versions = found.answer.versions
    is_behind = any(
        newest and parse_public_version(versions[package]) < newest
        for package, newest in lane.releases.newest_releases().items()
        if package in versions and package not in locked
    )
    if not is_open and not is_behind:
        return found
    error = NoBuildError("torch-kept", "another torch may allow newer packages")
    return _refuse(lane.question, Conflict(error), found.known, lane)


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
    return _refuse(question, Conflict(error), outcome.known, lane)


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
            return _refuse(question, outcome, known, lane)
    message = f"no compatible versions were found after {TURNS} attempts"
    hint = "Request versions that are known to work"
    error = NoBuildError(SEARCH_ENDED, message, hint=hint)
    return _refuse(question, Conflict(error), known, lane)


def _refuse(
    question: Question, conflict: Conflict, known: Facts, lane: Lane
) -> Refused:
    """Return the refusal of a question, with its lower bounds."""
    bounds = frozenset(one.text for one in question.bounds)
    return Refused(question, replace(conflict, bounds=bounds), known, lane.builds)


# Newer releases.


def _improve(best: Found, lane: Lane) -> Found | Refused:
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
    return _settle(question, best.known, lane, best.answer)


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
    listed = lane.releases.newest_releases()
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
    for version in lane.releases.find_releases(package):
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
    """Return a refusal with the facts that its explanation needs."""
    is_listed = refused.conflict.unlisted in lane.pages.listed()
    listed = {
        name: tuple(wheel.version for wheel in wheels)
        for name, wheels in lane.pages.read_pages().items()
        if name in lane.question.requested - PAIRED
    }
    wheel = refused.conflict.incompatible
    packages = [*map(find_failed_package, refused.known.unbuildable.values())]
    if wheel and wheel.glibc:
        packages.insert(0, wheel.package)
    for package in packages:
        demands = refused.known.log.find_demands(package)
        releases = lane.releases.find_releases(package)
        newest = max(releases, default=Version("0"))
        one = lane.releases.find_wheel_for_newer_glibc(package, newest, demands)
        if one:
            wheel = IncompatibleWheel(package, str(one.version), _find_glibc(one))
            break
    return replace(
        refused,
        listed=listed,
        is_listed=is_listed and not lane.session.sources.uv.exclude_newer,
        incompatible=wheel,
    )


def _find_newest(found: Found, lane: Lane) -> dict[str, Newest]:
    """Return the latest releases of packages that may be older."""
    listed = lane.releases.newest_releases()
    newest: dict[str, Newest] = {}
    for package in dict.fromkeys([*listed, *find_sdists(found.answer)]):
        selected = found.find_version(package)
        if selected:
            one = _find_limit(package, selected, found, lane)
            newest |= {package: one} if one else {}
    return newest


def _find_limit(
    package: str, selected: Version, found: Found, lane: Lane
) -> Newest | None:
    """Return a later release, with its requirement of torch or glibc."""
    releases = lane.releases
    listed = releases.newest_releases().get(package)
    demands = found.known.log.find_demands(package, found.answer.versions)
    wheel = releases.find_wheel_for_newer_glibc(package, selected, demands)
    if wheel and not (listed and listed > wheel.version):
        torch = _find_torch_demand(wheel, lane)
        if torch is None:
            return Newest(wheel.version, glibc=_find_glibc(wheel))
        return Newest(max(wheel.version, listed or wheel.version), torch=torch)
    if listed is None or listed <= selected:
        return None
    wheel = releases.find_releases(package).get(listed)
    # The METADATA of a library or a locked package does not change the answer.
    is_unread = is_library_of_torch(package) or found.is_kept(package)
    if wheel is None or is_unread:
        return Newest(listed)
    return Newest(listed, torch=_find_torch_demand(wheel, lane))


def _find_torch_demand(wheel: Wheel, lane: Lane) -> Requirement | None:
    """Return a wheel's requirement of torch, if no build satisfies it."""
    for one in lane.releases.read_metadata_requirements(wheel):
        if one.name == "torch" and not any(map(one.allows, lane.question.torches)):
            return one
    return None


def _find_glibc(wheel: Wheel) -> str:
    return find_required_glibc([(wheel.package, wheel.filename)], least="2.5") or ""
