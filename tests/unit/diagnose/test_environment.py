"""What a list of packages shows."""

import pytest

from tests.unit.diagnose.evidence import found as found_in
from tests.unit.diagnose.evidence import holding
from tests.unit.plan.machines import machine

PASCAL, ADA = machine("GTX 1080"), machine("RTX 4090")
SOUND = (
    ("torch", "2.11.0+cu126"),
    ("torchvision", "0.26.0+cu126"),
    ("torchaudio", "2.11.0+cu126"),
    ("numpy", "2.3.1"),
    ("nvidia-cudnn-cu12", "9.10.2.21"),
    ("nvidia-nccl-cu12", "2.27.5"),
)


def installed(*changes, without=""):
    changed = {name for name, _ in changes}
    kept = (pair for pair in SOUND if pair[0] not in {*changed, without})
    return holding(*kept, *changes)


@pytest.mark.parametrize("on", [PASCAL, ADA])
def test_a_sound_environment_has_no_findings(on):
    assert found_in(on, packages=installed()) == []


def test_two_torches_in_one_environment_are_found_with_a_command():
    packages = installed(("torch", "2.11.0+cu126"), ("torch", "2.9.1"))

    (finding,) = found_in(ADA, packages=packages)

    assert (finding.code, finding.id, finding.blocking) == ("torch-twice", "F34", True)
    assert finding.fix


def test_an_environment_of_condas_is_not_replaced(tmp_path):
    (tmp_path / "conda-meta").mkdir()
    packages = installed(("torch", "2.11.0+cu126"), ("torch", "2.9.1"))

    (finding,) = found_in(ADA, packages=packages, venv=tmp_path)

    assert str(finding.fix) == "gpuinstall install"
