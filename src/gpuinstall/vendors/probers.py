"""The makers' probers: an import of this starts what reads a machine, which a plan never needs."""

from __future__ import annotations

from typing import Any

from gpuinstall.vendors.amd.prober import AmdProber
from gpuinstall.vendors.apple.prober import AppleProber
from gpuinstall.vendors.intel.prober import IntelProber
from gpuinstall.vendors.nvidia.prober import NvidiaProber
from gpuinstall.vendors.prober import Prober

PROBERS: tuple[Prober[Any], ...] = (
    NvidiaProber(),
    AmdProber(),
    IntelProber(),
    AppleProber(),
)

# The makers of GPUs for computing, as people write them.
MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "apple": "Apple"}
