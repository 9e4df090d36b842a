"""Resolutions in which every package has code for the GPUs: what has none gives way until nothing is left to do."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpuinstall.errors import NoBuildError
from gpuinstall.lock.code_check import HINT, CodeCheck
from gpuinstall.lock.resolver import ConflictError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuinstall.lock.code_check import Exclusion
    from gpuinstall.lock.request import LockRequest
    from gpuinstall.lock.resolution import Resolution
    from gpuinstall.lock.resolver import VersionPins
    from gpuinstall.plan.values import Reason
    from gpuinstall.session import Session

    Resolve = Callable[[Sequence[LockRequest], VersionPins], list[Resolution]]

ROUNDS = 8


def with_code(
    resolve: Resolve, requests: Sequence[LockRequest], pins: VersionPins, session: Session
) -> list[Resolution]:
    """Resolve until every package has code for the GPUs; what had to give way is a warning of the plan.

    Raise NoBuildError where nothing helps.
    """
    given: list[Reason] = []
    for _ in range(ROUNDS):
        try:
            done = resolve(requests, pins)
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
