"""Programs are tested in parallel, and alone if a GPU was busy."""

import os
from collections import Counter
from pathlib import Path

import pytest

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.verify.devices import DeviceTarget
from gpuinstall.verify.diagnosis import Verification
from gpuinstall.verify.interpreter import FoundTorch, Interpreter
from gpuinstall.verify.kernel_run import KernelReport, KernelRun
from gpuinstall.verify.runner import check_programs
from gpuinstall.verify.verdict import Device

PYTHON = Path("/data/envs/it/bin/python")
CARD = DeviceTarget(
    0, "NVIDIA H200", "cuda", ("GPU-x",), Gpu(0, "NVIDIA H200"), "nvidia"
)
TORCH_PASSED = Device(0, "NVIDIA H200", (CheckResult("device", "passed"),))


@pytest.fixture
def starts(monkeypatch):
    """Return started programs, on a GPU that is busy for vllm at first."""
    starts: list[str] = []

    def run_all(run, targets, _each_line=None):
        program = str(run.program)
        starts.append(program)
        if program == "vllm" and starts.count(program) == 1:
            return [
                KernelReport(unproven="CUDA error: busy or unavailable")
                for _ in targets
            ]
        return [KernelReport((CheckResult(program, "passed"),)) for _ in targets]

    monkeypatch.setattr(KernelRun, "run_all", run_all)
    return starts


def proven():
    """Return the checks of a GPU after testing two programs on it."""
    torch = FoundTorch("3.12.1", venv=True)
    trial = Verification(
        Machine("linux", "x86_64"),
        Interpreter(torch, torch),
        KernelRun(PYTHON, (), "quick"),
        Reporter(),
        targets=(CARD,),
    )
    (device,) = check_programs([TORCH_PASSED], trial, ["torchvision", "vllm"])
    return [check.name for check in device.checks]


def given(monkeypatch, processors):
    """Simulate a job with some of its machine's many processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _process: range(processors), raising=False
    )


def test_check_of_a_busy_gpu_is_retried_alone(starts, monkeypatch):
    given(monkeypatch, 8)
    assert proven() == ["device", "torchvision", "vllm"]
    assert Counter(starts) == {"torchvision": 1, "vllm": 2}
    assert starts[-1] == "vllm"


def test_checks_that_ran_alone_are_not_retried(starts, monkeypatch):
    given(monkeypatch, 2)
    assert proven() == ["device", "torchvision"]
    assert starts == ["torchvision", "vllm"]
