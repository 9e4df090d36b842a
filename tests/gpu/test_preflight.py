"""Tests of the preflight with this machine's driver and GPUs."""

from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.probe import preflight, read_machine

# /dev/nvidiactl also exists without a driver, because of nvidia-smi.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not Path("/proc/driver/nvidia/version").exists(),
        reason="no NVIDIA driver here (/proc/driver/nvidia/version)",
    ),
]


def test_kernel_runs_on_every_gpu():
    machine = read_machine()
    result = preflight(machine, Reporter())
    assert machine.gpus
    assert result.with_outcome("proven") == tuple(gpu.index for gpu in machine.gpus)
    assert result.problems == ()
