"""What a look at a machine may change of an answer: nothing, where its own fault is not there."""

from pathlib import Path

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
from gpuinstall.diagnose.this_machine import (
    InstalledTorch,
    ThisMachine,
    idle_gpus,
    other_libraries,
)
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


NVIDIA = Gpu(0, "NVIDIA GeForce RTX 4090", compute_capability=ComputeCapability(8, 9))
AMD = Gpu(1, "AMD Radeon RX 7900 XTX", vendor="amd", architecture="gfx1100")
OLD_AMD = Gpu(1, "AMD Radeon HD 8570", vendor="amd")
ARC = Gpu(1, "Intel Arc A770", vendor="intel", architecture="acm-g10")


def test_a_gpu_is_idle_if_torch_uses_none():
    cases = [
        ("its own card beside another maker's", "cu126", (NVIDIA, AMD), []),
        ("its own card beside an Arc", "cu126", (NVIDIA, ARC), []),
        ("another maker's card", "cu126", (AMD,), ["F99"]),
        ("a card that no build is for", "cu126", (OLD_AMD,), []),
        ("another maker's card, for ROCm", "rocm6.4", (NVIDIA,), ["F24"]),
        ("both cards, for the CPU", "cpu", (NVIDIA, AMD), ["F33", "F99"]),
        ("no card", "cu126", (), []),
    ]
    found = []
    for name, build, gpus, _ in cases:
        here = ThisMachine(
            Machine("linux", "x86_64", gpus=gpus),
            Path("absent"),
            torch=InstalledTorch(f"2.9.1+{build}", Backend.parse(build)),
        )
        causes = [fault.id for fault in idle_gpus(here)]
        found.append((name, build, gpus, causes))
    assert found == cases


def test_libraries_of_the_environment_itself_are_not_others(tmp_path):
    own = tmp_path / "venv/lib/python3.11/site-packages/nvidia/cudnn/lib"
    other = tmp_path / "cuda/lib64"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "libcudnn.so.9").touch()
    (tmp_path / "link").symlink_to(own)
    here = ThisMachine(
        Machine("linux", "x86_64"),
        tmp_path / "venv",
        environ={"LD_LIBRARY_PATH": f"{own}:{tmp_path}/link::{other}"},
    )
    messages = [fault.message for fault in other_libraries(here)]
    assert messages == [f"LD_LIBRARY_PATH has {other}, where another libcudnn lies"]
