"""The environment that a command starts in, if a folder has one for each lock."""

import pytest

from gpuinstall.base.errors import LockError
from gpuinstall.install.start import environment_to_start
from gpuinstall.machine.words import machine_in_words
from gpuinstall.project import Settings, open_project
from tests.unit.export.locks import lock, wheel


def test_a_machine_on_which_no_lock_runs_is_named_with_the_command_that_makes_one(
    tmp_path,
):
    torch = wheel("torch", "2.14.1+cu126", "cp312-cp312-manylinux_2_28_x86_64")
    held = lock("cu126", torch, python="3.12")
    (tmp_path / held.name).write_text(held.text, "utf-8")
    machine = machine_in_words(("2x Tesla V100-SXM2-32GB",), "470.256.02", glibc="2.36")
    settings = Settings(only=True, anew=True, machine=machine, venv=tmp_path / ".venv")

    with (
        open_project(tmp_path, settings) as project,
        pytest.raises(LockError) as refused,
    ):
        environment_to_start(project, proof=False)

    finding = refused.value.finding
    assert finding.message == "no lock here fits this machine"
    assert "CUDA 12.x needs driver 525.60.13 or newer" in str(finding.evidence)
    assert finding.fixes == (
        "Update the NVIDIA driver to 525.60.13 or newer, up to 580   # for pylock.cu126.toml",
        "gpuinstall lock   # makes one that does",
    )
