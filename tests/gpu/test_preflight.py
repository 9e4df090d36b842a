"""The real driver of this machine, asked and proven."""

from pathlib import Path

import pytest

from gpuinstall.base.reporter import Reporter
from gpuinstall.machine.probe import preflight, read_machine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not Path("/dev/nvidiactl").exists(),
        reason="no NVIDIA GPU here (/dev/nvidiactl)",
    ),
]


def test_a_kernel_runs_on_every_gpu_of_this_machine():
    machine = read_machine()
    result = preflight(machine, Reporter())
    assert machine.gpus
    assert result.with_outcome("proven") == tuple(gpu.index for gpu in machine.gpus)
    assert result.problems == ()
