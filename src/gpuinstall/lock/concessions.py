"""Which requirements give way if not all can be met: the fewest; pure."""

from __future__ import annotations

import re
from dataclasses import field, replace
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.values import dataclass
from gpuinstall.lock.obstacles import shortened
from gpuinstall.lock.uv_failure import Conflict

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuinstall.lock.resolution import Resolution

    Trial = Callable[["Concessions"], "list[Resolution] | Conflict"]
    """Resolves a request with some of it given up."""

MOST_TRIALS = 60
"""How often a request may be resolved until it can be met: a trial takes a second or two."""


class Obstacle(NamedTuple):
    """Packages of which one at least has to give way, and why."""

    packages: frozenset[str]
    why: str
    """uv's account."""


@dataclass(frozen=True)
class Concessions:
    """What of a request is not held to."""

    dropped: frozenset[str] = frozenset()
    """Packages whose version is open."""

    undated: frozenset[str] = frozenset()
    """Packages that may be newer than the date of the request."""

    obstacles: tuple[Obstacle, ...] = field(default=(), compare=False)
    """What stood against the request as it was written."""

    def why(self, package: str) -> str:
        """Return what stood against the version of a package that gave way."""
        accounts = [obstacle.why for obstacle in self.obstacles if package in obstacle.packages]
        return shortened(accounts[0]) if accounts else "it goes with what gave way"


def fewest_concessions(
    packages: Sequence[str],
    trial: Trial,
    *,
    undated: frozenset[str] = frozenset(),
) -> Concessions | Conflict:
    """Find the fewest packages that have to give way.

    An obstacle is met if one of its packages gives way, whatever else does. So the smallest set that meets all known
    obstacles is tried. Either it succeeds, and no smaller one can, or it shows another obstacle.

    Args:
        packages: Those whose versions are pinned.
        trial: Resolves the request with some of it given up.
        undated: Packages that are never held to the date of the request.

    Returns:
        The conflict of the last trial if nothing is left to give up.
    """
    concessions = Concessions(undated=undated)
    outcome = trial(concessions)
    for _ in range(MOST_TRIALS):
        if not isinstance(outcome, Conflict):
            return _without_needless(concessions, trial)
        pinned = frozenset(packages) - concessions.dropped
        newer = _newly_undated(outcome, concessions, pinned)
        names = _names_in(outcome.why)
        obstacles = concessions.obstacles
        if newer:
            # What stood against older versions of these may be no obstacle any more.
            obstacles = tuple(each for each in obstacles if newer.isdisjoint(_names_in(each.why)))
        elif pinned:
            obstacles = (*obstacles, Obstacle(pinned & names or pinned, outcome.why))
        else:
            break
        concessions = Concessions(
            _smallest_cover([obstacle.packages for obstacle in obstacles], packages),
            concessions.undated | newer,
            obstacles,
        )
        outcome = trial(concessions)
    return outcome if isinstance(outcome, Conflict) else concessions


def _newly_undated(
    conflict: Conflict,
    concessions: Concessions,
    pinned: frozenset[str],
) -> frozenset[str]:
    """Return the packages that may have to be newer than the date, before anything else gives way."""
    names = _names_in(conflict.why)
    newer = conflict.too_new | (concessions.dropped & names)
    if newer - pinned <= concessions.undated and pinned.isdisjoint(names):
        newer = concessions.dropped
    # A pinned version is what it is at any date.
    return newer - concessions.undated - pinned


def _smallest_cover(groups: Sequence[frozenset[str]], packages: Sequence[str]) -> frozenset[str]:
    """Return the fewest packages of which every group has one; of equals, those that were requested last."""
    involved = frozenset[str]().union(*groups)
    candidates = [package for package in reversed(packages) if package in involved]
    for size in range(len(candidates)):
        for chosen in combinations(candidates, size):
            if all(group.intersection(chosen) for group in groups):
                return frozenset(chosen)
    return involved


def _without_needless(concessions: Concessions, trial: Trial) -> Concessions:
    """Pin each package again with which the request can be met after all: uv may name more than it has to."""
    for package in sorted(concessions.dropped):
        fewer = replace(concessions, dropped=concessions.dropped - {package})
        if not isinstance(trial(fewer), Conflict):
            concessions = fewer
    return concessions


def _names_in(text: str) -> frozenset[str]:
    """Return the words of uv's account that can be names of packages."""
    words = re.findall(r"[A-Za-z0-9][\w.-]*", text)
    return frozenset(word.rstrip(".").lower() for word in words)
