"""Resolve a request that cannot be satisfied as written, with fewer pins.

The pins of torch and of packages that its build determines are relaxed first. Other
pins are kept if possible: first all of them, then all except one, then any subset. Then
pinned packages must have wheels, unless no such resolution exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from gpuinstall.base.advice import make_change
from gpuinstall.base.errors import GpuInstallError, InstallationError
from gpuinstall.base.finding import Reason
from gpuinstall.base.request import Request
from gpuinstall.base.requirement import Requirement
from gpuinstall.base.text import join_names
from gpuinstall.base.values import replace
from gpuinstall.lock.request.lock_request import LockRequest
from gpuinstall.lock.request.project import read_folder_project
from gpuinstall.lock.resolve.question import (
    Alternative,
    Requests,
    create_questions,
)
from gpuinstall.lock.uv.conflict import Conflict
from gpuinstall.lock.uv.errors import BUILD_FAILED
from gpuinstall.lock.uv.resolution import Resolution
from gpuinstall.plan import Plan, Rejected
from gpuinstall.plan.relax import (
    RelaxedRequest,
    find_nearest_request,
    list_version_limits,
)

Pins = tuple[Requirement, ...]
Attempt = tuple[Requests, frozenset[str], Pins]
"""The requests, the packages that are not built, and the optional pins."""
ResolveAlternative = Callable[[Requests, Alternative], list[Resolution] | Conflict]

PINS_ALONE = 6
"""Maximum number of pins to drop individually, last one first."""

_FAILED_BUILDS = {BUILD_FAILED, "build-needs-torch"}
"""The codes of errors that a version with a wheel may avoid."""


def resolve_relaxed(
    requests: Requests,
    refusal: GpuInstallError,
    resolve: ResolveAlternative,
    folder: Path,
) -> list[Resolution]:
    """Resolve the nearest satisfiable requests for ``--relax``.

    Args:
        requests: The request for each target, with the builds that the sources list.
        refusal: The error of the requests as written.
        resolve: Resolves one alternative.
        folder: The folder to which paths are relative.

    Raises:
        GpuInstallError: No torch that runs is compatible with the rest of the request,
            or the last alternative failed.
    """
    opened, metadata = _separate_project_requirements(requests, folder)
    refusals = [one.outcome for one in opened if isinstance(one.outcome, Rejected)]
    causes: dict[Requirement, str] = {}
    if refusals:
        nearest = _find_nearest_request(opened)
        if nearest is None:
            suggest_running_targets(requests, refusal)
            raise refusal
        cause = refusals[0].reasons[0].message
        dropped = nearest.dropped_requirements
        causes = {one: cause if one.name == "torch" else "" for one in dropped}
        opened = [
            one.with_request_changes(
                requirements=nearest.request.requirements,
                constraints=nearest.request.constraints,
            )
            for one in opened
        ]
    attempts = _list_attempts(opened)
    if refusals:
        # Another package may require a torch that is not the nearest one.
        attempts.append(_allow_any_torch(opened, causes))
    why = ""
    for variant, wheels_only, optional in attempts:
        # Ignore locked versions, which were selected for another request.
        alternative = Alternative(
            optional_pins=optional, wheels_only=wheels_only, metadata=metadata
        )
        outcome = _resolve_with_builds(variant, alternative, resolve)
        if not isinstance(outcome, Conflict):
            return [_explain_relaxation(one, causes, why) for one in outcome]
        why = why or outcome.error.why or outcome.error.message
        refusal = outcome.error
    raise refusal


def _allow_any_torch(requests: Requests, changed: Iterable[Requirement]) -> Attempt:
    """Return an attempt with any torch, in which all pins are optional."""
    of_torch = (one for one in changed if one.name == "torch")
    requirements = tuple(
        one.with_specifier("") if one.name == "torch" and not one.url else one
        for one in requests[0].request.requirements
    )
    free = [one.with_request_changes(requirements=requirements) for one in requests]
    return free, frozenset(), (*of_torch, *_find_program_pins(requests))


def _resolve_with_builds(
    requests: Requests,
    alternative: Alternative,
    resolve: ResolveAlternative,
) -> list[Resolution] | Conflict:
    """Resolve an alternative. Other versions may need no failed build."""
    try:
        return resolve(requests, alternative)
    except InstallationError as error:
        if error.code not in _FAILED_BUILDS:
            raise
        return Conflict(error)


def suggest_running_targets(requests: Requests, refusal: GpuInstallError) -> None:
    """Suggest the targets with a plan if others have none."""
    running = [one.label for one in requests if isinstance(one.outcome, Plan)]
    if 0 < len(running) < len(requests):
        options = [word for label in running for word in ("--target", label)]
        refusal.fixes = (make_change(*options, note="locks only these targets"),)


def _find_program_pins(requests: Requests) -> Pins:
    limits = list_version_limits(requests[0].request)
    # The build determines torch.
    return tuple(one for one in limits if one.name != "torch")


def _list_attempts(requests: Requests) -> list[Attempt]:
    """Return the attempts with the nearest torch, in order.

    Another version with a wheel is better than building the pinned version.
    """
    pins = _find_program_pins(requests)
    nothing = frozenset[str]()
    with_wheels = frozenset(pin.name for pin in pins)
    optional = [*((pin,) for pin in reversed(pins[-PINS_ALONE:])), pins]
    order = [(nothing, ()), *product((with_wheels, nothing), optional)]
    return [(requests, *attempt) for attempt in dict.fromkeys(order)]


def _separate_project_requirements(
    requests: Requests,
    folder: Path,
) -> tuple[list[LockRequest], tuple[Mapping[str, Any], ...]]:
    """Request local projects' requirements separately, so pins can be dropped.

    Returns:
        The requests, and METADATA of the projects without requirements.
    """
    requirements = dict.fromkeys(requests[0].request.requirements)
    rows = []
    for requirement in requests[0].request.requirements:
        project = read_folder_project(requirement, folder)
        if project:
            row, required = project
            rows.append(row)
            requirements.update(dict.fromkeys(required))
    opened = [
        one.with_request_changes(requirements=tuple(requirements)) for one in requests
    ]
    return opened, tuple(rows)


def _find_nearest_request(requests: Requests) -> RelaxedRequest | None:
    """Return a request for the nearest torch that runs on all targets."""

    def outcome(candidate: Request) -> Plan | Rejected | None:
        alternatives = []
        for request in requests:
            own = replace(candidate, backend=request.request.backend)
            alternatives.append(replace(request, request=own))
        # An unreachable index cannot provide a build.
        with suppress(GpuInstallError):
            return create_questions(alternatives)[0].plan
        return None

    return find_nearest_request(requests[0].request, requests[0].catalog, outcome)


def _explain_relaxation(
    resolution: Resolution, changed: Mapping[Requirement, str], why: str
) -> Resolution:
    """Return a resolution with the requirements that it does not satisfy.

    Args:
        resolution: The resolution of the relaxed request.
        changed: The requirements of torch and of packages that its build determines,
            each with the reason for the change, if it is not torch's version.
        why: The conflict of the request with all pins.
    """
    versions = resolution.versions
    torch = f"torch {versions['torch']}"
    messages = []
    removed = []
    relaxed = {}
    for one in (*changed, *resolution.relaxed.values()):
        version = versions.get(one.name)
        if version and one.allows(version):
            continue
        relaxed[one.name] = one
        if version:
            cause = changed.get(one, why) or f"it is the version for {torch}"
            messages.append(f"{one.name} {version} instead of {one.text}: {cause}")
        else:
            removed.append(one.text)
    if removed:
        names = join_names(removed)
        messages.append(f"without {names}, which {torch} does not require")
    reasons = [Reason("relaxed", message) for message in messages]
    return replace(resolution.with_warnings(reasons), relaxed=relaxed)
