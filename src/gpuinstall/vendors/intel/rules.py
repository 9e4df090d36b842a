"""Intel's rules: a build is for the chips that the documentation of its release names; the stack is there or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.vendors.intel.chips import intel_chip
from gpuinstall.vendors.protocol import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuinstall.machine import Gpu


class IntelRules(Rules):
    """The rules for one machine, by the rows of ``gpus_intel.toml``."""

    vendor = "intel"
    name = "Intel"
    kind = "xpu"
    software = "XPU"
    architecture_source = "Level Zero"
    not_proven = "builds for Intel's GPUs are not proven on a card yet: verify decides (please send probe --record)"

    @property
    def driver(self) -> str:
        """What programs compute through."""
        return f"Level Zero {self.machine_fact('level_zero') or ''}".strip()

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """The names of its chip."""
        chip = intel_chip(self._table, gpu.architecture)
        return chip.names if chip else ()

    def chip_name(self, gpu: Gpu) -> str:
        """The family that people know it by, ``Battlemage``."""
        chip = intel_chip(self._table, gpu.architecture)
        return chip.name if chip else super().chip_name(gpu)

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """A card before a processor's graphics, those before what torch is not for."""
        chip = intel_chip(self._table, gpu.architecture)
        return (0 if chip is None else 1 if chip.integrated else 2,)

    @property
    def _table(self) -> Mapping[str, Any]:
        return self.catalog.chips[self.kind]
