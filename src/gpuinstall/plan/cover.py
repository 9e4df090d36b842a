"""The fewest builds that serve several machines: exact, and of equally few the best."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuinstall.base.values import dataclass
from gpuinstall.plan.values import Rejected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build
    from gpuinstall.plan.values import Plan, SortKey


@dataclass(frozen=True, eq=False)
class ServingBuild:
    """A build and the machines that it serves, each by its position."""

    build: Build

    age: int
    """The rank of its torch: 0 is the newest."""

    ranks: Mapping[int, int]
    """Its place among the builds of its torch, by machine: 0 is what the machine would choose."""


Cover = tuple[ServingBuild, ...]


def serving_builds(outcomes: Iterable[Plan | Rejected]) -> list[ServingBuild]:
    """Return every build that some machine runs, by the plans of the machines."""
    builds: dict[tuple[str, str], Build] = {}
    ranks: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for position, outcome in enumerate(outcomes):
        if isinstance(outcome, Rejected):
            continue
        # In a plan the builds of a torch stand in the order in which the machine prefers them.
        seen: dict[Version, int] = defaultdict(int)
        for build in outcome.runnable:
            # Not by identity: a machine's plan may be of a catalogue of its own, as the sources list it today.
            key = build.name, build.platform
            builds.setdefault(key, build)
            ranks[key][position] = seen[build.torch]
            seen[build.torch] += 1
    torches = sorted({build.torch for build in builds.values()}, reverse=True)
    return [
        ServingBuild(build, torches.index(build.torch), ranks[key])
        for key, build in builds.items()
    ]


def best_cover(candidates: Sequence[ServingBuild], machines: Collection[int]) -> Cover:
    """Return the smallest set that serves all machines; () if there is none.

    Of equally small ones it is one of the fewest versions of torch, and then the first by ``_cover_key``.
    """
    left = frozenset(machines)
    if not left or not left <= _served(candidates):
        return ()
    # The smallest size follows from the builds whose machines are not all served by another build, too.
    by_machines = {frozenset(serving.ranks): serving for serving in candidates}
    largest = []
    for served, serving in by_machines.items():
        if not any(served < other for other in by_machines):
            largest.append(serving)
    size = 1
    while not any(_covers(largest, left, size, torches=size)):
        size += 1
    torches = 1
    while True:
        covers = _covers(candidates, left, size, torches)
        best = min(covers, key=_cover_key, default=None)
        if best:
            return best
        torches += 1


def _cover_key(cover: Cover) -> SortKey:
    """Sort covers of one size, the newest torch first, then those that are nearest to what the machines would choose."""
    distance = 0
    for position in _served(cover):
        distance += min(
            serving.ranks[position] for serving in cover if position in serving.ranks
        )
    return (
        sorted((serving.age for serving in cover), reverse=True),
        distance,
        # Two covers that are equal up to here have to be chosen alike in every run.
        sorted(serving.build.name for serving in cover),
    )


def _served(servings: Iterable[ServingBuild]) -> frozenset[int]:
    """Return the machines that at least one of these builds serves."""
    return frozenset[int]().union(*(serving.ranks for serving in servings))


def _covers(
    candidates: Sequence[ServingBuild],
    left: frozenset[int],
    size: int,
    torches: int,
    ages: frozenset[int] = frozenset(),
) -> Iterator[Cover]:
    """Yield every set of builds that serves the machines ``left``, without a build that is not needed.

    Args:
        candidates: The builds to choose from.
        left: The machines to serve.
        size: How many builds there may be.
        torches: How many versions of torch they may have.
        ages: The versions of the builds that were chosen before.
    """
    if not left:
        yield ()
        return
    if size == 0:
        return
    if len(ages) == torches:
        candidates = [serving for serving in candidates if serving.age in ages]
    # One of the builds for the machine with the fewest of them is in every cover.
    choices = []
    for position in sorted(left):
        serving_it = [serving for serving in candidates if position in serving.ranks]
        choices.append(serving_it)
    for serving in min(choices, key=len):
        others = left.difference(serving.ranks)
        for rest in _covers(
            candidates, others, size - 1, torches, ages | {serving.age}
        ):
            yield (serving, *rest)
