"""The facts of a machine that every maker's half of the probe is given."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.problems import FixContext, system_keys
from gpuinstall.machine.container import ContainerInfo, Wsl
from gpuinstall.machine.host import Host

if TYPE_CHECKING:
    from gpuinstall.machine.bus import PciDevice


@dataclass(frozen=True)
class MachineFacts:
    """What is known of the machine, whoever made its GPUs."""

    host: Host = field(default_factory=lambda: Host("linux", "x86_64"))
    container: ContainerInfo = field(default_factory=ContainerInfo)
    wsl: Wsl | None = None
    devices: tuple[PciDevice, ...] = ()
    """The devices of the PCI bus."""

    answered: tuple[str, ...] = ()
    """The makers whose driver answered."""

    pythons: tuple[str, ...] = ()

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
