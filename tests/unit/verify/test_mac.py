"""Verification of a Mac's GPU with a fake torch."""

import pytest

from gpuinstall.machine.options import machine_from_options
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import small_torch


@pytest.mark.parametrize(
    ("plays", "status"),
    [({}, "passed"), ({"failed": {"matmul-float32": "off by 3"}}, "failed")],
)
def test_mac_checks_run_on_gpu_instead_of_cpu(plays, status, tmp_path, play_kernels):
    small_torch(tmp_path / "env", "cpu")
    play_kernels({"*": plays})
    python = tmp_path / "env" / "bin" / "python"

    (device,) = verify_environment(python, machine_from_options(("M3 Max",))).devices

    assert (device.label, device.name) == ("GPU 0", "Apple M3 Max")
    assert device.status == status
    names = {check.name for check in device.checks}
    assert {"matmul-float32", "convolution", "optimizer-step"} <= names
    assert not {"copies", "numpy"} & names
