"""Search for the best answer of a lane, and keep what must not change."""

from __future__ import annotations

from gpuinstall.base.advice import make_change, make_shell_line
from gpuinstall.base.errors import NoBuildError
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.base.versions import parse_public_version
from gpuinstall.lock.resolve.facts import Facts
from gpuinstall.lock.resolve.found import (
    TORCH_ADDED,
    Found,
    Refused,
    is_torch_added,
)
from gpuinstall.lock.resolve.improve import improve
from gpuinstall.lock.resolve.lane import Lane
from gpuinstall.lock.resolve.settle import refuse, settle
from gpuinstall.lock.uv.conflict import Conflict


def search(lane: Lane) -> Found | Refused:
    """Return the best answer of a lane, with the latest possible releases.

    Raises:
        InstallationError: uv fails for a reason other than the request.
    """
    # Check URLs first: resolving a package from the wrong index can run its code.
    known = Facts(requirements=lane.find_nested_requirements())
    outcome = settle(lane.question, known, lane)
    if isinstance(outcome, Refused):
        return outcome
    if lane.question.is_strict:
        return _keep_torch(outcome, lane)
    outcome = improve(outcome, lane)
    if isinstance(outcome, Refused):
        return outcome
    return _keep_project_versions(outcome, lane)


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
    return refuse(lane.question, Conflict(error), found.known, lane)


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
    outcome = settle(pinned, found.known, lane, answer)
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
    return refuse(question, Conflict(error), outcome.known, lane)
