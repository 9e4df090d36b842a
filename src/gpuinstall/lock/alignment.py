"""One version of every shared package for all targets, as far as each can have it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from packaging.version import Version

from gpuinstall.lock.draft import Draft

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gpuinstall.lock.request import PlannedLock
    from gpuinstall.lock.resolution import ConflictError

    Resolve = Callable[[PlannedLock, tuple[str, ...]], Draft | ConflictError]

T = TypeVar("T")

ROUNDS = 3
AT_ONCE = 6


@dataclass(frozen=True)
class Agreement:
    """An aim with its plan and choice, and the resolution of what was chosen.

    ``apart`` says by package why it could not have the version that the other targets have.
    """

    settled: PlannedLock
    draft: Draft
    apart: Mapping[str, str] = field(default_factory=dict)

    def above(self, bounds: Mapping[str, str]) -> list[str]:
        """The packages that it has newer than ``bounds``, although nothing stands against the older version."""
        newer = (name for name, version in self.draft.versions.items() if version != bounds.get(name, version))
        return sorted(name for name in newer if name not in self.apart)


def aligned(agreements: Sequence[Agreement], family: Collection[str], resolve: Resolve) -> list[Agreement]:
    """Lower every package outside the family to the oldest version that a target has; ``resolve`` takes bounds."""
    now = list(agreements)
    for _ in range(ROUNDS):
        bounds = _bounds(now, family)
        if not any(agreement.above(bounds) for agreement in now):
            break
        now = side_by_side([partial(_lowered, agreement, bounds, resolve) for agreement in now])
    return now


def side_by_side(tasks: Sequence[Callable[[], T]]) -> list[T]:
    """Do tasks in threads; return what each returns, in order."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda task: task(), tasks))


def _bounds(agreements: Sequence[Agreement], family: Collection[str]) -> dict[str, str]:
    """The oldest version of each package."""
    oldest: dict[str, str] = {}
    for agreement in agreements:
        for name, version in agreement.draft.versions.items():
            oldest[name] = min(version, oldest.get(name, version), key=Version)
    return {name: version for name, version in sorted(oldest.items()) if name not in family}


def _lowered(agreement: Agreement, bounds: Mapping[str, str], resolve: Resolve) -> Agreement:
    """Resolve again below ``bounds``; where they contradict each other, below as many of them as can be kept."""
    above = agreement.above(bounds)
    if not above:
        return agreement
    within = {name: f"{name}<={version}" for name, version in bounds.items() if name not in agreement.apart}
    made = resolve(agreement.settled, tuple(within.values()))
    if isinstance(made, Draft):
        return replace(agreement, draft=made)
    draft, apart = agreement.draft, dict(agreement.apart)
    kept = tuple(bound for name, bound in within.items() if name not in above)
    for name in above:
        made = resolve(agreement.settled, (*kept, within[name]))
        if isinstance(made, Draft):
            draft, kept = made, (*kept, within[name])
        else:
            apart[name] = made.why or made.message
    return replace(agreement, draft=draft, apart=apart)
