"""Resolve one alternative for all targets, with a common torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from packaging.version import Version

from gpuinstall.base.errors import MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.threads import map_concurrently
from gpuinstall.base.values import replace
from gpuinstall.lock.file.lock import list_locked_files
from gpuinstall.lock.request.lock_request import plan_or_raise
from gpuinstall.lock.resolve.ask import collect_pages
from gpuinstall.lock.resolve.doubts import find_doubts, list_uninspected
from gpuinstall.lock.resolve.explain import explain_build
from gpuinstall.lock.resolve.extensions import create_questions_with_files
from gpuinstall.lock.resolve.found import Found, Refused
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.question import (
    PER_TARGET,
    Alternative,
    Question,
    Requests,
    allow_any_version,
    create_questions,
)
from gpuinstall.lock.resolve.refusals import explain_refusal
from gpuinstall.lock.resolve.search import search
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.fetch import find_known_hashes
from gpuinstall.lock.uv.resolution import (
    Resolution,
    check_sources,
    find_requested_hashes,
    keep_requested_files,
)
from gpuinstall.plan import Plan
from gpuinstall.plan.values import HELD_BACK
from gpuinstall.sources.session import Session

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
        for files in create_questions_with_files(
            create_questions(requests, alternative), session
        ):
            resolve = partial(_resolve_one, session=session)
            outcome = _resolve_together(files.questions, resolve)
            if not isinstance(outcome, Conflict):
                return [one.with_warnings(files.remarks) for one in outcome]
            conflicts.append(outcome)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _resolve_together(
    questions: Sequence[Question], resolve: Callable[[Question], Resolution | Conflict]
) -> Resolutions | Conflict:
    """Resolve for all targets with the torch that the first one selects."""
    resolve_all = partial(map_concurrently, resolve, at_once=TARGETS_AT_ONCE)
    [first, *others] = sorted(questions, key=lambda one: str(one.target))
    if first.common is None:
        return _mark_conflicts(resolve_all(questions))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        proposal = resolve(first.with_torch_versions(remaining))
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
            order = [str(question.target) for question in questions]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        # The first target has an answer of its own.
        fixes = together.error.fixes
        together.error.fixes = tuple(dict.fromkeys((PER_TARGET, *fixes)))
        conflicts.append(together)
        remaining -= {torch}
    # The first conflict is about the latest torch.
    return conflicts[0]


def _prefer_versions(proposal: Resolution, question: Question) -> Question:
    """Return a question that prefers the versions of the first target."""
    family = question.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    return replace(question, preferences={**versions, **question.preferences})


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


def _resolve_one(question: Question, session: Session) -> Resolution | Conflict:
    """Resolve a request for one target."""
    lane = Lane(question, session)
    found = search(lane)
    if isinstance(found, Refused):
        return explain_refusal(found)
    resolution = _create_resolution(found, lane)
    for detail in list_uninspected(found):
        session.reporter.detail("Inspected", detail)
    return resolution.with_warnings(find_doubts(found))


def _create_resolution(found: Found, lane: Lane) -> Resolution:
    """Check the sources of all files of an answer, and return the resolution.

    Raises:
        InstallationError: A file is from a source that is not configured for its package.
        UsageError: A project file requires another source or hash of a package.
    """
    question, answer = lane.question, found.answer
    request, session = question.lock_request, lane.session
    pages = collect_pages(found.known, lane, chosen=answer.build)
    packages = check_sources(
        answer.packages,
        pages,
        session,
        family=found.bound,
        backend=answer.build.backend.tag,
    )
    addresses = session.sources.addresses
    requested = find_requested_hashes(request.request.requirements, packages, addresses)
    packages = keep_requested_files(
        packages, requested, addresses, session.client, session.reporter
    )
    locked = question.hashes
    files = [
        replace(file, sha256=file.sha256 or locked.get(file.url))
        for file in list_locked_files(packages)
    ]
    plan = _create_plan(found)
    return Resolution(
        request=request,
        plan=plan,
        target=request.create_target(plan.choice.build),
        packages=packages,
        hashes=find_known_hashes(files, session.client),
        prebuilt={**question.files, **found.known.files},
        relaxed={
            pin.name: pin
            for pin in question.optional_pins
            if pin.name in answer.dropped
        },
    )


def _create_plan(found: Found) -> Plan:
    """Return the plan of an answer, with reasons for older releases."""
    question = found.question
    lock_request = allow_any_version(question.narrowed_request, found.answer.dropped)
    choice = lock_request.choose_build(
        torch=question.torch,
        python=question.python,
        programs=explain_build(found),
    )
    plan = plan_or_raise(choice, question.lock_request.machine)
    common = Reason(HELD_BACK, question.common_limit)
    # If torch is pinned to its locked version, the plan considers no other.
    if question.is_open or not common.message or common in plan.reasons:
        return plan
    return replace(plan, reasons=(*plan.reasons, common))
