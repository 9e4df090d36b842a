"""Why a request has no answer: uv's own words if it refuses it without ours too, else the facts that stand against it."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Requirement
from gpuinstall.lock.solve.facts import Fact
from gpuinstall.lock.solve.loop import Loop
from gpuinstall.lock.solve.remarks import NO_CODE, other_name, without_marker
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.plan import Rejected


def refusal(conflict: Conflict, loop: Loop) -> Conflict:
    """Return why there is no answer to a problem, in words that have none of our packages in them."""
    if conflict.error.code not in {"requirements-conflict", "package-not-found"}:
        return conflict
    plain = loop.ask_plainly()
    if isinstance(plain, Conflict):
        return _refused_by_machine(plain, loop)
    facts = [fact for fact in loop.judge.facts.values() if fact.why]
    if not facts:
        return conflict
    return _refused_by_facts(facts, loop)


def _refused_by_facts(facts: list[Fact], loop: Loop) -> Conflict:
    """Return the fact of the newest version of what was requested first, and what was found of the older ones."""
    places = {one.name: place for place, one in enumerate(loop.problem.programs)}
    excluding = [fact for fact in facts if fact.excludes] or facts
    # Of a package whose newest version runs, another keeps that away.
    barred = [fact for fact in excluding if _is_newest(fact, loop)] or excluding
    first = min(barred, key=lambda fact: places.get(fact.package, len(places)))
    package = first.package
    same = [fact for fact in excluding if fact.package == package]
    newest = max(same, key=lambda fact: Version(fact.version))
    unread = loop.judge.unread(package)
    known = "is known to run" if unread else "runs"
    why = f"no older version {known} here{unread}{other_name(package, loop)}"
    program = _program_with(package, loop)
    if program != package:
        why = f"{program} requires it, and {why}"
    command = f"gpuinstall run python -m pip install {program}"
    hint = f"Run it again without {program}\n{command}   # afterwards: installs it anyway, beside torch"
    return Conflict(NoBuildError(NO_CODE, newest.why, why=why, hint=hint))


def _is_newest(fact: Fact, loop: Loop) -> bool:
    """Whether a fact is of the newest release of its package."""
    newest = next(iter(loop.index.releases(fact.package)), None)
    return newest == Version(fact.version)


def _program_with(package: str, loop: Loop) -> str:
    """Return what was requested and requires a package; the package itself if it was requested, or that is not known."""
    if package in loop.judge.requested:
        return package
    for name in loop.index.newest_releases:
        requirements = _requirements_of_newest(name, loop)
        if any(one.name == package for one in requirements):
            return name
    return package


def _requirements_of_newest(name: str, loop: Loop) -> Sequence[Requirement]:
    """Return what METADATA requires in the newest wheel of a program that is not known to fail here."""
    newest = loop.judge.newest(name)
    wheel = loop.index.wheel(name, newest) if newest else None
    return loop.index.metadata_requirements(wheel) if wheel else ()


def _refused_by_machine(conflict: Conflict, loop: Loop) -> Conflict:
    """Return what the machine has against every torch that the programs require, if that is the reason."""
    problem = loop.problem
    wanted = problem.wanted
    if loop.index.limits("torch"):
        return conflict
    others = [one for one in problem.requirements if one.name != "torch"]
    refusals = list[Rejected]()
    for name in loop.index.newest_releases:
        for torch in _requirements_of_newest(name, loop):
            if torch.name != "torch" or not torch.specifier:
                continue
            pinned = wanted.asking(requirements=(without_marker(torch), *others))
            outcome = pinned.outcome
            if isinstance(outcome, Rejected):
                refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(wanted.machine)
    error.why = conflict.why
    return Conflict(error)
