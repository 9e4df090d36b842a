"""The steps of the probe, and the facts that they gather.

A step names the fact that it reads and how: it sees the facts of the steps before it. A new fact is a field, its
reader and its parser, and one entry in a tuple of steps.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpuinstall.facts.container import ContainerInfo, Wsl
from gpuinstall.facts.host import Folder, Host
from gpuinstall.failures.problems import FixContext, place_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuinstall.facts.bus import PciDevice
    from gpuinstall.facts.source import Source

Facts = TypeVar("Facts", bound=Any)


@dataclass(frozen=True)
class Step(Generic[Facts]):
    """Where a fact goes and how it is read; those marked ``together`` that stand side by side are read at once."""

    fact: str
    read: Callable[[Source, Facts], object]
    together: bool = False


@dataclass(frozen=True)
class MachineFacts:
    """What is known of the machine, whoever made its GPUs.

    ``devices`` are those of the bus, ``evidence`` is what each maker's prober read, by the maker's name; ``answered``
    are the makers whose driver did.
    """

    host: Host = field(default_factory=lambda: Host("linux", "x86_64"))
    container: ContainerInfo = field(default_factory=ContainerInfo)
    wsl: Wsl | None = None
    devices: tuple[PciDevice, ...] = ()
    evidence: Mapping[str, Any] = field(default_factory=dict)
    answered: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    folders: Mapping[str, Folder] = field(default_factory=dict)
    missing_libraries: tuple[str, ...] = ()

    def fix_keys(self, *platforms: str) -> tuple[str, ...]:
        """Say where a fix would be applied, the closest first; ``platforms`` are known to a maker only."""
        own = (*platforms, *self.host.fix_keys, self.host.os)
        return place_keys(self.container.engine, *own, wsl=self.wsl is not None)

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext(self.fix_keys())


def take(steps: Iterable[Step[Facts]], facts: Facts, source: Source) -> Facts:
    """Take the steps in their order."""
    for together, group in groupby(steps, key=lambda step: step.together):
        if together:
            side_by_side = tuple(group)
            with ThreadPoolExecutor(len(side_by_side)) as pool:
                read = {step.fact: pool.submit(step.read, source, facts) for step in side_by_side}
            facts = replace(facts, **{fact: future.result() for fact, future in read.items()})
            continue
        for step in group:
            facts = replace(facts, **{step.fact: step.read(source, facts)})
    return facts
