"""Resolutions that agree: one version of every shared package for all targets, and code for the GPUs in every package.

A package without code gives way until nothing is left to do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.errors import InstallationError, NoBuildError
from gpuinstall.lock.code_check import HINT, CodeCheck
from gpuinstall.lock.joint import resolve_jointly
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import plan_locks
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve_for_here
from gpuinstall.lock.uv_failure import ConflictError
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gpuinstall.lock.code_check import Exclusion
    from gpuinstall.lock.request import LockRequest, PlannedLock, VersionPins
    from gpuinstall.plan.values import Reason
    from gpuinstall.session import Session
    from gpuinstall.web import UnreachableError

    ResolveWithin = Callable[[PlannedLock, tuple[str, ...]], Resolution | ConflictError]

EXCLUSIONS = 8
"""How often packages may give way."""
ALIGNMENTS = 3


def agree_with_code(
    requests: Sequence[LockRequest], pins: VersionPins, session: Session, *, newest: bool
) -> list[Resolution]:
    """Resolve until every package has code for the GPUs; what had to give way is a warning of the plan.

    Raise NoBuildError where nothing helps.
    """
    given: list[Reason] = []
    for _ in range(EXCLUSIONS):
        try:
            done = agree(requests, pins, session, newest=newest)
        except ConflictError as conflict:
            raise _hopeless(given, conflict) if given else conflict from conflict
        checks = [CodeCheck(resolution, session) for resolution in done]
        found = [check.exclusions() for check in checks]
        if not any(found):
            return [_warned(each, (*given, *check.remarks())) for each, check in zip(done, checks, strict=True)]
        given += dict.fromkeys(each.said for exclusions in found for each in exclusions)
        session.reporter.step("Code", given[-1].message)
        pins = pins.within(tuple(each.constraint for one in found for each in one if each.constraint))
        requests = [_without(*each) for each in zip(requests, found, strict=True)]
    raise _hopeless(given)


def agree_from_cache(
    requests: Sequence[LockRequest],
    pins: VersionPins,
    session: Session,
    unreachable: UnreachableError,
    *,
    newest: bool,
) -> list[Resolution]:
    """Let uv resolve with what it holds; what the rules alone refuse is refused as ever."""
    try:
        plan_locks(requests, newest=newest)
    except InstallationError:
        raise unreachable from None
    try:
        agreed = agree(requests, pins, session.from_cache(), newest=newest)
    except (InstallationError, NoBuildError):
        raise unreachable from None
    session.reporter.warn(f"{unreachable.host} cannot be reached, {unreachable.why}; uv's cache serves instead")
    return agreed


def agree(requests: Sequence[LockRequest], pins: VersionPins, session: Session, *, newest: bool) -> list[Resolution]:
    """Choose and resolve: the family alone by the rules, programs and torch together."""

    def resolve_within(planned: PlannedLock, bounds: tuple[str, ...] = ()) -> Resolution | ConflictError:
        return resolve_for_here(planned, pins.within(bounds), session)

    planned = plan_locks(requests, newest=newest)
    if names_programs(requests[0].request.requirements):
        together = [[one] for one in planned] if newest else [planned]
        done = [each for group in together for each in resolve_jointly(group, pins, session)]
    else:
        done = [_without_conflict(answer) for answer in side_by_side(resolve_within, planned, TARGETS_AT_ONCE)]
    return _align_versions(done, requests[0].catalog.family, resolve_within)


def _align_versions(
    resolutions: Sequence[Resolution], family: Collection[str], resolve_within: ResolveWithin
) -> list[Resolution]:
    """Lower every package outside the family to the oldest version that a target has."""
    now = list(resolutions)
    for _ in range(ALIGNMENTS):
        bounds = _bounds(now, family)
        if not any(_above(resolution, bounds) for resolution in now):
            break
        now = side_by_side(partial(_lowered, bounds=bounds, resolve_within=resolve_within), now, TARGETS_AT_ONCE)
    return now


def _without_conflict(answer: Resolution | ConflictError) -> Resolution:
    if isinstance(answer, ConflictError):
        raise answer
    return answer


def _bounds(resolutions: Sequence[Resolution], family: Collection[str]) -> dict[str, str]:
    """The oldest version of each package."""
    oldest: dict[str, str] = {}
    for resolution in resolutions:
        for name, version in resolution.versions.items():
            oldest[name] = min(version, oldest.get(name, version), key=Version)
    return {name: version for name, version in sorted(oldest.items()) if name not in family}


def _above(resolution: Resolution, bounds: Mapping[str, str]) -> list[str]:
    """The packages that it has newer than ``bounds``, although nothing stands against the older version."""
    newer = (name for name, version in resolution.versions.items() if version != bounds.get(name, version))
    return sorted(name for name in newer if name not in resolution.apart)


def _lowered(resolution: Resolution, bounds: Mapping[str, str], resolve_within: ResolveWithin) -> Resolution:
    """Resolve again below ``bounds``; where they do not go together, below as many of them as can be kept."""
    above = _above(resolution, bounds)
    if not above:
        return resolution
    planned, apart = resolution.planned, dict(resolution.apart)
    within = {name: f"{name}<={version}" for name, version in bounds.items() if name not in apart}
    answer = resolve_within(planned, tuple(within.values()))
    if isinstance(answer, Resolution):
        return replace(answer, apart=apart)
    kept = tuple(bound for name, bound in within.items() if name not in above)
    for name in above:
        answer = resolve_within(planned, (*kept, within[name]))
        if isinstance(answer, Resolution):
            resolution, kept = answer, (*kept, within[name])
        else:
            apart[name] = answer.why or answer.message
    return replace(resolution, apart=apart)


def _without(request: LockRequest, exclusions: Iterable[Exclusion]) -> LockRequest:
    """The same without builds of torch."""
    excluded = tuple(f"torch!={each.build.name}" for each in exclusions if each.build)
    asked = replace(request.request, requirements=(*request.request.requirements, *excluded))
    return replace(request, request=asked)


def _warned(resolution: Resolution, given: Iterable[Reason]) -> Resolution:
    plan = resolution.planned.plan
    told = replace(plan, warnings=(*plan.warnings, *given))
    return replace(resolution, planned=replace(resolution.planned, plan=told))


def _hopeless(given: Sequence[Reason], conflict: ConflictError | None = None) -> NoBuildError:
    return NoBuildError(
        "no-code-in-package",
        given[-1].message,
        why=(conflict.why or conflict.message) if conflict else "each older one that was tried has none either",
        hint=HINT,
    )
