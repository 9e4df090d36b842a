"""What a list of packages shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpuinstall.doctor.environment import Installed, environment_findings, read_installed
from gpuinstall.machine import Gpu, Machine
from gpuinstall.versions import ComputeCapability

if TYPE_CHECKING:
    from pathlib import Path

PASCAL = Machine(
    "linux", "x86_64", gpus=(Gpu(0, "NVIDIA GeForce GTX 1080", compute_capability=ComputeCapability(6, 1)),)
)
ADA = Machine("linux", "x86_64", gpus=(Gpu(0, "NVIDIA GeForce RTX 4090", compute_capability=ComputeCapability(8, 9)),))
SOUND = (
    ("torch", "2.11.0+cu126"),
    ("torchvision", "0.26.0+cu126"),
    ("torchaudio", "2.11.0+cu126"),
    ("numpy", "2.3.1"),
    ("nvidia-cudnn-cu12", "9.10.2.21"),
    ("nvidia-nccl-cu12", "2.27.5"),
)


def installed(*changes: tuple[str, str], without: str = "", conda: tuple[str, ...] = ()) -> Installed:
    changed = {name for name, _ in changes}
    kept = (pair for pair in SOUND if pair[0] not in {*changed, without})
    return Installed((*kept, *changes), conda)


@pytest.mark.parametrize("machine", [PASCAL, ADA])
def test_a_sound_environment_has_no_findings(machine: Machine) -> None:
    assert list(environment_findings(installed(), machine)) == []


@pytest.mark.parametrize(
    ("found", "code", "identity"),
    [
        (installed(("torch", "2.11.0+cu126"), ("torch", "2.9.1")), "torch-twice", "F34"),
        (installed(("torch", "2.11.0+cpu")), "cpu-build-over-cuda", "F34"),
        (installed(("nvidia-cudnn-cu13", "9.20.0.48")), "two-cuda-majors", "F54"),
        (installed(("torchvision", "0.25.0")), "torchvision-mismatch", "F47"),
        (
            installed(("torch", "2.9.1"), ("torchvision", "0.24.1"), ("torchaudio", "2.11.0")),
            "torchaudio-mismatch",
            "F48",
        ),
        (
            installed(("torch", "2.2.2"), ("torchvision", "0.17.2"), ("torchaudio", "2.2.2"), ("numpy", "2.1.0")),
            "numpy-too-new",
            "F66",
        ),
        (installed(conda=("pytorch-2.5.1-cpu_mkl_py312_108",)), "conda-and-pip", "F34"),
    ],
)
def test_each_fault_is_found_with_its_entry_and_a_command(found: Installed, code: str, identity: str) -> None:
    (finding,) = environment_findings(found, ADA)
    assert (finding.code, finding.id, finding.blocking) == (code, identity, True)
    assert finding.fix


def test_cudnn_without_code_for_the_card_is_found_only_with_such_a_card() -> None:
    lifted = installed(("nvidia-cudnn-cu12", "9.14.0.64"))
    assert [finding.id for finding in environment_findings(lifted, PASCAL)] == ["F55"]
    assert list(environment_findings(lifted, ADA)) == []


def test_torchvision_no_longer_minds_from_2_14_on() -> None:
    assert list(environment_findings(installed(("torch", "2.14.1"), ("torchvision", "0.31.0")), ADA)) == []


def test_an_environments_folder_is_read_once_for_both_of_its_library_folders(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("torch-2.11.0+cu126", "nvidia_cudnn_cu12-9.10.2.21", "Jinja2-3.1.6"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "pytorch-2.5.1-cpu.json").touch()
    found = read_installed(tmp_path)
    assert found.packages == (("jinja2", "3.1.6"), ("nvidia-cudnn-cu12", "9.10.2.21"), ("torch", "2.11.0+cu126"))
    assert found.conda == ("pytorch-2.5.1-cpu",)


def test_a_folder_that_is_no_environment_holds_nothing(tmp_path: Path) -> None:
    assert read_installed(tmp_path / "absent") == Installed(())
