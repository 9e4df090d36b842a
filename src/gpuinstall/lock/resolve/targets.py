"""Resolve one alternative for all targets, with a common torch.

A conflict is explained with uv's own message or the deciding fact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from packaging.version import Version

from gpuinstall.base.advice import Advice, Hint, make_change
from gpuinstall.base.errors import InstallationError, MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.requirement import FROM_METADATA, Requirement, requirement_names
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.catalog.catalog import PAIRED
from gpuinstall.lock.file.target import find_required_glibc
from gpuinstall.lock.request.lock_request import plan_or_raise
from gpuinstall.lock.resolve.explanations import (
    ASSUMED_GLIBC,
    MAX_LISTED,
    NO_CODE,
    TORCH_ADDED,
    ResolutionExplanation,
    find_versions_without_torch,
    format_limit,
    format_requirers,
    remove_marker,
)
from gpuinstall.lock.resolve.extensions import create_inputs_with_files
from gpuinstall.lock.resolve.knowledge import Fact, UvResolution
from gpuinstall.lock.resolve.resolver import RefusedInput, Resolver
from gpuinstall.lock.resolve.resolver_input import (
    Alternative,
    Requests,
    ResolverInput,
    allow_any_version,
    create_inputs,
    suggest_request_without,
)
from gpuinstall.lock.resolve.run_uv import collect_pages, run_uv_without_facts
from gpuinstall.lock.uv.edges import OWN_PACKAGES
from gpuinstall.lock.uv.errors import (
    Conflict,
    find_failed_package,
    find_mentioned_names,
)
from gpuinstall.lock.uv.project import UvLock
from gpuinstall.lock.uv.resolution import Resolution, check_resolution
from gpuinstall.machine.protocol import Toolkit
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.values import HELD_BACK, PROGRAM_HELD_BACK
from gpuinstall.sources.session import Session
from gpuinstall.wheels.needs import parse_name_cuda, rename_for_cuda

Resolutions = list[Resolution]

TARGETS_AT_ONCE = 6
"""Maximum number of concurrent uv runs; more would compete for cores."""

PROPOSALS = 4
"""Maximum number of torch versions that the first target proposes."""


def resolve_targets(
    requests: Requests, alternative: Alternative, session: Session
) -> Resolutions | Conflict:
    """Resolve one alternative, with the first possible extension files.

    Args:
        requests: The request for each target.
        alternative: The preferences and pins.
        session: The HTTP clients and caches.

    Returns:
        A resolution for each target, or the first conflict.
    """
    conflicts = []
    try:
        for files in create_inputs_with_files(
            create_inputs(requests, alternative), session
        ):
            outcome = _resolve_together(files.resolver_inputs, session)
            if not isinstance(outcome, Conflict):
                return [one.with_warnings(files.remarks) for one in outcome]
            conflicts.append(outcome)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _resolve_together(
    resolver_inputs: Sequence[ResolverInput], session: Session
) -> Resolutions | Conflict:
    """Resolve for all targets with the torch that the first one selects."""
    resolve_all = partial(
        map_concurrently,
        partial(_resolve_one, session=session),
        at_once=TARGETS_AT_ONCE,
    )
    [first, *others] = sorted(resolver_inputs, key=lambda one: str(one.target))
    if first.common is None:
        return _mark_conflicts(resolve_all(resolver_inputs))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        proposal = _resolve_one(first.with_torch_versions(remaining), session)
        if isinstance(proposal, Conflict):
            conflicts.append(proposal)
            break
        torch = proposal.choice.build.torch
        following = [
            _prefer_versions(proposal, one.with_torch_versions({torch}))
            for one in others
        ]
        together = _mark_conflicts([proposal, *resolve_all(following)])
        if not isinstance(together, Conflict):
            order = [str(resolver_input.target) for resolver_input in resolver_inputs]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        conflicts.append(together)
        remaining -= {torch}
    # The first conflict is about the latest torch.
    return conflicts[0]


def _prefer_versions(
    proposal: Resolution, resolver_input: ResolverInput
) -> ResolverInput:
    """Return an input that prefers the versions of the first target."""
    family = resolver_input.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    alternative = resolver_input.alternative
    preferences = {**versions, **alternative.preferences}
    return replace(
        resolver_input, alternative=replace(alternative, preferences=preferences)
    )


def _mark_conflicts(
    outcomes: Iterable[Resolution | Conflict],
) -> Resolutions | Conflict:
    """Mark packages whose versions differ by target, or return a conflict."""
    resolutions: Resolutions = []
    versions: dict[str, set[str]] = defaultdict(set)
    for outcome in outcomes:
        if isinstance(outcome, Conflict):
            return outcome
        resolutions.append(outcome)
        lock_request = outcome.request
        for name, version in outcome.versions.items():
            # If each target has its own torch, the torch-family packages differ, too.
            if (
                lock_request.request.newest_per_target
                or name not in lock_request.catalog.family
            ):
                versions[name].add(Version(version).public)
    conflicting = {name for name, different in versions.items() if len(different) > 1}
    return [
        replace(one, apart=frozenset(conflicting & one.versions.keys()))
        for one in resolutions
    ]


def _resolve_one(
    resolver_input: ResolverInput, session: Session
) -> Resolution | Conflict:
    """Resolve a request for one target."""
    resolver = Resolver(resolver_input, session)
    outcome = resolver.resolve()
    if isinstance(outcome, RefusedInput):
        return explain_conflict(outcome, resolver)
    explanation = ResolutionExplanation(outcome, resolver)
    resolution = check_resolution(
        outcome.resolution.packages,
        resolver_input.lock_request,
        _create_plan(outcome.resolution, resolver_input, explanation),
        family=resolver.index.names(),
        pages=collect_pages(
            resolver_input,
            outcome.known,
            resolver.index,
            chosen=outcome.resolution.build,
        ),
        prebuilt={**resolver_input.files, **outcome.known.files},
        locked=resolver_input.alternative.hashes,
        session=resolver.session,
    )
    dropped = {
        pin.name: pin
        for pin in resolver_input.alternative.optional_pins
        if pin.name in outcome.resolution.dropped
    }
    return replace(
        resolution.with_warnings(explanation.find_warnings()), relaxed=dropped
    )


def _create_plan(
    resolution: UvResolution,
    resolver_input: ResolverInput,
    explanation: ResolutionExplanation,
) -> Plan:
    """Return the plan of a resolution, with reasons for older releases."""
    plan = resolver_input.plan
    if not resolver_input.is_open:
        reasons = [
            Reason(PROGRAM_HELD_BACK, text)
            for text in explanation.explain_older_releases()
        ]
        if resolver_input.common_limit:
            reasons.append(Reason(HELD_BACK, resolver_input.common_limit))
        return replace(plan, reasons=(*plan.reasons, *reasons))
    lock_request = allow_any_version(
        resolver_input.narrowed_request, resolution.dropped
    )
    choice = lock_request.choose_build(
        torch=resolver_input.alternative.torch,
        python=resolver_input.python,
        programs=explanation.constraints(),
    )
    return plan_or_raise(choice, resolver_input.lock_request.machine)


def explain_conflict(refused: RefusedInput, resolver: Resolver) -> Conflict:
    """Return a conflict that mentions no virtual package.

    Raises:
        InstallationError: A build failed, and no fact led to it.
    """
    conflict = refused.conflict
    is_listed = conflict.unlisted and resolver.index.lists(conflict.unlisted)
    if is_listed and not resolver.session.sources.exclude_newer:
        conflict.error.fixes = ("Use another --python, or request another version",)
    if refused.known.is_empty and not resolver.resolver_input.bounds:
        for failure in refused.known.unbuildable.values():
            package = find_failed_package(failure)
            newest = next(iter(resolver.index.find_releases(package)), None)
            demand = Requirement.of(package, f">{newest}" if newest else "")
            by_glibc = _explain_by_glibc(demand, resolver, failure)
            if by_glibc:
                return by_glibc
            raise failure
    if conflict.error.code not in {"requirements-conflict", "package-not-found"}:
        return conflict
    alone: UvLock | Conflict = conflict
    added = None
    # uv's message about other packages needs no explanation.
    is_about_torch = OWN_PACKAGES in conflict.why or find_mentioned_names(
        conflict.why, {"torch"}
    )
    if is_about_torch or not refused.known.is_empty:
        alone = run_uv_without_facts(resolver.resolver_input, resolver.index)
        if isinstance(alone, Conflict):
            added = _explain_added_torch(alone, resolver)
    if isinstance(alone, Conflict):
        added = added or _explain_by_wheels(alone, resolver)
        added = added or _explain_by_driver(alone, resolver)
        return added or _explain_by_machine(alone, refused, resolver)
    facts = [fact for fact in refused.known.facts.values() if fact.why]
    if not facts:
        return conflict
    return _explain_by_facts(facts, refused, resolver)


def _explain_by_facts(
    facts: list[Fact], refused: RefusedInput, resolver: Resolver
) -> Conflict:
    """Return the conflict for the first requested package with a fact."""
    programs = resolver.resolver_input.programs
    places = {one.name: place for place, one in enumerate(programs)}
    excluding = [fact for fact in facts if fact.excludes] or facts

    def rank(fact: Fact) -> tuple[bool, int, Version]:
        version = Version(fact.version)
        # Without a fact about a latest release, another package is the cause.
        is_newest = version in [*resolver.index.find_releases(fact.package)][:1]
        return is_newest, -places.get(fact.package, len(places)), version

    newest = max(excluding, key=rank)
    package = newest.package
    message = newest.why
    pins = _find_deciding_pins(newest, resolver)
    if pins:
        verb = "are" if len(pins) > 1 else "is"
        message = (
            f"{message}, and {' and '.join(map(format_limit, pins))} {verb} requested"
        )
    reasons = []
    requirers = resolver.index.find_requirers(package)
    program = next(iter(requirers), package)
    if requirers:
        reasons.append(format_requirers(requirers))
    same = [fact for fact in excluding if fact.package == package]
    pure = [fact for fact in same if fact.code and fact is not newest]
    if pure:
        reasons.append(max(pure, key=rank).why)
    # A pin allows no older version, so none was tried.
    if package not in requirement_names(pins):
        unread = refused.known.format_unread_releases(package)
        known = "is known to run" if unread else "runs"
        failed = [
            error.message
            for name, error in refused.known.unbuildable.items()
            if find_mentioned_names(refused.conflict.why, {name})
        ]
        outcome = f"no older version {known} here{unread}"
        if newest.version == str(
            min(resolver.index.find_releases(package), default="")
        ):
            outcome = "there is no older version for this target"
        reasons.append(next(iter(failed), outcome))
    lock_request = resolver.resolver_input.lock_request
    hints: list[Hint] = [suggest_request_without(program, lock_request)]
    other = _find_other_name(package, resolver)
    if other and program == package:
        hints.insert(0, f"Request {other} instead of {package}")
    found = newest.wheel and resolver.inspector.inspected.get(newest.wheel)
    if found and found.unusable:
        driver = _suggest_driver(found.unusable, found.row.toolkit, resolver)
        hints = [*driver, *hints]
    why = ", and ".join(reasons) or None
    return Conflict(NoBuildError(NO_CODE, message, why=why, hint=tuple(hints)))


def _suggest_driver(
    why: Reason, toolkit: Toolkit, resolver: Resolver
) -> tuple[Hint, ...]:
    """Return the hint that updates the driver, if it is too old for a CUDA."""
    build = replace(resolver.resolver_input.builds[0], toolkit=toolkit)
    gpus = resolver.resolver_input.gpus
    fixes = [rules.find_driver_fix(build, why.code, [gpu]) for rules, gpu in gpus]
    return next(filter(None, fixes), ())


def _find_deciding_pins(fact: Fact, resolver: Resolver) -> list[Requirement]:
    """Return the pins of a rejected package, and torch's deciding limits."""
    packages = {fact.package}
    found = fact.wheel and resolver.inspector.inspected.get(fact.wheel)
    # Without code for the GPUs, the package runs with no torch.
    if found and not found.unusable:
        packages.add("torch")
    torches = [Version(f"{minor}.0") for minor in found.row.torch.fits] if found else []
    optional = {one.text for one in resolver.resolver_input.alternative.optional_pins}
    pins = []
    for package in sorted(packages):
        for limit in resolver.index.find_limits(package):
            is_deciding = limit.is_exact
            if package == "torch" and torches:
                is_deciding |= not any(map(limit.allows, torches))
            if is_deciding and limit.text not in optional:
                pins.append(limit)
    return pins


def _find_other_name(package: str, resolver: Resolver) -> str | None:
    """Return the name of the package for torch's CUDA if it is another one."""
    toolkit = next(iter(resolver.index.builds().values())).toolkit
    name = toolkit and rename_for_cuda(package, toolkit[0])
    if not name or name == package or not resolver.index.find_releases(name):
        return None
    return name


def _explain_added_torch(conflict: Conflict, resolver: Resolver) -> Conflict | None:
    """Return the conflict if only the torch that gpuinstall adds causes it."""
    if not find_versions_without_torch(resolver):
        return None
    resolver_input = resolver.resolver_input
    requirements = resolver_input.lock_request.request.requirements
    version, build = next(iter(resolver.index.builds().items()))
    wheel = resolver.index.find_releases("torch").get(Version(version))
    causes = {
        format_limit(limit): f"torch {build.torch} requires {remove_marker(one)}"
        for one in resolver.index.read_metadata_requirements(wheel)
        for limit in resolver.index.find_limits(one.name)
        if one.pinned and not limit.allows(one.pinned)
    }
    limits = next(iter(causes), "the other packages")
    if len(causes) > 1:
        limits = f"{limits} and {len(causes) - 1} more"
    cause = [*causes.values()][:1]
    reasons = [*cause, "no requested package requires torch"]
    hint: tuple[Hint, ...] = ("Request other versions",)
    files = dict.fromkeys(one.origin.file for one in requirements if one.origin.line)
    if files and all(one.origin.line for one in requirements):
        venv = "env-without-torch"
        options = [word for file in files for word in ("-r", file)]
        python = resolver_input.python
        install = ("pip", "install", "--python", venv, *options)
        note = "installs it without torch, and without gpuinstall"
        hint = (
            Advice("uv", ("venv", "--python", python, venv)),
            Advice("uv", install, note=note),
        )
    if "was filtered by `exclude-newer`" in conflict.why:
        limits, reasons = "exclude-newer", [conflict.why]
        hint = ("Set exclude-newer to a later date",)
    message = (
        f"torch, which gpuinstall adds to every request, is incompatible with {limits}"
    )
    return Conflict(
        NoBuildError(TORCH_ADDED, message, why=", and ".join(reasons), hint=hint)
    )


def _explain_by_wheels(conflict: Conflict, resolver: Resolver) -> Conflict | None:
    """Return a conflict if Python or the assumed glibc excludes a package."""
    resolver_input = resolver.resolver_input
    index = resolver.index
    demands = [
        *map(Requirement.of, index.newest_releases()),
        *(
            one
            for one in (*resolver_input.requirements, *index.list_demands())
            if find_mentioned_names(conflict.why, {one.name})
        ),
    ]
    for one in demands:
        if any(map(one.allows, index.find_releases(one.name))):
            continue
        if "no wheels with a matching Python" in conflict.why:
            for other, python in index.find_wheels_for_other_pythons(one):
                error = NoBuildError(
                    "requirements-conflict",
                    f"{one.text} has no wheel for Python {resolver_input.python}",
                    why=f"{one.name} {other.version} has one for Python {python}",
                    hint=make_change("--python", python),
                )
                return Conflict(error)
        explained = _explain_by_glibc(one, resolver) or _explain_by_source(
            one, resolver
        )
        if explained:
            return explained
    return None


def _explain_by_source(demand: Requirement, resolver: Resolver) -> Conflict | None:
    """Return a conflict if PyTorch's sources have only other versions."""
    name = demand.name
    if name in PAIRED or name not in resolver.index.names():
        return None
    listed = {wheel.version.public for wheel in resolver.index.find_wheels(name)}
    versions = sorted(listed, key=Version, reverse=True)
    if not versions:
        return None
    more = f" and {len(versions) - MAX_LISTED} more" * (len(versions) > MAX_LISTED)
    error = NoBuildError(
        "requirements-conflict",
        f"no source of PyTorch packages ({resolver.resolver_input.catalog.torch_index}) "
        f"has a wheel of {demand.text} for this target",
        why=f"it has {name} {', '.join(versions[:MAX_LISTED])}{more}",
        hint=f"Request one of these versions, or {name} without a version",
    )
    return Conflict(error)


def _explain_by_glibc(
    demand: Requirement, resolver: Resolver, failure: InstallationError | None = None
) -> Conflict | None:
    """Return a conflict if glibc excludes the wheels of a package.

    Args:
        demand: The requirement of the package.
        resolver: The resolver of the target.
        failure: The failed build of an sdist that uv selected instead, if any.
    """
    index = resolver.index
    wheel = index.find_wheel_for_newer_glibc(demand.name, Version("0"), [demand])
    if wheel is None:
        return None
    resolver_input = resolver.resolver_input
    glibc = find_required_glibc([(demand.name, wheel.filename)])
    message = f"{demand.text} has no wheel for glibc {resolver_input.target.glibc}"
    hint: Hint = f"Use a distribution or a container with glibc {glibc} or newer"
    if resolver_input.lock_request.is_glibc_assumed:
        message += ", which the lock assumes"
        hint = make_change("--glibc", glibc)
    why = f"{demand.name} {wheel.version} requires glibc {glibc}"
    if failure:
        why += f", and {failure.message}"
    return Conflict(NoBuildError(ASSUMED_GLIBC, message, why=why, hint=hint))


def _explain_by_driver(conflict: Conflict, resolver: Resolver) -> Conflict | None:
    """Return a conflict if a package in it is for a CUDA of newer drivers."""
    demands = {one.text: one for one in resolver.index.list_demands()}
    for text, one in demands.items():
        if not find_mentioned_names(conflict.why, {one.name}):
            continue
        for label in (one.name, *one.extras):
            cuda = parse_name_cuda(f"-{label}")
            why = resolver.inspector.reject_cuda(one.name, cuda)
            if cuda and why:
                requirers = resolver.index.find_requirers(one.name)
                without = suggest_request_without(
                    next(iter(requirers), one.name),
                    resolver.resolver_input.lock_request,
                )
                driver = _suggest_driver(why, (cuda, 0), resolver)
                error = NoBuildError(
                    NO_CODE,
                    f"{text} {why.message}",
                    why=format_requirers(requirers) if requirers else None,
                    hint=(*driver, without),
                )
                return Conflict(error)
    return None


def _explain_by_machine(
    conflict: Conflict, refused: RefusedInput, resolver: Resolver
) -> Conflict:
    """Return the conflict if no required torch version runs on the machine."""
    resolver_input = resolver.resolver_input
    lock_request = resolver_input.lock_request
    if resolver.index.find_limits("torch"):
        return conflict
    for name in resolver.index.newest_releases():
        newest = resolver.find_newest_release(name, refused.known)
        wheel = newest and resolver.index.find_releases(name).get(newest)
        for torch in resolver.index.read_metadata_requirements(wheel):
            if torch.name != "torch" or not torch.specifier:
                continue
            pinned = lock_request.with_request_changes(
                requirements=(
                    remove_marker(torch).at(FROM_METADATA),
                    *resolver_input.requirements,
                )
            )
            outcome = pinned.outcome
            if isinstance(outcome, Rejected):
                error = outcome.error(lock_request.machine)
                error.why = f"{name} {newest} requires {remove_marker(torch)}"
                return Conflict(error)
    return conflict
