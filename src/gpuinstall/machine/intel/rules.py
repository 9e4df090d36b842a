"""Rules for Intel GPUs. An XPU build runs on the chips that it lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from gpuinstall.base.machine import Gpu
from gpuinstall.base.vendors import INTEL
from gpuinstall.base.versions import version_key
from gpuinstall.machine.protocol import Rules

_Row = Mapping[str, Any]


class IntelRules(Rules):
    """Rules for one machine's Intel GPUs, from ``intel.toml``."""

    vendor = INTEL.name
    name = INTEL.label
    kind = INTEL.kind
    software = "XPU"
    no_code = "F38"
    driver = "Level Zero"
    idle_causes = ("F116", "F116")
    torch_device = "xpu"
    variables: ClassVar = {
        "ONEAPI_DEVICE_SELECTOR": "{}",
        # By default, Level Zero lists discrete GPUs first and each tile as a device.
        "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1",
        "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE",
    }
    prefix = "level_zero:"
    no_device = "*:cpu"
    # ZE_AFFINITY_MASK hides GPUs before the selector numbers them.
    misleading_variables = ("ZE_AFFINITY_MASK",)

    def code_names(self, gpu: Gpu) -> tuple[str, ...]:
        """Return the names of a GPU's chip in Intel's compiler."""
        chip = self._find_chip(gpu)
        return tuple(chip["names"].split()) if chip else ()

    def get_chip_name(self, gpu: Gpu) -> str:
        """Return the family name of a GPU's chip, such as ``Battlemage``."""
        chip = self._find_chip(gpu)
        return str(chip["chip"]) if chip else super().get_chip_name(gpu)

    def rank(self, gpu: Gpu) -> tuple[int, ...]:
        """Rank discrete GPUs first, and unsupported GPUs last."""
        chip = self._find_chip(gpu)
        if chip is None:
            return (0,)
        return (1 if chip.get("integrated") else 2,)

    def _find_chip(self, gpu: Gpu) -> _Row | None:
        """Return the table row of a GPU's chip, if torch supports the chip.

        The architecture in a table row is a prefix of the GPU's architecture version.
        """
        version = version_key(gpu.architecture or "")
        rows: Sequence[_Row] = self.chips["chips"]
        for row in rows:
            first = version_key(row["architecture"])
            if version[: len(first)] == first:
                return row
        return None
