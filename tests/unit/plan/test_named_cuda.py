"""Programs whose names carry a CUDA: torch takes the same; one that cannot run here is answered by one that can."""

from __future__ import annotations

import pytest

from gpuinstall.api import Refusal, choose
from gpuinstall.base.request import Request
from gpuinstall.plan import Plan
from gpuinstall.words import machine_in_words
from tests.frozen import frozen_catalog
from tests.unit.plan.machines import machine


def plan(gpu: str, driver: str, *requirements: str) -> Plan | Refusal:
    there = machine_in_words((gpu,), driver, None, None)
    return choose(there, Request(requirements, python="3.12"), frozen_catalog())


@pytest.mark.parametrize(
    ("requirement", "name"),
    [
        ("cupy-cuda13x", "cupy-cuda12x"),
        ("jax[cuda13]>=0.4", "jax[cuda12]"),
        ("tensorrt", "tensorrt-cu12"),
        ("tensorrt_cu13", "tensorrt-cu12"),
        ("cudf-cu13", "cudf-cu12"),
        ("numba-cuda[cu13]", "numba-cuda[cu12]"),
        ("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
    ],
)
@pytest.mark.parametrize(
    ("gpu", "driver"),
    [
        ("RTX 3090", "535.183.01"),
        ("RTX 3090", "550.54.14"),
        ("V100", "580.95.05"),
        ("GTX 1080", "550.54.14"),
    ],
)
def test_a_name_of_a_cuda_that_does_not_run_here_is_refused_with_the_name_that_does(
    requirement, name, gpu, driver
):
    refusal = plan(gpu, driver, requirement)
    assert isinstance(refusal, Refusal)
    assert refusal.exit_code == 3
    assert refusal.reasons[0].message.startswith(f"{requirement} ")
    assert f"Write {name} in place of {requirement}: torch 2.14.1+cu126" in str(refusal.fix)


@pytest.mark.parametrize(
    "requirement", ["cupy-cuda12x", "jax[cuda12]", "spacy[cuda12x]", "faiss-gpu-cu12"]
)
def test_torch_takes_the_cuda_that_a_name_carries(requirement):
    made = plan("H100", "580.95.05", requirement)
    assert isinstance(made, Plan)
    assert made.choice.build.name == "2.14.1+cu126"
    newer = next(
        rejection for rejection in made.rejected if rejection.candidate.name == "2.15.0+cu130"
    )
    assert (newer.reason.code, newer.reason.message) == (
        "other-cuda",
        f"{requirement} is for CUDA 12, and one process has one CUDA",
    )


@pytest.mark.parametrize(
    "requirement", ["tensorrt<10", "cupy-cuda13x ; sys_platform == 'win32'", "cupy"]
)
def test_a_name_that_says_nothing_of_this_machine_changes_nothing(requirement):
    made = plan("RTX 3090", "550.54.14", requirement)
    assert isinstance(made, Plan)
    assert made.choice.build.name == plan("RTX 3090", "550.54.14").choice.build.name  # type: ignore[union-attr]


def test_names_of_two_cudas_are_refused_together():
    refusal = plan("H100", "580.95.05", "cupy-cuda12x", "cudf-cu13")
    assert (
        refusal.reasons[0].message
        == "cupy-cuda12x and cudf-cu13 are incompatible: no build serves them"
    )


def test_without_a_gpu_a_name_decides_nothing():
    made = choose(machine(), Request(("cupy-cuda12x",), python="3.12"), frozen_catalog())
    assert made.status == "cpu"
