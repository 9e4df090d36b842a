"""The real driver of this machine, asked and proven."""

from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.probe import preflight, read_machine

# Not /dev/nvidiactl: nvidia-smi leaves it where no driver is.
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not Path("/proc/driver/nvidia/version").exists(),
        reason="no NVIDIA driver here (/proc/driver/nvidia/version)",
    ),
]


def test_a_kernel_runs_on_every_gpu_of_this_machine():
    machine = read_machine()
    result = preflight(machine, Reporter())
    assert machine.gpus
    assert result.with_outcome("proven") == tuple(gpu.index for gpu in machine.gpus)
    assert result.problems == ()
