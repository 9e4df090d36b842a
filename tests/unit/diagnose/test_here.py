"""What a look at a machine may change of an answer: nothing, where its own fault is not there."""

from pathlib import Path

import pytest

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.versions import Backend
from gpuinstall.catalog import load_catalog
from gpuinstall.diagnose.explanation import explain_text
from gpuinstall.diagnose.this_machine import (
    InstalledTorch,
    ThisMachine,
    idle_gpus,
    other_libraries,
)
from tests.unit.catalog.failures.held_out import answers
from tests.unit.plan.machines import card, machine


def looked_at(folder, driver="580.95.05", cuda="13.0", build="cu128", environ=None):
    backend = Backend.parse(build)
    builds = load_catalog().serving(backend.kind).builds_for("linux", "x86_64")
    (own,) = (each for each in builds if each.name == f"2.9.1+{build}")
    torch = InstalledTorch(own.name, backend, own)
    there = machine("RTX 4090", driver=driver, cuda=cuda)
    return ThisMachine(there, folder, torch=torch, environ=environ or {})


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
    here = looked_at(tmp_path, **faults)
    wrong = []
    for answer in answers()[::3]:
        cause = explain_text(answer.text, lambda: here).causes[0]
        is_same = (cause.id, cause.confidence) == (answer.named, answer.confidence)
        if not is_same and (not faults or cause.id not in answer.right):
            wrong.append((answer.text, answer.named, cause))
    assert wrong == []


NVIDIA = card("RTX 4090")
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
        torch = InstalledTorch(f"2.9.1+{build}", Backend.parse(build))
        here = ThisMachine(machine(*gpus, driver=None), Path("absent"), torch=torch)
        found.append((name, build, gpus, [fault.id for fault in idle_gpus(here)]))
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
