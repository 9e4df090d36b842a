"""The order in which the runner tests programs: side by side, and alone if a GPU was busy."""

import os
from collections import Counter
from pathlib import Path

import pytest

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.reporter import Reporter
from gpuinstall.verify.devices import DeviceTarget
from gpuinstall.verify.diagnosis import ProofContext
from gpuinstall.verify.interpreter import FoundTorch, Interpreter
from gpuinstall.verify.kernel_run import KernelReport, KernelRun
from gpuinstall.verify.runner import EnvironmentTrial, prove_programs
from gpuinstall.verify.verdict import Device

PYTHON = Path("/data/envs/it/bin/python")
CARD = DeviceTarget(
    0, "NVIDIA H200", "cuda", ("GPU-x",), Gpu(0, "NVIDIA H200"), "nvidia"
)
TORCH_PASSED = Device(0, "NVIDIA H200", (CheckResult("device", "passed"),))


@pytest.fixture
def starts(monkeypatch):
    """The programs in the order of their starts, on an exclusive card that vllm finds busy at first."""
    starts: list[str] = []

    def run_all(run, targets):
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
    """Return the checks of a card after two programs were tested on it."""
    proof = ProofContext(
        Machine("linux", "x86_64"), PYTHON, FoundTorch("3.12.1", venv=True)
    )
    trial = EnvironmentTrial(
        Interpreter(proof.torch, proof.torch),
        proof,
        targets=(CARD,),
        run=KernelRun(PYTHON, (), "quick"),
        reporter=Reporter(),
    )
    (device,) = prove_programs([TORCH_PASSED], trial, ["torchvision", "vllm"])
    return [check.name for check in device.checks]


def given(monkeypatch, processors):
    """Play a job that has some of the many processors of its machine."""
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    monkeypatch.setattr(
        os, "sched_getaffinity", lambda _process: range(processors), raising=False
    )


def test_a_busy_card_is_tried_again_alone(starts, monkeypatch):
    given(monkeypatch, 8)
    assert proven() == ["device", "torchvision", "vllm"]
    assert Counter(starts) == {"torchvision": 1, "vllm": 2}
    assert starts[-1] == "vllm"


def test_programs_that_ran_alone_are_not_repeated(starts, monkeypatch):
    given(monkeypatch, 2)
    assert proven() == ["device", "torchvision"]
    assert starts == ["torchvision", "vllm"]
