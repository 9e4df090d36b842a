"""Recorded machines, each with its source and expected document."""

import json
from pathlib import Path

import pytest

from tests.lab.recorded import read_recording

MACHINES = Path(__file__).parents[2] / "data" / "machines"
FOLDERS = sorted(folder for folder in MACHINES.iterdir() if folder.is_dir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_recording_reproduces_the_expected_machine(folder):
    expected = json.loads((folder / "machine.json").read_text("utf-8"))
    assert read_recording(folder).to_dict() == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_machine_recording_states_its_source(folder):
    source = (folder / "SOURCE").read_text("utf-8")
    assert source.startswith(
        ("https://github.com/", "Recorded by gpuinstall", "Measured for this project")
    )
