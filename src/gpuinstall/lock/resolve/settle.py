"""Ask uv and inspect wheels until there is no new fact."""

from __future__ import annotations

from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.values import replace
from gpuinstall.lock.resolve.ask import ask
from gpuinstall.lock.resolve.facts import Answer, Facts
from gpuinstall.lock.resolve.found import Found, Refused
from gpuinstall.lock.resolve.inspect import inspect
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.question import Question
from gpuinstall.lock.uv.conflict import Conflict

TURNS = 12
"""Maximum number of uv runs with new facts for one question."""


def settle(
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
            return refuse(question, outcome, known, lane)
    message = (
        f"no compatible versions found after {TURNS} attempts: too many candidates "
        "require another CUDA version or lack code for these GPUs"
    )
    hint = "Pin versions that are known to work"
    error = NoBuildError("search-ended", message, hint=hint)
    return refuse(question, Conflict(error), known, lane)


def refuse(question: Question, conflict: Conflict, known: Facts, lane: Lane) -> Refused:
    """Return the refusal of a question, with its lower bounds."""
    bounds = frozenset(one.text for one in question.bounds)
    return Refused(question, replace(conflict, bounds=bounds), known, lane.builds)
