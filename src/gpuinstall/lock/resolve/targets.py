"""Resolve one alternative for all targets, with a common torch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from packaging.version import Version

from gpuinstall.base.errors import MachineError, NoBuildError
from gpuinstall.base.finding import Reason
from gpuinstall.base.threads import side_by_side
from gpuinstall.base.values import replace
from gpuinstall.lock.request.lock_request import plan_or_raise
from gpuinstall.lock.resolve.explanations import AnswerExplanation
from gpuinstall.lock.resolve.extensions import with_files
from gpuinstall.lock.resolve.pose import pose_together
from gpuinstall.lock.resolve.question import (
    Alternative,
    Question,
    Requests,
    without_versions,
)
from gpuinstall.lock.resolve.refusals import refusal_of
from gpuinstall.lock.resolve.resolver import Refused, Resolved, Resolver
from gpuinstall.lock.resolve.run_uv import served_pages
from gpuinstall.lock.uv.errors import Conflict
from gpuinstall.lock.uv.resolution import Resolution, checked
from gpuinstall.plan import Plan
from gpuinstall.plan.values import PROGRAM_HELD_BACK
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
        requests: One for each target.
        alternative: The preferences and pins.
        session: The clients of the run.

    Returns:
        A resolution for each target, or the first conflict.
    """
    conflicts = []
    try:
        for files in with_files(pose_together(requests, alternative), session):
            answer = _together(files.questions, session)
            if not isinstance(answer, Conflict):
                return [one.with_warnings(files.remarks) for one in answer]
            conflicts.append(answer)
    except (MachineError, NoBuildError) as error:
        return Conflict(error)
    return conflicts[0]


def _together(
    questions: Sequence[Question], session: Session
) -> Resolutions | Conflict:
    """Resolve for all targets with the torch that the first one selects."""
    [first, *others] = questions
    resolve_all = partial(
        side_by_side, partial(_resolve_one, session=session), at_once=TARGETS_AT_ONCE
    )
    is_of_one_torch = not first.wanted.request.newest_per_target
    if not others or not first.wanted.names_programs or not is_of_one_torch:
        return _with_conflicting(resolve_all(questions))
    [first, *others] = sorted(questions, key=lambda one: str(one.target))
    remaining = first.torches
    conflicts: list[Conflict] = []
    while remaining and len(conflicts) < PROPOSALS:
        newest = max(remaining)
        expected: list[Question] = []
        if not conflicts and _allows(first.with_torches({newest}), session):
            # The other targets need not wait for the first one.
            expected = [one.with_torches({newest}) for one in others]
        asked = [first.with_torches(remaining), *expected]
        proposal, *answers = resolve_all(asked)
        if isinstance(proposal, Conflict):
            conflicts.append(proposal)
            break
        torch = proposal.choice.build.torch
        together = _with_conflicting([proposal, *answers])
        is_settled = not isinstance(together, Conflict) and not any(
            one.apart for one in together
        )
        if not expected or torch != newest or not is_settled:
            following = [
                _preferring(proposal, one.with_torches({torch})) for one in others
            ]
            together = _with_conflicting([proposal, *resolve_all(following)])
        if not isinstance(together, Conflict):
            order = [str(question.target) for question in questions]
            return sorted(together, key=lambda one: order.index(str(one.target)))
        conflicts.append(together)
        remaining -= {torch}
    # The first conflict is about the latest torch.
    return conflicts[0]


def _allows(question: Question, session: Session) -> bool:
    """Return whether the latest programs allow the torch of an input."""
    return Resolver(question, session).all_newest()


def _preferring(proposal: Resolution, question: Question) -> Question:
    """Return another target's input that prefers the first one's versions."""
    family = question.catalog.family
    versions = {
        name: version
        for name, version in proposal.versions.items()
        if name not in family
    }
    alternative = question.alternative
    preferences = {**versions, **alternative.preferences}
    return replace(question, alternative=replace(alternative, preferences=preferences))


def _with_conflicting(
    answers: Iterable[Resolution | Conflict],
) -> Resolutions | Conflict:
    """Mark packages whose versions differ by target, or return a conflict."""
    resolutions: Resolutions = []
    versions: dict[str, set[str]] = defaultdict(set)
    for answer in answers:
        if isinstance(answer, Conflict):
            return answer
        resolutions.append(answer)
        wanted = answer.request
        for name, version in answer.versions.items():
            # If each target has its own torch, the torch-family packages differ, too.
            if wanted.request.newest_per_target or name not in wanted.catalog.family:
                versions[name].add(Version(version).public)
    conflicting = {name for name, different in versions.items() if len(different) > 1}
    return [
        replace(one, apart=frozenset(conflicting & one.versions.keys()))
        for one in resolutions
    ]


def _resolve_one(question: Question, session: Session) -> Resolution | Conflict:
    """Resolve for one target."""
    resolver = Resolver(question, session)
    outcome = resolver.resolve()
    if isinstance(outcome, Refused):
        return refusal_of(outcome, resolver)
    explanation = AnswerExplanation(outcome, resolver)
    resolution = checked(
        outcome.answer.packages,
        question.wanted,
        _plan(outcome, explanation),
        family=resolver.index.names(),
        pages=served_pages(
            question, outcome.known, resolver.index, chosen=outcome.answer.build
        ),
        prebuilt={**question.files, **outcome.known.files},
        locked=question.alternative.hashes,
        session=session,
    )
    dropped = {
        pin.name: pin
        for pin in question.alternative.optional_pins
        if pin.name in outcome.answer.dropped
    }
    return replace(resolution.with_warnings(explanation.warnings()), relaxed=dropped)


def _plan(outcome: Resolved, explanation: AnswerExplanation) -> Plan:
    """Return the plan of a resolution, with reasons for older releases."""
    question = outcome.question
    plan = question.plan
    if not question.is_open:
        reasons = [Reason(PROGRAM_HELD_BACK, text) for text in explanation.older()]
        return replace(plan, reasons=(*plan.reasons, *reasons))
    wanted = without_versions(question.narrowed, outcome.answer.dropped)
    choice = wanted.outcome_with(
        torch=question.alternative.torch,
        python=question.python,
        programs=explanation.constraints(),
    )
    return plan_or_raise(choice, question.wanted.machine)
