"""A request that cannot be met as it is written, met as near to its words as a machine can.

torch moves first, and with it what its build decides (``gpuinstall.plan.relax``). Every other pin stays, and if one
cannot, each alone is tried; then uv is let choose, the last named first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from gpuinstall.base.errors import (
    GpuInstallError,
    InstallationError,
)
from gpuinstall.base.finding import Reason
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.text import some
from gpuinstall.base.values import replace
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.project import read_folder_project
from gpuinstall.lock.solve.attempt import resolve_near
from gpuinstall.lock.solve.problem import (
    Near,
    Requests,
    pose_together,
    without_versions,
)
from gpuinstall.lock.solve.remarks import NO_CODE, shortened
from gpuinstall.lock.uv.errors import BUILD_FAILED, Conflict, failed_package
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.relax import RelaxedRequest, nearest_request, version_limits
from gpuinstall.sources.session import Session

Pins = tuple[Requirement, ...]

ALONE = 6
"""How many pins are tried alone, the last named first."""

_REFUSALS_OF_PINS = {"requirements-conflict", NO_CODE}
"""The codes of refusals that other versions of what is pinned may end."""

_FAILURES_OF_A_VERSION = {BUILD_FAILED, "build-needs-torch"}
"""The codes of failures that another version of the package, one that has a wheel, may not have."""


def resolve_relaxed(
    requests: Requests,
    refusal: GpuInstallError,
    session: Session,
) -> list[Resolution]:
    """Resolve what is nearest to requests that cannot be met as they are written.

    Args:
        requests: One for each target, as the sources list it.
        refusal: What they were refused with.
        session: The sources and the clients of the run.

    Raises:
        GpuInstallError: ``refusal`` if no torch that runs here serves the rest of the request, or what stands against
            the last trial.
    """
    opened, metadata = _with_requirements_of_folders(requests, session)
    refusals = [one.outcome for one in opened if isinstance(one.outcome, Rejected)]
    moved: list[Requirement] = []
    if refusals:
        nearest = _nearest_request(opened)
        if nearest is None:
            raise refusal
        moved = list(nearest.moved)
        opened = [
            one.asking(
                requirements=nearest.request.requirements,
                constraints=nearest.request.constraints,
            )
            for one in opened
        ]
    pins = _pins_of_programs(opened)
    # Which pins may give way: none, each alone, then all of them.
    alone = [(pin,) for pin in reversed(pins[-ALONE:])]
    nothing: Pins = ()
    concessions = dict.fromkeys((nothing, *alone, pins))
    trials = deque((yielding, nothing) for yielding in concessions)
    why = ""
    while trials:
        yielding, failed = trials.popleft()
        # Nothing of a lock stays that was made for other words.
        near = Near(yielding=yielding, metadata=metadata)
        names = {pin.name for pin in failed}
        trial = [without_versions(one, names) for one in opened]
        try:
            answer = resolve_near(trial, near, session)
        except InstallationError as error:
            if error.code not in _FAILURES_OF_A_VERSION:
                raise
            answer = Conflict(error)
            name = failed_package(error)
            left = tuple(pin for pin in yielding if pin.name != name)
            if left != yielding:
                others = tuple(pin for pin in yielding if pin not in left)
                trials.appendleft((left, failed + others))
                continue
        if not isinstance(answer, Conflict):
            why_torch = ""
            if refusals:
                why_torch = refusals[0].reasons[0].message
            return [_explained(one, moved, why, why_torch, failed) for one in answer]
        why = why or answer.why
        refusal = answer.error
    raise refusal


def name_relax(
    requests: Requests,
    refusal: GpuInstallError,
    session: Session,
) -> None:
    """Name ``--relax`` in a refusal, if an answer has all but some of the pins.

    Nobody has asked for it yet, so it is looked for in silence, and nothing is built.

    Args:
        requests: One for each target.
        refusal: The error; its hint is added to.
        session: The sources, and what asks them.
    """
    pins = _pins_of_programs(requests)
    if not pins or refusal.code not in _REFUSALS_OF_PINS:
        return
    sourcing = replace(session.sourcing, only_binary=True)
    quiet = replace(session, reporter=Reporter(), sourcing=sourcing)
    with suppress(GpuInstallError):
        answer = resolve_near(requests, Near(yielding=pins), quiet)
        if not isinstance(answer, Conflict):
            fallen = some([*map(str, answer[0].relaxed.values())])
            hint = f"Run it again with --relax: there is an answer without {fallen}"
            hints = filter(None, (hint, refusal.hint))
            refusal.hint = "\n".join(hints)


def _pins_of_programs(requests: Requests) -> Pins:
    family = requests[0].catalog.family
    limits = version_limits(requests[0].request)
    return tuple(one for one in limits if one.name not in family)


def _with_requirements_of_folders(
    requests: Requests,
    session: Session,
) -> tuple[list[LockRequest], tuple[Mapping[str, Any], ...]]:
    """Request what the projects in folders require in their place, so that it can give way.

    Returns:
        The requests, and the rows with which the projects themselves require nothing.
    """
    requirements = dict.fromkeys(requests[0].request.requirements)
    rows = []
    for requirement in requests[0].request.requirements:
        project = read_folder_project(requirement, session.folder)
        if project:
            row, required = project
            rows.append(row)
            requirements.update(dict.fromkeys(required))
    opened = [one.asking(requirements=tuple(requirements)) for one in requests]
    return opened, tuple(rows)


def _nearest_request(requests: Requests) -> RelaxedRequest | None:
    """Return the request with the nearest torch that every target can have."""

    def outcome(candidate: Request) -> Plan | Rejected | None:
        attempts = []
        for request in requests:
            own = replace(candidate, backend=request.request.backend)
            attempts.append(replace(request, request=own))
        # What lies on an index that does not answer cannot be had either.
        with suppress(GpuInstallError):
            return pose_together(attempts)[0].plan
        return None

    return nearest_request(requests[0].request, requests[0].catalog, outcome)


def _explained(
    resolution: Resolution,
    moved: Sequence[Requirement],
    why: str,
    why_torch: str,
    failed: Pins,
) -> Resolution:
    """Return a resolution that tells what has moved and why; its lock records it.

    Args:
        resolution: What the relaxed request came to, with the pins that gave way.
        moved: The requirements of torch, and of what goes with it, that are not held to.
        why: What stood against the request with every pin.
        why_torch: Why the torch that was requested does not run.
        failed: The pins of what cannot be built.
    """
    versions = resolution.versions
    causes: dict[Requirement, str] = {}
    for requirement in moved:
        causes[requirement] = f"it goes with torch {versions['torch']}"
        if requirement.name == "torch":
            causes[requirement] = why_torch
    for requirement in resolution.relaxed.values():
        causes[requirement] = shortened(why)
    for pin in failed:
        causes[pin] = "it has no wheel here, and building it failed"
    reasons = []
    for requirement, cause in causes.items():
        name = requirement.name
        now = f"{name} {versions[name]}" if name in versions else f"no {name}"
        reasons.append(
            Reason("relaxed", f"{now} instead of {requirement.text}: {cause}")
        )
    relaxed = {requirement.name: requirement for requirement in causes}
    return replace(resolution.with_warnings(reasons), relaxed=relaxed)
