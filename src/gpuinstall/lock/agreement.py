"""Resolutions that agree: one version of every shared package for all targets, and code for the GPUs in every package.

A package without code gives way until nothing is left to do.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from packaging.version import Version

from gpuinstall.errors import NoBuildError
from gpuinstall.lock.code_check import HINT, CodeCheck, Exclusion
from gpuinstall.lock.joint import resolve_jointly
from gpuinstall.lock.programs import names_programs
from gpuinstall.lock.request import LockRequest, agree_on_torch
from gpuinstall.lock.resolution import TARGETS_AT_ONCE, Resolution, resolve
from gpuinstall.lock.uv_failure import Conflict
from gpuinstall.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuinstall.plan.values import Reason
    from gpuinstall.session import Session

    Resolutions = list[Resolution]

EXCLUSIONS = 8
"""How often packages may give way."""
ALIGNMENTS = 3
"""How often the targets are lowered to each other: one that was lowered may lead the others on."""


def agree_with_code(
    requests: Sequence[LockRequest], session: Session, *, newest: bool = False
) -> Resolutions | Conflict:
    """Resolve until every package has code for the GPUs; what had to give way is a warning of the plan."""
    reasons: list[Reason] = []
    stuck, moved, before = set[str](), set[str](), (requests, reasons)
    for _ in range(EXCLUSIONS):
        resolved = agree(requests, session, newest=newest)
        if isinstance(resolved, Conflict) and moved:  # these go with no other build of torch
            (requests, reasons), stuck, moved = before, stuck | moved, set()
            continue
        if isinstance(resolved, Conflict):
            return _hopeless(reasons, resolved.why) if reasons else resolved
        checks = [CodeCheck(resolution, session) for resolution in resolved]
        exclusions = [check.exclusions(stuck) for check in checks]
        if not any(exclusions):
            return [one.warned_of((*reasons, *check.remarks())) for one, check in zip(resolved, checks, strict=True)]
        every, before = [exclusion for group in exclusions for exclusion in group], (requests, reasons)
        reasons = [*reasons, *dict.fromkeys(exclusion.said for exclusion in every)]
        session.reporter.step("Code", reasons[-1].message)
        moved = {exclusion.program for exclusion in every} - {""}
        constraints = [exclusion.constraint for exclusion in every]
        requests = [_without(*each, constraints) for each in zip(requests, exclusions, strict=True)]
    return _hopeless(reasons, "the older versions that were tried have none either")


def agree(requests: Sequence[LockRequest], session: Session, *, newest: bool = False) -> Resolutions | Conflict:
    """Choose and resolve: the family alone by the rules, programs and torch together."""
    planned = agree_on_torch(requests, newest=newest)
    if names_programs(requests[0].request.requirements):
        groups = [resolve_jointly(group, session) for group in ([[one] for one in planned] if newest else [planned])]
    else:
        answers = side_by_side(partial(resolve, session=session), planned, TARGETS_AT_ONCE)
        groups = [answer if isinstance(answer, Conflict) else [answer] for answer in answers]
    resolved: Resolutions = []
    for group in groups:
        if isinstance(group, Conflict):
            return group
        resolved += group
    return _align_versions(resolved, requests[0].catalog.family, session)


def _without(request: LockRequest, exclusions: Sequence[Exclusion], constraints: Iterable[str]) -> LockRequest:
    """The same without builds of torch, within further constraints and with the libraries that are missing."""
    names = frozenset[str]().union(*(exclusion.builds for exclusion in exclusions))
    catalog = request.catalog.without(lambda build: build.name in names, "without-code")
    libraries = dict.fromkeys((*request.libraries, *(name for one in exclusions for name in one.libraries)))
    pins = request.pins.within(*constraints)
    return replace(request, catalog=catalog, pins=pins, libraries=tuple(libraries))


def _align_versions(resolutions: Resolutions, family: Collection[str], session: Session) -> Resolutions:
    """Lower every package outside the family to the oldest version that a target has."""
    for _ in range(ALIGNMENTS):
        oldest: dict[str, str] = {}
        for resolution in resolutions:
            for name, version in resolution.versions.items():
                oldest[name] = min(version, oldest.get(name, version), key=Version)
        shared = {name: version for name, version in sorted(oldest.items()) if name not in family}
        if not any(_above(resolution, shared) for resolution in resolutions):
            break
        lower = partial(_lowered, versions=shared, session=session)
        resolutions = side_by_side(lower, resolutions, TARGETS_AT_ONCE)
    return resolutions


def _above(resolution: Resolution, versions: Mapping[str, str]) -> list[str]:
    """The packages that it has newer than ``versions``, although nothing stands against the older one."""
    newer = (name for name, version in resolution.versions.items() if version != versions.get(name, version))
    return sorted(name for name in newer if name not in resolution.apart)


def _lowered(resolution: Resolution, versions: Mapping[str, str], session: Session) -> Resolution:
    """Resolve again at ``versions`` or below; where they do not go together, with as many of them as can be kept."""
    above = _above(resolution, versions)
    if not above:
        return resolution
    request, apart = resolution.request, dict(resolution.apart)
    bounds = {name: f"{name}<={version}" for name, version in versions.items() if name not in apart}
    answer = resolve(request, session, bounds.values())
    if isinstance(answer, Resolution):
        return replace(answer, apart=apart)
    kept = [bound for name, bound in bounds.items() if name not in above]
    for name in above:
        answer = resolve(request, session, [*kept, bounds[name]])
        if isinstance(answer, Resolution):
            resolution, kept = answer, [*kept, bounds[name]]
        else:
            apart[name] = answer.why
    return replace(resolution, apart=apart)


def _hopeless(reasons: Sequence[Reason], why: str) -> Conflict:
    return Conflict(NoBuildError("no-code-in-package", reasons[-1].message, why=why, hint=HINT))
