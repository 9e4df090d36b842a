"""The makers' probers: an import of this starts what reads a machine, which a plan never needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuinstall.vendors.nvidia.prober import NvidiaProber

if TYPE_CHECKING:
    from gpuinstall.vendors.prober import Prober

PROBERS: tuple[Prober[Any], ...] = (NvidiaProber(),)

# Makers of GPUs for computing by their numbers on the bus.
MAKERS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}
