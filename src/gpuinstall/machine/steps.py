"""The steps of the probe, and the facts that they gather.

A step names the fact that it reads and how: it sees the facts of the steps before it. A new fact is a field, its
reader and its parser, and one entry in a tuple of steps.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.problems import FixContext, system_keys
from gpuinstall.machine.container import ContainerInfo, Wsl
from gpuinstall.machine.host import Folder, Host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuinstall.machine.bus import PciDevice
    from gpuinstall.machine.source import Source

Facts = TypeVar("Facts", bound=Any)


@dataclass(frozen=True)
class Step(Generic[Facts]):
    """How a fact is read."""

    fact: str
    """The field of the facts that it fills."""

    read: Callable[[Source, Facts], object]
    """Returns the fact, of a machine and the facts of the steps before."""

    together: bool = False
    """Whether it is read at the same time as its neighbours that are marked too."""


@dataclass(frozen=True)
class MachineFacts:
    """What is known of the machine, whoever made its GPUs."""

    host: Host = field(default_factory=lambda: Host("linux", "x86_64"))
    container: ContainerInfo = field(default_factory=ContainerInfo)
    wsl: Wsl | None = None
    devices: tuple[PciDevice, ...] = ()
    """The devices of the PCI bus."""

    evidence: Mapping[str, Any] = field(default_factory=dict)
    """What each maker's prober read, by the maker's name."""

    answered: tuple[str, ...] = ()
    """The makers whose driver answered."""

    pythons: tuple[str, ...] = ()
    folders: Mapping[str, Folder] = field(default_factory=dict)
    missing_libraries: tuple[str, ...] = ()

    def fix_keys(self, *platforms: str) -> tuple[str, ...]:
        """Return where a fix would be applied, the closest first; ``platforms`` are known to a maker only."""
        return system_keys(
            self.container.engine,
            *platforms,
            *self.host.fix_keys,
            self.host.os,
            wsl=self.wsl is not None,
        )

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext(self.fix_keys())


def take(
    steps: Iterable[Step[Facts]],
    facts: Facts,
    source: Source,
) -> Facts:
    """Take the steps in their order, and return the facts with what they read."""
    for together, group in groupby(steps, key=lambda step: step.together):
        if not together:
            for step in group:
                fact = step.read(source, facts)
                facts = replace(facts, **{step.fact: fact})
            continue
        neighbours = list(group)
        answers = {}
        with ThreadPoolExecutor(len(neighbours)) as pool:
            for step in neighbours:
                answers[step.fact] = pool.submit(step.read, source, facts)
        read = {fact: answer.result() for fact, answer in answers.items()}
        facts = replace(facts, **read)
    return facts
