"""Why no newer torch: the one sentence that says what decides, the driver, the chip, the request or the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuinstall.plan.candidates import closest, codes_of, has_code, runs
from gpuinstall.plan.rules import NOT_THERE
from gpuinstall.plan.values import HELD_BACK, Reason, Rejection

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuinstall.plan.candidates import Candidate
    from gpuinstall.plan.context import PlanContext

_ASKED = {"other-torch", "other-backend", "not-allowed"}


def newest_reason(best: Candidate, rejected: Iterable[Rejection], context: PlanContext) -> Reason:
    """Say that it is the newest torch, or what keeps a newer one away.

    The driver does where another driver would run a newer one, the chip where none would.
    """
    newer = [found for found in rejected if found.build.torch > best.build.torch]
    if hidden := _newest_seen(best, newer, context):
        return hidden
    there = [found for found in newer if found.code not in NOT_THERE]
    coded = [found for found in there if found.build.unread or has_code(found.build, context)]
    running = [found for found in coded if runs(found.build, context)]
    if blocking := closest((found for found in running if found.code not in _ASKED), context.rules):
        return _newest_but(best, blocking)
    if any(found.code in context.rules.driver_reasons for found in coded):
        newest = f"{best.build.torch} is the newest torch{_asked(running)}"
        return Reason("newest-for-driver", f"{newest} that {context.rules.driver} runs")
    if blocking := closest((found for found in coded if found.code not in _ASKED), context.rules):
        return _newest_but(best, blocking)
    if blocking := closest((found for found in there if found.code not in _ASKED), context.rules):
        return _newest_with_code(best, blocking, _asked(coded), context)
    return _newest_asked_for(best, newer, context)


def _newest_seen(best: Candidate, newer: list[Rejection], context: PlanContext) -> Reason | None:
    """Say that a newer one is not what the programs want, unknown, or in no source that answers."""
    torch = best.build.torch
    for found in newer:
        if found.code == HELD_BACK:
            return Reason(HELD_BACK, f"{found.message}; without it torch {found.build.torch} would run here")
    unknown = next((found.build.name for found in newer if found.code == "not-in-catalogue"), None)
    if unknown:
        known = f"{torch} is the newest torch that the catalogue of {context.catalog.date} knows"
        return Reason("newest-known", f"{known}; {unknown} is on the index")
    if any(found.code == "unreachable" for found in newer):
        return Reason("newest-reachable", f"{torch} is the newest torch in the sources that can be reached")
    return None


def _newest_asked_for(best: Candidate, newer: list[Rejection], context: PlanContext) -> Reason:
    torch, asked = best.build.torch, _ASKED & {found.code for found in newer}
    if asked == {"other-backend"}:
        return Reason("newest-of-backend", f"{torch} is the newest torch that has a {best.build.backend} build")
    if asked == {"not-allowed"}:
        return Reason("newest-allowed", f"{torch} is the newest torch that the allowed backends have")
    rules, newest = context.rules, f"{torch} is the newest torch" + " that was asked for" * bool(asked)
    elsewhere = not newer and best.build.backend.kind == rules.kind and any(other > torch for other in context.ages)
    return Reason("newest-torch", newest + f" with a build for {rules.name} GPUs" * elsewhere)


def _asked(found: list[Rejection]) -> str:
    """Restrict a sentence where there is a newer torch that was not asked for."""
    return " asked for" if any(each.code in _ASKED for each in found) else ""


def _newest_but(best: Candidate, blocking: Rejection) -> Reason:
    message = f"{best.build.torch} is the newest that fits; {blocking.build.name}: {blocking.message}"
    return Reason(f"newest-but-{blocking.code}", message)


def _newest_with_code(best: Candidate, blocking: Rejection, asked: str, context: PlanContext) -> Reason:
    """Say which chip a newer build has no code for, whatever it was rejected for."""
    lacking = next((code for code in codes_of(blocking.build, context) if isinstance(code, Reason)), None)
    if lacking is None or lacking.code != "no-code":
        return _newest_but(best, Rejection(blocking.build, *lacking) if lacking else blocking)
    gpus = sorted(context.architectures.values(), key=context.rules.rank)
    chips = " and ".join(context.rules.architecture(gpu) or gpu.label for gpu in gpus)
    ends = context.rules.lacks(blocking.build, gpus)
    return Reason("newest-with-code", f"the newest torch{asked} with code for {chips}: {blocking.build.name} {ends}")
