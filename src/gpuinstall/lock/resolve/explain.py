"""Explain an answer with its facts, its dependencies, and uv's conflicts.

All functions are pure: nothing is resolved, read, or downloaded for a sentence. Without
a known reason, none is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from packaging.version import Version

from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.catalog import COMPANIONS
from gpuinstall.lock.resolve.facts import Fact, Facts
from gpuinstall.lock.resolve.found import SEARCH_ENDED, Found, Newest
from gpuinstall.lock.resolve.question import (
    Question,
    list_torch_versions,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import find_mentioned_names
from gpuinstall.plan.values import PROGRAM_HELD_BACK, ProgramConstraints

ASSUMED_GLIBC = "assumed-glibc"
"""The code of a warning that the assumed glibc excludes a release."""

MAX_LISTED = 3
"""Maximum number of sentences that a message lists."""

_NEWEST = Version("99999999")
"""A version that only requirements without an upper limit allow."""

_NO_WHEELS = "has no wheels"
"""The words of uv about a release without a compatible wheel."""

_Limits = Mapping[str, str]
"""The sentences about limits, by the package to omit."""


def explain_build(found: Found) -> ProgramConstraints:
    """Return why the packages of the request select a build of torch."""
    chosen = found.answer.build
    unserved = {}
    for version, build in found.builds.items():
        if build == chosen:
            break
        if build.torch == chosen.torch:
            fact = find_rejecting_fact([version], found.facts_here)
            conflict = "the other packages require a different build"
            unserved[build.backend.tag] = fact.explain(version) if fact else conflict
    return ProgramConstraints(
        chosen,
        explain_torch(found),
        unserved,
        tuple(one.message for one in explain_older(found) if not is_warning(one)),
    )


def is_warning(reason: Reason) -> bool:
    """Return whether a reason for an older release is a warning."""
    return reason.code != PROGRAM_HELD_BACK


# Torch.


def explain_torch(found: Found) -> str:
    """Return why torch is not the newest that runs, or ""."""
    question = found.question
    torch = found.answer.build.torch
    runnable = list_torch_versions(question.lock_request)
    newer = [one for one in runnable if one > torch]
    if not newer:
        return ""
    if torch == question.common:
        common = f"torch {torch} is the newest that all targets support"
        return question.common_limit or common
    limits = {one: _find_torch_limits(one, found) for one in newer}
    following = limits[newer[-1]]
    # A reason that excludes only the latest version is not decisive.
    without = next(one for one in newer if limits[one].keys() == following.keys())
    if following or found.is_kept("torch"):
        why = _join_sentences([*limits[without].values()])
        why = why or f"torch {torch} is locked"
        return f"{why}; torch {without} would run here"
    conflict = found.conflicts.get("torch")
    why = conflict.format(["torch"]) if conflict else ""
    message = f"torch is {torch} instead of {newer[0]}"
    return f"{message}: {why}" if why else message


def _find_torch_limits(torch: Version, found: Found) -> _Limits:
    """Return the packages or facts that exclude a torch, of the first kind."""
    programs, dependencies, companions = {}, {}, {}
    requested = {one.name for one in found.question.programs}
    for package, version, one in found.find_excluding_demands("torch", torch):
        requirers = found.find_requirers(package)
        sentence = _format_demand(package, version, one)
        if package in found.bound:
            companions[package] = sentence
        elif package in requested or not requirers:
            programs[package] = sentence
        else:
            path = format_requirers(requirers, package)
            dependencies[requirers[0]] = f"{path}, and {sentence}"
    labels = [label for label, build in found.builds.items() if build.torch == torch]
    fact = find_rejecting_fact(labels, found.facts_here)
    facts = {fact.package: fact.explain(labels[0])} if fact else {}
    # The version of a companion follows from a locked torch.
    if found.is_kept("torch"):
        companions = {}
    # A dependency is listed with the package that requires it.
    first = dict([*dependencies.items()][:1])
    return programs or first or facts or companions


def find_rejecting_fact(torches: Sequence[str], facts: Iterable[Fact]) -> Fact | None:
    """Return a fact that rejects all of these builds, if any."""
    if not torches:
        return None
    return next((one for one in facts if all(map(one.rejects, torches))), None)


# Older releases.


def explain_older(found: Found) -> list[Reason]:
    """Return requested packages below their latest release, with a cause.

    Packages that facts exclude have a warning of their own.
    """
    reported = find_newer_facts(found)
    reasons: list[Reason] = []
    for package, newest in found.newest.items():
        selected = found.find_version(package)
        if selected and package not in reported:
            reasons += filter(
                None, [_explain_release(package, selected, newest, found)]
            )
    for package, before in found.question.moving.items():
        version = found.answer.versions.get(package)
        is_own = package in {*found.newest, *found.bound, *reported}
        if version == before and not is_own:
            reasons.append(_explain_unmoved(package, before, found))
    return reasons


def _explain_unmoved(package: str, version: str, found: Found) -> Reason:
    """Return which packages prevent the upgrade of a package."""
    limiting = [
        _format_release(name, selected)
        for name, selected, _ in found.find_excluding_demands(package, _NEWEST)
    ]
    allowing = f"{join_names(limiting)} {'allow' if limiting[1:] else 'allows'}"
    message = (
        f"{_format_release(package, version)} is the latest version that "
        f"{allowing if limiting else 'all requirements allow'}"
    )
    return Reason(PROGRAM_HELD_BACK, message)


def _explain_release(
    package: str, selected: Version, newest: Newest, found: Found
) -> Reason | None:
    """Return why a package is not at its latest release, if it is not."""
    sentence = f"{package} is {selected} instead of {newest.version}"
    conflict = found.conflicts.get(package)
    if newest.glibc and newest.version >= selected:
        if newest.version == selected:
            sentence = f"{package} {selected} is built from source: its wheel"
        else:
            sentence += ", which"
        requires = f"{sentence} requires glibc {newest.glibc}"
        return _explain_glibc(requires, newest.glibc, found.question)
    if newest.version <= selected:
        return None
    limits = _find_limits(package, newest.version, found)
    if newest.torch:
        sentence += f", which requires {remove_marker(newest.torch)}"
        pins = _find_deciding_limits(newest.torch, found.question)
        sentence += f", and {pins} is requested" if pins else ""
    elif conflict:
        wheel = conflict.incompatible
        why = conflict.format([package], without=_NO_WHEELS if wheel else "")
        facts = find_deciding_facts(conflict, found.known)
        reasons = [why, *(fact.why for fact in facts[:1])]
        sentence += f": {', and '.join(filter(None, reasons))}" if any(reasons) else ""
        if wheel and wheel.glibc:
            requires = f"{sentence}, and {wheel} requires glibc {wheel.glibc}"
            return _explain_glibc(requires, wheel.glibc, found.question)
    elif limits:
        sentence += f": {_join_sentences(limits)}"
    elif found.is_kept(package):
        sentence += ": it is locked"
    return Reason(PROGRAM_HELD_BACK, sentence)


def _find_limits(package: str, version: Version, found: Found) -> list[str]:
    """Return the dependencies of the answer that exclude a release."""
    torch = found.answer.build.torch
    excluding = found.find_excluding_demands(package, version)
    limits = [_format_demand(*one) for one in excluding]
    limits += [
        f"torch {torch} requires {one.text}"
        for one in found.question.catalog.constraints(torch)
        if one.name == package and not one.allows(version)
    ]
    return limits


def _explain_glibc(requires: str, glibc: str, question: Question) -> Reason:
    """Return the reason for an older release because of the target's glibc."""
    lock_request = question.lock_request
    if lock_request.builds_here:
        system = f"this system has glibc {lock_request.machine.glibc}"
        return Reason(PROGRAM_HELD_BACK, f"{requires}; {system}")
    assumed = f"the lock assumes glibc {question.target.glibc}"
    return Reason(ASSUMED_GLIBC, f"{requires}; {assumed} (--glibc {glibc} allows it)")


def _find_deciding_limits(demand: Requirement, question: Question) -> str:
    """Return requested limits that exclude all torch versions of a demand."""
    allowed = [
        build.torch for build in question.catalog.builds if demand.allows(build.torch)
    ]
    limits = [
        format_limit(one)
        for one in question.find_limits("torch")
        if one.specifier and not any(map(one.allows, allowed))
    ]
    return join_names([*dict.fromkeys(limits)]) if allowed else ""


# Facts.


def find_deciding_facts(conflict: Conflict, known: Facts) -> list[Fact]:
    """Return the facts about packages in uv's conflict."""
    facts = [fact for fact in known.facts.values() if fact.why]
    if conflict.error.code != SEARCH_ENDED:
        if not conflict.is_about_builds:
            return []
        names = {fact.package for fact in facts}
        mentioned = find_mentioned_names(conflict.message, names)
        facts = [fact for fact in facts if fact.package in mentioned]
    return [fact for fact in facts if fact.excludes] or facts


def find_newer_facts(found: Found) -> dict[str, Fact]:
    """Return the fact that rejects the latest release of each package."""
    newer = [one for one in found.known.facts.values() if _is_newer(one, found)]
    newest_last = sorted(newer, key=lambda fact: Version(fact.version))
    return {fact.package: fact for fact in newest_last}


def _is_newer(fact: Fact, found: Found) -> bool:
    """Return whether a fact rejects a release above the selected one."""
    # The version of a companion follows from torch's.
    if not fact.why or fact.package in COMPANIONS & found.bound:
        return False
    selected = found.find_version(fact.package)
    if selected and parse_public_version(fact.version) <= selected:
        return False
    return fact.rejects(found.answer.torch)


# Sentences.


def _join_sentences(sentences: Sequence[str]) -> str:
    more = len(sentences) - MAX_LISTED
    why = join_names(sentences[:MAX_LISTED])
    return f"{why} and {more} more" if more > 0 else why


def _format_release(package: str, version: str) -> str:
    return f"{package} {parse_public_version(version)}"


def _format_demand(package: str, version: str, demand: Requirement) -> str:
    release = _format_release(package, version)
    return f"{release} requires {_format_requirement(demand)}"


def _format_requirement(demand: Requirement) -> str:
    text = remove_marker(demand).text
    return text.replace("==", " ") if demand.is_exact else text


def remove_marker(requirement: Requirement) -> Requirement:
    """Return a copy of a requirement without its environment marker."""
    return replace(requirement, marker=None, written="")


def format_requirers(requirers: Sequence[str], package: str = "it") -> str:
    """Return how the first of these packages requires another one."""
    first, *others = requirers
    if not others:
        return f"{first} requires {package}"
    if len(others) == 1:
        return f"{first} requires {others[0]}, which requires {package}"
    return f"{first} requires {package} through {others[0]} and {len(others) - 1} more"


def format_limit(requirement: Requirement) -> str:
    """Return a requirement without its marker, and with its file, if any."""
    origin = requirement.origin
    text = remove_marker(requirement).text
    return f"{text} ({origin})" if origin.is_in_file else text
