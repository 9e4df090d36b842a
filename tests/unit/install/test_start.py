"""Every machine on record against the locks of ``lock cover`` for every series of cards."""

from pathlib import Path

import pytest

from gpuinstall.api import choose
from gpuinstall.base.errors import GpuInstallError, NoBuildError
from gpuinstall.base.request import Request
from gpuinstall.catalog import load_catalog
from gpuinstall.catalog.gpus import card_capabilities, series_of
from gpuinstall.install.start import environment_to_start
from gpuinstall.lock.cover import cover_range, machines_in
from gpuinstall.lock.file.target import Target
from gpuinstall.machine.words import machine_in_words
from gpuinstall.project import Settings, open_project
from tests.lab.recorded import read_recording
from tests.unit.export.locks import lock, wheel

RECORDED = sorted((Path(__file__).parents[2] / "data" / "machines").iterdir())


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """A folder with a lock for each build of the cover, from driver 525 on."""
    catalog, folder = load_catalog(), tmp_path_factory.mktemp("locks")
    series = [
        name
        for capability in card_capabilities(catalog.drivers)
        for name in series_of(str(capability))
    ]
    machines = machines_in(series, ">=525", "x86_64", catalog)
    covering = cover_range(machines, Request(), catalog).locks
    python = "3.12"
    builds = [cover.build for cover in covering]
    for build in builds:
        tags = f"cp{python.replace('.', '')}-cp{python.replace('.', '')}-manylinux_2_28_x86_64"
        held = lock(
            str(Target(build.backend.tag)),
            wheel("torch", f"{build.torch}+{build.backend}", tags),
            python=python,
        )
        (folder / held.name).write_text(held.text, "utf-8")
    return folder, builds, python


def entered(folder, machine):
    """The target whose environment is to be there, or the refusal."""
    settings = Settings(only=True, anew=True, machine=machine, venv=folder / ".venv")
    with (
        open_project(folder, settings) as project,
        pytest.raises(GpuInstallError) as raised,
    ):
        environment_to_start(project, proof=False)
    error = raised.value
    if error.code == "environment-missing":
        return str(error.hint).split()[3]
    assert error.exit_code in {3, 8}
    assert error.hint or error.why
    return "refused"


def test_each_recorded_machine_has_the_planned_build_or_the_refusal(
    image,
):
    folder, builds, python = image
    differing, taken = {}, []
    for recording in RECORDED:
        machine = read_recording(recording)
        plan = choose(machine, Request(python=python), load_catalog().only(*builds))
        expected = (
            plan.choice.build.backend.tag
            if plan.choice and plan.status != "cpu"
            else "refused"
        )
        taken.append(entered(folder, machine))
        if taken[-1] != expected:
            differing[recording.name] = (taken[-1], expected)
    assert differing == {}
    assert "refused" in taken
    assert len(set(taken)) > 1


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
        pytest.raises(NoBuildError) as refused,
    ):
        environment_to_start(project, proof=False)

    finding = refused.value.finding
    assert (
        finding.message
        == "no lock here runs on Tesla V100 SXM2 32GB, driver 470.256.02"
    )
    assert "CUDA 12.x needs driver 525.60.13 or newer" in str(finding.evidence)
    assert finding.fixes == (
        "gpuinstall lock --gpu 'Tesla V100 SXM2 32GB' --driver 470.256.02   # where the locks are made",
    )
