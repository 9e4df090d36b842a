"""Tests of ``verify`` on a GPU, with the first Python that has CUDA torch."""

import os
import shutil
from pathlib import Path

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.environment import Origin
from gpuinstall.machine.probe import read_machine
from gpuinstall.verify.interpreter import inspect_interpreter
from gpuinstall.verify.runner import measure, verify_environment

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def machine():
    found = read_machine()
    if not found.gpus or found.blocking:
        pytest.skip("no NVIDIA GPU that can be used here")
    return found


@pytest.fixture(scope="module")
def python():
    for name in ("python3", "python"):
        for folder in os.get_exec_path():
            found = shutil.which(name, path=folder)
            if found and _has_cuda(Path(found)):
                return Path(found)
    pytest.skip("no Python on PATH has a CUDA build of torch")


def _has_cuda(python):
    try:
        return inspect_interpreter(python).torch_to_verify.kind == "cuda"
    except UsageError:
        return False


@pytest.fixture(scope="module")
def verdict(machine, python):
    return verify_environment(python, machine, deep=True)


def test_every_gpu_passes_every_check(verdict):
    faults = [
        check
        for device in verdict.devices
        for check in device.checks
        if check.status == "failed"
    ]
    assert faults == []
    assert verdict.status == "passed"


def test_cudnn_computes_all_convolutions(verdict):
    messages = {
        check.name: check.message
        for device in verdict.devices
        for check in device.checks
        if check.name.startswith("convolution") and check.status == "passed"
    }
    without = [name for name, text in messages.items() if "cuDNN 9" not in (text or "")]
    assert without == []


def test_verify_bench_reports_every_gpu_measurement(machine, python):
    for device in measure(python, machine, Origin(), Reporter()):
        passed = {check.name for check in device.checks if check.status == "passed"}
        assert {
            "product-float32",
            "memory",
            "host-to-device",
            "device-to-host",
        } <= passed
