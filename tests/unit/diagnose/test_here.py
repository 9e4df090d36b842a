"""What a look at a machine may change of an answer: nothing, where its own fault is not there."""

import pytest
from packaging.version import Version

from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.versions import (
    Backend,
    ComputeCapability,
    CudaVersion,
    DriverVersion,
)
from gpuinstall.catalog import load_catalog
from gpuinstall.diagnose.explanation import explain_text
from gpuinstall.diagnose.this_machine import InstalledTorch, ThisMachine
from tests.unit.catalog.failures.held_out import answers


def machine(folder, driver="580.95.05", cuda="13.0", build="cu128", environ=None):
    served = CudaVersion.parse(cuda)
    gpu = Gpu(0, "NVIDIA GeForce RTX 4090", compute_capability=ComputeCapability(8, 9))
    backend = Backend.parse(build)
    builds = load_catalog().serving(backend.kind).builds_for("linux", "x86_64")
    (own,) = (
        each
        for each in builds
        if each.torch == Version("2.9.1") and each.backend == backend
    )
    torch = InstalledTorch(f"2.9.1+{build}", backend, own)
    return ThisMachine(
        Machine(
            "linux",
            "x86_64",
            driver=Driver(DriverVersion.parse(driver), served),
            gpus=(gpu,),
        ),
        folder,
        torch=torch,
        environ=environ or {},
    )


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"build": "cpu"},
        {"driver": "470.82.01", "cuda": "11.4"},
        {"environ": {"CUDA_VISIBLE_DEVICES": ""}},
    ],
)
def test_a_healthy_machine_or_another_fault_makes_no_wrong_answer_sure(
    tmp_path, faults
):
    here = machine(tmp_path, **faults)
    wrong = []
    for answer in answers()[::3]:
        cause = explain_text(answer.text, lambda: here).causes[0]
        is_same = (cause.id, cause.confidence) == (answer.named, answer.confidence)
        if not is_same and (not faults or cause.id not in answer.right):
            wrong.append((answer.text, answer.named, cause))
    assert wrong == []
