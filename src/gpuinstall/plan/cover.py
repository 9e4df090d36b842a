"""Few builds that serve several machines, the newest torch first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from gpuinstall.base.values import Value
from gpuinstall.catalog.catalog import Build
from gpuinstall.plan.values import Plan, Rejected, SortKey


class ServingBuild(Value, eq=False):
    """A build and the machines that it serves, each by its position."""

    build: Build

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
        for _, of_torch in groupby(outcome.runnable, key=lambda build: build.torch):
            for rank, build in enumerate(of_torch):
                # Not by identity: a machine's plan may be of a catalogue of its own, as the sources list it today.
                key = build.name, build.platform
                builds.setdefault(key, build)
                ranks[key][position] = rank
    return [ServingBuild(build, ranks[key]) for key, build in builds.items()]


def best_cover(candidates: Sequence[ServingBuild], machines: Collection[int]) -> Cover:
    """Return few builds that serve all machines, of one torch if that takes no more of them; () if there are none.

    Args:
        candidates: The builds that some machine runs.
        machines: The positions of the machines that have to be served.
    """
    by_torch = defaultdict(list)
    for serving in candidates:
        by_torch[serving.build.torch].append(serving)
    groups = (*by_torch.values(), candidates)
    covers = [_cover(group, frozenset(machines)) for group in groups]
    return max(filter(None, covers), key=_merit, default=())


def _cover(candidates: Sequence[ServingBuild], left: frozenset[int]) -> Cover:
    """Return builds that serve the machines ``left``, each time the one that serves most of them; () if none do."""
    cover: Cover = ()
    while left:
        # A default is bound now, and ``left`` moves on with the loop.
        def merit(serving: ServingBuild, left: frozenset[int] = left) -> SortKey:
            own = left.intersection(serving.ranks)
            distance = sum(serving.ranks[position] for position in own)
            return len(own), serving.build.torch, -distance

        best = max(candidates, key=merit, default=None)
        if best is None or left.isdisjoint(best.ranks):
            return ()
        cover = (*cover, best)
        left = left.difference(best.ranks)
    return cover


def _merit(cover: Cover) -> SortKey:
    """Sort covers: the fewest builds, the fewest versions of torch, the newest, the nearest to the machines' own choices."""
    torches = sorted(serving.build.torch for serving in cover)
    distance = 0
    for position in frozenset[int]().union(*(serving.ranks for serving in cover)):
        distance += min(
            serving.ranks[position] for serving in cover if position in serving.ranks
        )
    return -len(cover), -len(set(torches)), torches, -distance
