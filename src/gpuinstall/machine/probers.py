"""The makers' probers: an import of this starts what reads a machine, which a plan never needs."""

from __future__ import annotations

from typing import Any

from gpuinstall.machine.amd.prober import AmdProber
from gpuinstall.machine.apple.prober import AppleProber
from gpuinstall.machine.intel.prober import IntelProber
from gpuinstall.machine.nvidia.prober import NvidiaProber
from gpuinstall.machine.prober import Prober

PROBERS: tuple[Prober[Any], ...] = (
    NvidiaProber(),
    AmdProber(),
    IntelProber(),
    AppleProber(),
)

# The makers of GPUs for computing, as people write them.
MAKERS = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel", "apple": "Apple"}
