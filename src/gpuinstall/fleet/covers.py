"""The best of the smallest sets of builds that serve all classes: exact, and no slower than it must be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.catalog import Build


@dataclass(frozen=True, eq=False)
class ServingBuild:
    """A build, the classes that it serves (by position), and what decides between equals.

    ``age`` is the rank of its torch, 0 the newest; ``nccl`` its collective library, None where that is not known;
    ``compiled`` are the classes whose driver has to compile it first, ``ranks`` its place by class among the builds of
    its torch: 0 is what the class would choose.
    """

    build: Build
    age: int
    nccl: str | None
    compiled: frozenset[int]
    ranks: Mapping[int, int]

    @cached_property
    def serves(self) -> frozenset[int]:
        """The classes that it serves."""
        return frozenset(self.ranks)


Cover = tuple[ServingBuild, ...]


def best_cover(candidates: Sequence[ServingBuild], classes: frozenset[int]) -> Cover:
    """Find the smallest set that serves all; of those the one with fewest versions of torch, then by ``_merits``."""
    if not classes:
        return ()
    alike = {build.serves: build for build in candidates}
    largest = [build for serves, build in alike.items() if not any(serves < other for other in alike)]
    size = next(size for size in count(1) if any(_covers(largest, classes, size, size)))
    covers = (min(_covers(candidates, classes, size, torches), key=_merits, default=()) for torches in count(1))
    return next(filter(None, covers))


def _merits(cover: Cover) -> tuple[object, ...]:
    """One collective library, the newest torch, no code to compile, the newest toolkit that the drivers serve."""
    libraries = {serving.nccl or serving.build.name for serving in cover if serving.build.toolkit}
    ages = sorted((serving.age for serving in cover), reverse=True)
    compiled = len(frozenset().union(*(serving.compiled for serving in cover)))
    served = frozenset().union(*(serving.serves for serving in cover))
    toolkits = sum(min(serving.ranks[place] for serving in cover if place in serving.ranks) for place in served)
    return len(libraries), ages, compiled, toolkits, sorted(serving.build.name for serving in cover)


def _covers(
    candidates: Sequence[ServingBuild],
    left: frozenset[int],
    size: int,
    torches: int,
    ages: frozenset[int] = frozenset(),
) -> Iterator[Cover]:
    """Yield every set of ``size`` builds of at most so many versions of torch; all of them have to be needed."""
    if not left:
        yield ()
        return
    if size == 0:
        return
    open_ = candidates if len(ages) < torches else [serving for serving in candidates if serving.age in ages]
    by_class = ([serving for serving in open_ if position in serving.serves] for position in sorted(left))
    for serving in min(by_class, key=len):
        for rest in _covers(candidates, left - serving.serves, size - 1, torches, ages | {serving.age}):
            yield (serving, *rest)
