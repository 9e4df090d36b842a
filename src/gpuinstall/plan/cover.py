"""The fewest builds that serve several machines: exact, and of equally few the best."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from gpuinstall.backend import CPU
from gpuinstall.plan.values import Plan
from gpuinstall.vendors import rules_for
from gpuinstall.vendors.protocol import Code

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from packaging.version import Version

    from gpuinstall.catalog import Build, Catalog
    from gpuinstall.machine import Machine
    from gpuinstall.plan.values import Rejected


@dataclass(frozen=True, eq=False)
class ServingBuild:
    """A build and the machines that it serves, each by its position."""

    build: Build
    age: int
    """The rank of its torch: 0 is the newest."""
    collective_library: str
    """The version of its NCCL; if that is not known, what stands for one of its own."""
    ranks: Mapping[int, int]
    """Its place among the builds of its torch, by machine: 0 is what the machine would choose."""
    compiled: frozenset[int]
    """The machines whose driver has to compile it first."""


Cover = tuple[ServingBuild, ...]


def serving_builds(
    machines: Sequence[Machine], outcomes: Iterable[Plan | Rejected], catalog: Catalog
) -> list[ServingBuild]:
    """Return every build that some machine runs, as its plan has it."""
    builds: dict[tuple[str, str], Build] = {}
    ranks: dict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for position, outcome in enumerate(outcomes):
        places: dict[Version, Iterator[int]] = defaultdict(count)
        for build in outcome.runnable if isinstance(outcome, Plan) else ():
            # Not by identity: a machine's plan may be of a catalogue of its own, as the sources list it today.
            key = build.name, build.platform
            builds.setdefault(key, build)
            ranks[key][position] = next(places[build.torch])
    torches = sorted({build.torch for build in builds.values()}, reverse=True)
    libraries = catalog.collectives()
    servings = []
    for key, build in builds.items():
        compiled = frozenset(
            position for position in ranks[key] if _compiles(build, machines[position], catalog)
        )
        library = libraries.get((str(build.torch), build.backend.tag), build.name)
        servings.append(
            ServingBuild(build, torches.index(build.torch), library, ranks[key], compiled)
        )
    return servings


def best_cover(candidates: Sequence[ServingBuild], machines: Collection[int]) -> Cover:
    """Return the smallest set that serves all machines; () if there is none.

    Of equally small ones it is one of the fewest versions of torch, and then the first by ``_merits``.
    """
    left = frozenset(machines)
    if not left or not left <= _served(candidates):
        return ()
    by_machines = {frozenset(serving.ranks): serving for serving in candidates}
    largest = [
        serving
        for served, serving in by_machines.items()
        if not any(served < other for other in by_machines)
    ]
    size = next(size for size in count(1) if any(_covers(largest, left, size, torches=size)))
    covers = (
        min(_covers(candidates, left, size, torches), key=_merits, default=())
        for torches in count(1)
    )
    return next(filter(None, covers))


def _merits(cover: Cover) -> tuple[object, ...]:
    """One collective library, the newest torch, no code to compile, the newest toolkit that the drivers serve."""
    libraries = {serving.collective_library for serving in cover if serving.build.toolkit}
    ages = sorted((serving.age for serving in cover), reverse=True)
    compiled = frozenset().union(*(serving.compiled for serving in cover))
    toolkits = 0
    for position in _served(cover):
        toolkits += min(serving.ranks[position] for serving in cover if position in serving.ranks)
    return (
        len(libraries),
        ages,
        len(compiled),
        toolkits,
        sorted(serving.build.name for serving in cover),
    )


def _served(servings: Iterable[ServingBuild]) -> frozenset[int]:
    """The machines that at least one of these builds serves."""
    return frozenset[int]().union(*(serving.ranks for serving in servings))


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
    if len(ages) == torches:
        candidates = [serving for serving in candidates if serving.age in ages]
    by_machine = (
        [serving for serving in candidates if position in serving.ranks]
        for position in sorted(left)
    )
    for serving in min(by_machine, key=len):
        for rest in _covers(
            candidates, left.difference(serving.ranks), size - 1, torches, ages | {serving.age}
        ):
            yield (serving, *rest)


def _compiles(build: Build, machine: Machine, catalog: Catalog) -> bool:
    """Whether a GPU of a machine runs a build only after its driver has compiled it."""
    if build.backend == CPU:
        return False
    rules = rules_for(machine, catalog, {build.backend.kind})
    codes = (rules.code(build, gpu) for gpu in machine.gpus)
    return any(isinstance(code, Code) and code.how == "ptx" for code in codes)
