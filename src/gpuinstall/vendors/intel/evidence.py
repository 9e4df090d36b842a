"""Everything that was read about a machine with Intel's GPUs, and which of them this process was given. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from gpuinstall.catalog import authored
from gpuinstall.facts.steps import MachineFacts
from gpuinstall.failures.problems import FixContext
from gpuinstall.vendors import PCI_IDS
from gpuinstall.vendors.intel.level_zero import LevelZero, LevelZeroGpu
from gpuinstall.vendors.intel.rules import XeChip, architecture_of, chip_at, intel_chip

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.facts.bus import PciDevice
    from gpuinstall.facts.source import Access

INTEL_ON_PCI = 0x8086


@dataclass(frozen=True)
class IntelEvidence:
    """The facts of all steps; ``nodes`` are the render nodes of Intel's cards, by the card's address."""

    facts: MachineFacts = field(default_factory=MachineFacts)
    nodes: Mapping[str, Access | None] = field(default_factory=dict)
    level_zero: LevelZero = field(default_factory=LevelZero)

    @property
    def cards(self) -> tuple[tuple[PciDevice, XeChip], ...]:
        """What the bus shows of chips that torch has builds for; a processor's graphics only where nothing else is.

        Beside another maker's card they are what draws the screen.
        """
        devices, others = cards_of(self.facts), self._others
        return tuple((device, chip) for device, chip in devices if not (others and chip.integrated))

    @property
    def answering(self) -> tuple[LevelZeroGpu, ...]:
        """The GPUs that Level Zero lists, in its own order, where torch has builds for one of them."""
        gpus = tuple(gpu for gpu in self.level_zero.gpus if gpu.vendor == INTEL_ON_PCI)
        useful = any(intel_chip(intel_chips(), architecture_of(gpu.ip)) for gpu in gpus)
        draws_only = all(gpu.integrated for gpu in gpus) and self._others
        return gpus if useful and not draws_only else ()

    @property
    def given(self) -> tuple[tuple[PciDevice, XeChip], ...]:
        """The cards of the bus that this process was given: in a container, those with a node that it can see."""
        shared = self.facts.container.shares_the_bus
        return tuple(card for card in self.cards if not shared or self.nodes.get(card[0].address))

    @property
    def fix_context(self) -> FixContext:
        """Where a fix would be applied."""
        return FixContext(self.facts.fix_keys())

    @property
    def _others(self) -> bool:
        """Say whether another maker's card is there: on the bus, or by its driver where nobody read the bus."""
        cards = (device for device in self.facts.devices if device.may_compute and device.vendor != INTEL_ON_PCI)
        on_the_bus = any(f"{card.vendor:04x}" in PCI_IDS for card in cards)
        return on_the_bus or bool({*self.facts.answered} - {"intel"})


def cards_of(facts: MachineFacts) -> tuple[tuple[PciDevice, XeChip], ...]:
    """Intel's GPUs on the bus that torch has builds for."""
    ours = (device for device in facts.devices if device.vendor == INTEL_ON_PCI)
    usable = (device for device in ours if device.may_compute and not device.is_reserved)
    return tuple((device, chip) for device in usable if (chip := chip_at(intel_chips(), device.device)))


@cache
def intel_chips() -> dict[str, Any]:
    """Load the rows about chips."""
    return authored.read_data("gpus_intel.toml")
