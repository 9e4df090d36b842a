"""Intel's chips, by the version of their architecture, and its rules: a build is for those that torch names. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.base.versions import numbers
from gpuinstall.machine.protocol import Rules

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuinstall.base.machine import Gpu

    _Row = Mapping[str, Any]


class IntelRules(Rules):
    """The rules for one machine, by the rows of ``gpus_intel.toml``."""

    vendor = "intel"
    name = "Intel"
    kind = "xpu"
    software = "XPU"
    no_code = "F38"
    architecture_source = "the bus"
    not_proven = "builds for Intel's GPUs are not proven on a GPU yet: verify decides (please send probe --json)"

    driver = "Level Zero"
    """What programs compute through."""

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the compiler's names for its chip."""
        chip = self._chip(gpu)
        return tuple(chip["names"].split()) if chip else ()

    def chip_name(self, gpu: Gpu) -> str:
        """Return the family that users know it by, ``Battlemage``."""
        chip = self._chip(gpu)
        return str(chip["chip"]) if chip else super().chip_name(gpu)

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Return a card before a processor's graphics, those before what torch is not for."""
        chip = self._chip(gpu)
        if chip is None:
            return (0,)
        return (1 if chip.get("integrated") else 2,)

    def _chip(self, gpu: Gpu) -> _Row | None:
        """Return the row of a GPU's chip, by the beginning of its version; None if torch's documentation names none."""
        version = numbers(gpu.architecture or "")
        rows: Sequence[_Row] = self.chips["chips"]
        for row in rows:
            first = numbers(row["architecture"])
            if version[: len(first)] == first:
                return row
        return None
