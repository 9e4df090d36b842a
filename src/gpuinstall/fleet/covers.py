"""The best of the smallest sets of builds that serve all classes: exact, and no slower than it must be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gpuinstall.catalog.build import Build


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
    size = _smallest({one.serves for one in candidates}, classes)
    for torches in range(1, size + 1):
        found = _covers(candidates, classes, size, torches)
        if best := min(found, key=_merits, default=None):
            return best
    return ()


def _merits(cover: Cover) -> tuple[object, ...]:
    """One collective library, the newest torch, no code to compile, the newest toolkit that the drivers serve.

    What is left would be a matter of bytes, and it never comes to that: a torch and a toolkit are one build.
    """
    libraries = {one.nccl or one.build.name for one in cover if one.build.toolkit}
    ages = sorted((one.age for one in cover), reverse=True)
    compiled = len(frozenset().union(*(one.compiled for one in cover)))
    served = frozenset().union(*(one.serves for one in cover))
    toolkits = sum(min(one.ranks[position] for one in cover if position in one.ranks) for position in served)
    return len(libraries), ages, compiled, toolkits, sorted(one.build.name for one in cover)


def _smallest(sets: Iterable[frozenset[int]], classes: frozenset[int]) -> int:
    """How many sets it takes, by those alone that are in no other."""
    every = set(sets)
    largest = [one for one in every if not any(one < other for other in every)]
    size = 1
    while not _is_covered(largest, classes, size):
        size += 1
    return size


def _is_covered(sets: Sequence[frozenset[int]], left: frozenset[int], size: int) -> bool:
    if not left:
        return True
    if size == 0:
        return False
    choices = _hardest(sets, left)
    return any(_is_covered(sets, left - one, size - 1) for one in choices)


def _hardest(sets: Sequence[frozenset[int]], left: frozenset[int]) -> list[frozenset[int]]:
    """The sets that serve the class with the fewest of them."""
    by_class = ([one for one in sets if position in one] for position in sorted(left))
    return min(by_class, key=len)


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
    open_ = candidates if len(ages) < torches else [one for one in candidates if one.age in ages]
    by_class = ([one for one in open_ if position in one.serves] for position in sorted(left))
    for one in min(by_class, key=len):
        for rest in _covers(candidates, left - one.serves, size - 1, torches, ages | {one.age}):
            yield (one, *rest)
