"""Explain a conflict with uv's own message or the deciding fact."""

from __future__ import annotations

from collections.abc import Sequence

from packaging.version import Version

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.requirement import Requirement
from gpuinstall.lock.resolve.explanations import NO_CODE, remove_marker
from gpuinstall.lock.resolve.knowledge import Fact
from gpuinstall.lock.resolve.resolver import RefusedInput, Resolver
from gpuinstall.lock.resolve.run_uv import run_uv_without_facts
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.plan import Rejected
from gpuinstall.wheels.needs import rename_for_cuda


def explain_conflict(refused: RefusedInput, resolver: Resolver) -> Conflict:
    """Return a conflict that mentions no virtual package."""
    conflict = refused.conflict
    if conflict.error.code not in {"requirements-conflict", "package-not-found"}:
        return conflict
    alone = run_uv_without_facts(refused.resolver_input, resolver.index)
    if isinstance(alone, Conflict):
        return _explain_by_machine(alone, refused, resolver)
    facts = [fact for fact in refused.known.facts.values() if fact.why]
    if not facts:
        return conflict
    return _explain_by_facts(facts, refused, resolver)


def _explain_by_facts(
    facts: list[Fact], refused: RefusedInput, resolver: Resolver
) -> Conflict:
    """Return the conflict for the first requested package with a fact."""
    programs = refused.resolver_input.programs
    places = {one.name: place for place, one in enumerate(programs)}
    excluding = [fact for fact in facts if fact.excludes] or facts
    # Prefer facts about a latest release: without one, another package is the cause.
    barred = [
        fact for fact in excluding if _is_about_newest(fact, resolver)
    ] or excluding
    first = min(barred, key=lambda fact: places.get(fact.package, len(places)))
    package = first.package
    same = [fact for fact in excluding if fact.package == package]
    newest = max(same, key=lambda fact: Version(fact.version))
    unread = refused.known.format_unread_releases(package)
    known = "is known to run" if unread else "runs"
    why = (
        f"no older version {known} here{unread}{_suggest_other_name(package, resolver)}"
    )
    pure = [fact for fact in same if fact.code]
    if pure:
        why = f"{max(pure, key=lambda fact: Version(fact.version)).why}, and {why}"
    program = _find_requiring_program(package, refused, resolver)
    if program != package:
        why = f"{program} requires it, and {why}"
    command = f"gpuinstall run python -m pip install {program}"
    hint = (
        f"Run it again without {program}\n{command}   # afterwards: installs it anyway"
    )
    return Conflict(NoBuildError(NO_CODE, newest.why, why=why, hint=hint))


def _is_about_newest(fact: Fact, resolver: Resolver) -> bool:
    """Return whether a fact is about the latest release of its package."""
    newest = next(iter(resolver.index.find_releases(fact.package)), None)
    return newest == Version(fact.version)


def _suggest_other_name(package: str, resolver: Resolver) -> str:
    """Return a hint if the package for torch's CUDA has another name."""
    toolkit = next(iter(resolver.index.builds().values())).toolkit
    name = rename_for_cuda(package, toolkit[0]) if toolkit else None
    if toolkit is None or name in {None, package} or not name:
        return ""
    if not resolver.index.find_releases(name):
        return ""
    return f"; the package for CUDA {toolkit[0]} is {name}"


def _find_requiring_program(
    package: str, refused: RefusedInput, resolver: Resolver
) -> str:
    """Return the requested package that requires a package, or the package."""
    if resolver.inspector.is_requested(package, refused.known):
        return package
    for name in resolver.index.newest_releases():
        requirements = _read_newest_requirements(name, refused, resolver)
        if any(one.name == package for one in requirements):
            return name
    return package


def _read_newest_requirements(
    name: str, refused: RefusedInput, resolver: Resolver
) -> Sequence[Requirement]:
    """Return the requirements of a program's latest possible release."""
    newest = resolver.find_newest_release(name, refused.known)
    wheel = resolver.index.find_wheel(name, newest) if newest else None
    return resolver.index.read_metadata_requirements(wheel) if wheel else ()


def _explain_by_machine(
    conflict: Conflict, refused: RefusedInput, resolver: Resolver
) -> Conflict:
    """Return the conflict if no required torch version runs on the machine."""
    resolver_input = refused.resolver_input
    lock_request = resolver_input.lock_request
    if resolver.index.find_limits("torch"):
        return conflict
    others = [one for one in resolver_input.requirements if one.name != "torch"]
    refusals = list[Rejected]()
    for name in resolver.index.newest_releases():
        for torch in _read_newest_requirements(name, refused, resolver):
            if torch.name != "torch" or not torch.specifier:
                continue
            pinned = lock_request.with_request_changes(
                requirements=(remove_marker(torch), *others)
            )
            outcome = pinned.outcome
            if isinstance(outcome, Rejected):
                refusals.append(outcome)
    if not refusals:
        return conflict
    error = refusals[0].error(lock_request.machine)
    error.why = conflict.why
    return Conflict(error)
