"""Selection of the environment for ``run --any``."""

import shutil

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import GpuInstallError
from gpuinstall.base.values import replace
from gpuinstall.environments.environment import NAME, read_marker
from gpuinstall.environments.records import record_environment
from gpuinstall.environments.running import Owner
from gpuinstall.install.journal import (
    Journal,
    previous_files,
    write_journal,
)
from gpuinstall.install.start import select_environment
from gpuinstall.machine.options import machine_from_options
from gpuinstall.project import Settings, open_project
from tests.unit.export.locks import cuda_lock, lock, wheel
from tests.unit.install.environments import make_environment


def refusal(folder, cards, driver):
    """Return the error of a start in a folder on a simulated machine."""
    machine = machine_from_options((cards,), driver, glibc="2.36")
    settings = Settings(
        only=True, ignores_existing_backend=True, machine=machine, venv=folder / ".venv"
    )
    with (
        open_project(folder, settings) as project,
        pytest.raises(GpuInstallError) as refused,
    ):
        select_environment(project, proof=False)
    return refused.value


def test_incompatible_locks_are_reported_with_a_fix(
    tmp_path,
):
    torch = wheel("torch", "2.14.1+cu126", "cp312-cp312-manylinux_2_28_x86_64")
    held = lock("cu126", torch, python="3.12")
    (tmp_path / held.name).write_text(held.text, "utf-8")
    refused = refusal(tmp_path, "2x Tesla V100-SXM2-32GB", "470.256.02")
    finding = refused.finding
    assert finding.code == "lock-does-not-fit"
    assert finding.message == "no lock file in this folder fits this machine"
    assert "CUDA 12.x needs driver 525.60.13 or newer" in str(finding.evidence)
    assert [*map(str, finding.fixes)] == [
        "Update the NVIDIA driver to 525.60.13 or newer, up to 580 (for pylock.cu126.toml)",
        "gpuinstall lock --target cu126 --target cu118",
    ]


def test_interrupted_change_is_rolled_back_before_selection(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    new = cuda_lock()
    venv = make_environment(tmp_path / ".venv-cu126", "old", "2.13.0+cu126", new.name)
    record_environment(venv, "old", is_created=True)
    # The command was killed after writing the new marker and lock, before verification.
    place = EnvironmentPaths(venv)
    shutil.copytree(venv, previous_files(place.current_change))
    journal = Journal(Owner.here(), own=(NAME, new.name))
    write_journal(journal, place, place.current_change)
    for folder in (tmp_path, venv):
        (folder / new.name).write_text(new.text, "utf-8")
    marker = read_marker(venv)
    assert marker
    replace(marker, id="new", lock_sha256=new.sha256).write(venv)

    refused = refusal(tmp_path, "Tesla V100", "535.183.01")

    assert refused.message.startswith("there is no environment for pylock")
    marker = read_marker(venv)
    assert marker
    assert marker.id == "old"
