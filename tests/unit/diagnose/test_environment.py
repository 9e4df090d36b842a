"""What a list of packages shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuinstall.base.machine import Gpu, Machine
from gpuinstall.base.versions import ComputeCapability
from gpuinstall.diagnose.evidence import EnvironmentContents
from gpuinstall.environments.packages import InstalledPackage
from tests.unit.diagnose.evidence import found as found_in
from tests.unit.diagnose.evidence import holding

PASCAL = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(0, "NVIDIA GeForce GTX 1080", compute_capability=ComputeCapability(6, 1)),),
)
ADA = Machine(
    "linux",
    "x86_64",
    gpus=(Gpu(0, "NVIDIA GeForce RTX 4090", compute_capability=ComputeCapability(8, 9)),),
)
SOUND = (
    ("torch", "2.11.0+cu126"),
    ("torchvision", "0.26.0+cu126"),
    ("torchaudio", "2.11.0+cu126"),
    ("numpy", "2.3.1"),
    ("nvidia-cudnn-cu12", "9.10.2.21"),
    ("nvidia-nccl-cu12", "2.27.5"),
)


def installed(
    *changes: tuple[str, str], without: str = "", conda: tuple[str, ...] = ()
) -> EnvironmentContents:
    changed = {name for name, _ in changes}
    kept = (pair for pair in SOUND if pair[0] not in {*changed, without})
    return holding(*kept, *changes, conda=conda)


@pytest.mark.parametrize("machine", [PASCAL, ADA])
def test_a_sound_environment_has_no_findings(machine):
    assert found_in(machine, contents=installed()) == []


@pytest.mark.parametrize(
    ("found", "code", "identity"),
    [
        (installed(("torch", "2.11.0+cu126"), ("torch", "2.9.1")), "torch-twice", "F34"),
        (
            installed(
                ("torch", "2.11.0+cpu"), ("torchvision", "0.26.0+cpu"), ("torchaudio", "2.11.0+cpu")
            ),
            "cpu-build-over-cuda",
            "F34",
        ),
        (installed(("torchaudio", "2.11.0+cu130")), "torchaudio-mismatch", "F48"),
        (installed(("nvidia-cudnn-cu13", "9.20.0.48")), "two-cuda-majors", "F54"),
        (installed(("torchvision", "0.25.0")), "torchvision-mismatch", "F47"),
        (
            installed(("torch", "2.9.1"), ("torchvision", "0.24.1"), ("torchaudio", "2.11.0")),
            "torchaudio-mismatch",
            "F48",
        ),
        (
            installed(
                ("torch", "2.2.2"),
                ("torchvision", "0.17.2"),
                ("torchaudio", "2.2.2"),
                ("numpy", "2.1.0"),
            ),
            "numpy-too-new",
            "F66",
        ),
        (installed(conda=("pytorch-2.5.1-cpu_mkl_py312_108",)), "conda-and-pip", "F34"),
    ],
)
def test_each_fault_is_found_with_its_entry_and_a_command(found, code, identity):
    (finding,) = found_in(ADA, contents=found)
    assert (finding.code, finding.id, finding.blocking) == (code, identity, True)
    assert finding.fix


def test_cudnn_without_code_for_the_card_is_found_only_with_such_a_card():
    lifted = installed(("nvidia-cudnn-cu12", "9.14.0.64"))
    assert [finding.id for finding in found_in(PASCAL, contents=lifted)] == ["F55"]
    assert found_in(ADA, contents=lifted) == []


def test_torchvision_no_longer_minds_from_2_14_on():
    assert found_in(ADA, contents=installed(("torch", "2.14.1"), ("torchvision", "0.31.0"))) == []


def test_a_torch_from_before_numpy_2_is_older_on_linux_than_on_windows():
    between = holding(("torch", "2.4.0"), ("numpy", "2.0.1"))
    assert found_in(ADA, contents=between) == []
    assert [found.id for found in found_in(replace(ADA, os="windows"), contents=between)] == ["F66"]


def test_a_conda_build_for_the_cpu_is_right_where_there_is_no_gpu():
    build = holding(("torch", "2.5.1"), conda=("pytorch-2.5.1-py3.12_cpu_0",))
    assert [found.id for found in found_in(ADA, contents=build)] == ["F45"]
    assert found_in(replace(ADA, gpus=()), contents=build) == []


def test_a_pin_of_torch_counts_unless_only_an_extra_has_it(tmp_path):
    found = {}
    for requirement in ("torch==2.0.1", 'torch==2.0.1; extra == "benchmarks"'):
        (tmp_path / "METADATA").write_text(f"Requires-Dist: {requirement}\n", encoding="utf-8")
        contents = installed()
        datasets = InstalledPackage("datasets", "5.2.0", tmp_path)
        contents = replace(contents, packages=(*contents.packages, datasets))
        found[requirement] = [finding.id for finding in found_in(ADA, contents=contents)]
    assert found == {"torch==2.0.1": ["F56"], 'torch==2.0.1; extra == "benchmarks"': []}


def test_what_was_built_for_another_torch_is_a_note_and_companions_are_judged_by_their_own_rule():
    built = (("torch-scatter", "2.1.2+pt25cu126"), ("torch-sparse", "0.6.18+pt211cu126"))
    (note,) = found_in(ADA, contents=installed(*built))
    assert (note.code, note.id, note.blocking) == ("extension-mismatch", "F56", False)
