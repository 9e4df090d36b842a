"""Collect facts from a resolution for the next run of uv."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from gpuinstall.base.requirement import Constraint, Requirement, names_of
from gpuinstall.catalog import Wheel
from gpuinstall.catalog.extensions import load_extensions
from gpuinstall.lock.request.lock_sources import extension_row
from gpuinstall.lock.resolve.extensions import choose_prebuilt
from gpuinstall.lock.resolve.inspect import AnswerInspector, sdists, wheel_fact
from gpuinstall.lock.resolve.knowledge import Answer, Fact, Knowledge
from gpuinstall.lock.resolve.older import older_facts
from gpuinstall.lock.uv.builds import build_tools
from gpuinstall.wheels.compatibility import Compatibility


def learn(answer: Answer, known: Knowledge, inspector: AnswerInspector) -> Knowledge:
    """Return the knowledge extended with the facts of a resolution.

    Extension files and build tools are added only if nothing else is new.
    """
    grown = known | Knowledge(seen=frozenset(answer.versions))
    grown |= Knowledge.of(inspector.companions(answer))
    if not inspector.is_idle:
        grown = _inspected(answer, grown, inspector)
        grown |= Knowledge.of(inspector.sources(answer))
    grown |= Knowledge(beside_torch=tuple(_constraints(answer, inspector)))
    grown |= Knowledge.of(_prereleases(answer, grown, inspector))
    if grown.for_uv == known.for_uv:
        grown |= Knowledge(files=_prebuilt(answer, grown, inspector))
    if grown.for_uv == known.for_uv:
        undeclared = inspector.question.catalog.undeclared(answer.versions)
        added = map(Requirement.of, (*build_tools(answer.packages), *undeclared))
        grown |= Knowledge(requirements=tuple(added))
    return grown


def _inspected(
    answer: Answer, known: Knowledge, inspector: AnswerInspector
) -> Knowledge:
    """Inspect the wheels of a resolution, and return all knowledge."""
    known |= Knowledge(of_extras=inspector.required_by_extras(answer))
    for found in inspector.inspect(answer, known):
        known |= _facts_of(found, answer, known, inspector)
    return known | Knowledge(linked=inspector.linked(answer))


def _facts_of(
    found: Compatibility, answer: Answer, known: Knowledge, inspector: AnswerInspector
) -> Knowledge:
    """Return the facts of a wheel and, if rejected, of older releases."""
    package = found.wheel.package
    fact = wheel_fact(found, answer.torch)
    if fact is None or inspector.is_optional(package):
        return Knowledge()
    learned = Knowledge.of([fact])
    # Keep a requested package at its latest release if another torch runs with it.
    is_dependency = not inspector.is_requested(package, known)
    if fact.excludes:
        pure = inspector.pure_file(found)
        if pure:
            return Knowledge(files={package: pure})
    elif not is_dependency or not fact.rejects(answer.torch):
        return learned
    elif package not in known.before_torch and inspector.may_come_first(found, answer):
        return learned | Knowledge(before_torch=(package,))
    return learned | Knowledge.of(older_facts(found, inspector, answer, known))


def _constraints(
    answer: Answer, inspector: AnswerInspector
) -> Iterator[tuple[Version, Constraint]]:
    """Yield constraints of torch that METADATA omits and uv violated."""
    torch = answer.build.torch
    for constraint in inspector.question.catalog.constraints(torch):
        version = answer.versions.get(constraint.name)
        if version and not constraint.allows(version):
            yield torch, constraint


def _prereleases(
    answer: Answer, known: Knowledge, inspector: AnswerInspector
) -> Iterator[Fact]:
    """Exclude pre-releases that uv selects if facts exclude final releases.

    A fact may be about the package itself or about requirements of its latest release.
    """
    index = inspector.index
    excluded = {fact.package for fact in known.facts.values() if fact.excludes}
    for package, version in answer.versions.items():
        if not excluded or not Version(version).is_prerelease:
            continue
        limits = index.limits(package)
        if any(one.specifier and one.specifier.prereleases for one in limits):
            continue
        newest = next(iter(index.releases(package).values()), None)
        if newest is None:
            continue
        required = names_of(index.metadata_requirements(newest))
        if excluded.isdisjoint({package, *required}):
            continue
        versions = {str(one.version) for one in index.wheels_of(package)}
        for other in {version, *versions}:
            if Version(other).is_prerelease:
                yield Fact(package, other, builds=frozenset())


def _prebuilt(
    answer: Answer, known: Knowledge, inspector: AnswerInspector
) -> dict[str, tuple[Wheel, ...]]:
    """Return prebuilt files of extensions that would be compiled."""
    question = inspector.question
    beside = question.with_builds([answer.build])
    files = dict[str, tuple[Wheel, ...]]()
    for name in sorted(load_extensions().rows.keys() & sdists(answer)):
        row = extension_row(name, inspector.index.session)
        fit = choose_prebuilt(
            row, beside, inspector.index.session, Requirement.of(name)
        ).fit
        if fit and name not in known.files and name not in question.files:
            files[name] = (fit.wheel,)
    return files
