"""Explain a refused request with uv's conflict, a fact, or the plan.

All functions are pure: nothing is resolved, read, or downloaded for a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from gpuinstall.base.advice import Hint, make_change
from gpuinstall.base.errors import InstallationError, NoBuildError
from gpuinstall.base.requirement import FROM_METADATA, Requirement, requirement_names
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.lock.resolve.explain import (
    ASSUMED_GLIBC,
    find_deciding_facts,
    format_limit,
    format_requirers,
    remove_marker,
)
from gpuinstall.lock.resolve.facts import Fact
from gpuinstall.lock.resolve.found import (
    SEARCH_ENDED,
    TORCH_ADDED,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.question import suggest_request_without
from gpuinstall.lock.uv.conflict import Conflict, IncompatibleWheel
from gpuinstall.lock.uv.errors import (
    FILTERED,
    find_failed_package,
    find_mentioned_names,
)
from gpuinstall.plan import Rejected
from gpuinstall.wheels.compatibility import Compatibility

NO_CODE = "no-code-in-package"


def explain_refusal(refused: Refused) -> Conflict:
    """Return a conflict that mentions no virtual package.

    Raises:
        InstallationError: A build failed, and no fact led to it.
    """
    conflict = refused.conflict
    if refused.is_listed:
        conflict.error.fixes = ("Use another --python, or request another version",)
    if refused.known.is_empty and not refused.question.bounds:
        wheel = refused.incompatible
        for failure in refused.known.unbuildable.values():
            if not (wheel and wheel.glibc):
                raise failure
            return _create_glibc_conflict(
                find_failed_package(failure), wheel, refused, failure
            )
    if conflict.unlisted:
        return _clean(refused)
    facts = find_deciding_facts(conflict, refused.known)
    if conflict.error.code == SEARCH_ENDED and facts:
        return _explain_by_facts(facts, refused)
    if conflict.error.code not in {"requirements-conflict", "package-not-found"}:
        return conflict
    return (
        (_explain_by_facts(facts, refused) if facts else None)
        or _explain_added_torch(refused)
        or _explain_by_wheels(refused)
        or _explain_by_source(refused)
        or _explain_by_plan(refused)
        or _clean(refused)
    )


def _clean(refused: Refused) -> Conflict:
    """Return the conflict in uv's words, with uv's hints."""
    error = refused.conflict.error
    is_pinned = any(one.specifier for one in refused.question.requirements)
    # --relax keeps the constraints in the evidence.
    is_fixed = refused.question.lock_request.request.relax or error.evidence
    if error.code == "requirements-conflict" and is_pinned and not is_fixed:
        error.fixes = (make_change("--relax", note="replaces pins that conflict"),)
    if refused.conflict.is_about_builds:
        error.why = refused.conflict.format() or None
    seen = [error.evidence, *refused.conflict.hints]
    error.evidence = " · ".join(filter(None, seen)) or None
    return refused.conflict


def _explain_by_facts(facts: list[Fact], refused: Refused) -> Conflict:
    """Return the conflict for the first requested package with a fact."""
    question, known = refused.question, refused.known
    programs = [one.name for one in question.programs]

    def rank(fact: Fact) -> tuple[bool, bool, int, int, Version]:
        place = [*programs, fact.package].index(fact.package)
        distance = len(known.log.find_requirers(fact.package, question.requested))
        limits = question.find_limits(fact.package)
        is_allowed = all(one.allows(fact.version) for one in limits)
        # Without a fact about a latest release, another package is the cause.
        newest = is_allowed, fact.is_newest
        return *newest, -place, -distance, Version(fact.version)

    newest = max(facts, key=rank)
    package = newest.package
    pins = _find_deciding_pins(newest, refused)
    message = newest.why
    if pins:
        verb = "are" if len(pins) > 1 else "is"
        message += f", and {' and '.join(map(format_limit, pins))} {verb} requested"
    requirers = refused.known.log.find_requirers(package, question.requested)
    program = next(iter(requirers), package)
    reasons = [format_requirers(requirers)] if requirers else []
    # A pin allows no older version, so none was tried.
    if package not in requirement_names(pins):
        reasons.append(_describe_older(package, refused))
    hints: list[Hint] = [suggest_request_without(program, question.lock_request)]
    if newest.found:
        hints = [*_suggest_driver(newest.found, refused), *hints]
    why = ", and ".join(reasons) or None
    return Conflict(NoBuildError(NO_CODE, message, why=why, hint=tuple(hints)))


def _describe_older(package: str, refused: Refused) -> str:
    """Return why no older release of a package is selected."""
    conflict, known = refused.conflict, refused.known
    if conflict.error.code == SEARCH_ENDED:
        return conflict.error.message
    for name, error in known.unbuildable.items():
        if find_mentioned_names(conflict.why, {name}):
            return error.message
    unread = known.format_unread_releases(package)
    return f"no older version {'is known to run' if unread else 'runs'} here{unread}"


def _suggest_driver(found: Compatibility, refused: Refused) -> tuple[Hint, ...]:
    """Return the hint that updates the driver, if it is too old for a CUDA."""
    why, toolkit = found.unusable, found.row.toolkit
    if not why or not toolkit:
        return ()
    build = replace(refused.question.builds[0], toolkit=toolkit)
    gpus = refused.question.gpus
    fixes = [rules.find_driver_fix(build, why.code, [gpu]) for rules, gpu in gpus]
    return next(filter(None, fixes), ())


def _find_deciding_pins(fact: Fact, refused: Refused) -> list[Requirement]:
    """Return the pins of a rejected package, and torch's deciding limits."""
    packages = {fact.package}
    found = fact.found
    # Without code for the GPUs, the package runs with no torch.
    if fact.wheel and not (found and found.unusable):
        packages.add("torch")
    minors = found.row.torch.fits if found else ()
    torches = [Version(f"{minor}.0") for minor in minors]
    optional = {one.text for one in refused.question.optional_pins}
    pins = []
    for package in sorted(packages):
        for limit in refused.question.find_limits(package):
            is_deciding = limit.is_exact
            if package == "torch" and torches:
                is_deciding |= not any(map(limit.allows, torches))
            if is_deciding and limit.text not in optional:
                pins.append(limit)
    return pins


def _explain_added_torch(refused: Refused) -> Conflict | None:
    """Return the conflict if only the torch that gpuinstall adds causes it.

    No requested package and no release that uv tried requires torch.
    """
    question = refused.question
    if not find_mentioned_names(refused.conflict.message, {"torch"}):
        return None
    if not is_torch_added(question, refused.known.log, refused.known.log.edges):
        return None
    conflict = refused.conflict
    named = [
        one
        for name in find_mentioned_names(conflict.message, question.requested)
        for one in question.find_limits(name)
        if one.specifier
    ]
    limits = " and ".join(map(format_limit, named)) or "the other packages"
    message = (
        f"torch, which gpuinstall adds to every request, is incompatible with {limits}"
    )
    reasons = [conflict.format(), "no requested package requires torch"]
    hints: tuple[Hint, ...] = ("Request other versions",)
    if FILTERED in conflict.message:
        hints = conflict.error.fixes
    why = ", and ".join(filter(None, reasons))
    seen = " · ".join(conflict.hints) or None
    error = NoBuildError(TORCH_ADDED, message, why=why, evidence=seen, hint=hints)
    return Conflict(error)


def _explain_by_wheels(refused: Refused) -> Conflict | None:
    """Return a conflict if Python or glibc excludes a package's wheels."""
    wheel = refused.incompatible
    if wheel is None or not refused.conflict.incompatible:
        return None
    if wheel.glibc:
        return _create_glibc_conflict(wheel.package, wheel, refused)
    outcome = refused.question.lock_request.choose_build(python=wheel.python)
    if isinstance(outcome, Rejected):
        return None
    error = NoBuildError(
        "requirements-conflict",
        f"{wheel.package} has no wheel for Python {refused.question.python}",
        why=f"{wheel.package} {wheel.version} has one for Python {wheel.python}",
        hint=make_change("--python", wheel.python),
    )
    return Conflict(error)


def _create_glibc_conflict(
    package: str,
    wheel: IncompatibleWheel,
    refused: Refused,
    failure: InstallationError | None = None,
) -> Conflict:
    """Return the conflict if the glibc of the target excludes a wheel."""
    question = refused.question
    message = f"{package} has no wheel for glibc {question.target.glibc}"
    hint: Hint = f"Use a distribution or a container with glibc {wheel.glibc} or newer"
    if not question.lock_request.builds_here:
        message += ", which the lock assumes"
        hint = make_change("--glibc", wheel.glibc)
    why = f"{wheel} requires glibc {wheel.glibc}"
    why += f", and {failure.message}" if failure else ""
    return Conflict(NoBuildError(ASSUMED_GLIBC, message, why=why, hint=hint))


def _explain_by_source(refused: Refused) -> Conflict | None:
    """Return a conflict if the sources of torch have only other versions."""
    for demand in refused.question.requirements:
        name = demand.name
        versions = refused.listed.get(name, ())
        if not versions or any(map(demand.allows, versions)):
            continue
        index = refused.question.catalog.torch_index
        latest = dict.fromkeys(one.public for one in sorted(versions, reverse=True))
        error = NoBuildError(
            "requirements-conflict",
            f"no source of PyTorch packages ({index}) has a wheel of {demand} for this target",
            why=f"it has {name} {join_names([*latest])}",
            hint=f"Request one of these versions, or {name} without a version",
        )
        return Conflict(error)
    return None


def _explain_by_plan(refused: Refused) -> Conflict | None:
    """Return the plan's refusal of the torch that a package requires."""
    question = refused.question
    lock_request = question.lock_request
    if question.find_limits("torch"):
        return None
    for package, version, torch in _list_torch_demands(refused):
        required = remove_marker(torch).at(FROM_METADATA)
        pinned = lock_request.with_request_changes(
            requirements=(required, *question.requirements)
        )
        outcome = pinned.outcome
        if isinstance(outcome, Rejected):
            error = outcome.error(lock_request.machine)
            error.why = f"{package} {version} requires {remove_marker(torch)}"
            return Conflict(error)
    return None


def _list_torch_demands(refused: Refused) -> Iterator[tuple[str, str, Requirement]]:
    """Yield unsatisfied requirements of torch, latest release first."""
    torches = {build.torch for build in refused.builds.values()}
    edges = sorted(
        refused.known.log.edges.items(),
        key=lambda one: Version(one[0][1] or "0"),
        reverse=True,
    )
    for (package, version), dependencies in edges:
        for one in dependencies:
            is_torch = one.name == "torch" and package in refused.question.requested
            if is_torch and not any(map(one.allows, torches)):
                yield package, version, one
