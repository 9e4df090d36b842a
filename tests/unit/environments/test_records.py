import shutil

import pytest

from gpuinstall.environments.records import forget, remember, remembered, was_made_here
from tests.unit.install.environments import make_environment


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_environments_are_remembered_as_long_as_they_are_there(tmp_path):
    names = ("a b", "ü")
    made = [
        make_environment(tmp_path / name, f"id-{number}")
        for number, name in enumerate(names)
    ]
    for venv in (*made, *made):
        remember(venv, "one")
    assert remembered() == made
    shutil.rmtree(made[0])
    assert remembered() == made[1:]
    forget(made[1])
    forget(made[1])
    assert remembered() == []


def test_an_environment_that_came_with_a_folder_passes_for_none_of_ours(tmp_path):
    made = make_environment(tmp_path / ".venv", "ours")
    assert not was_made_here(made)
    remember(made, "ours")
    assert was_made_here(made)
    copied = shutil.copytree(made, tmp_path / "clone" / ".venv")
    assert not was_made_here(copied)
    for number in range(20):
        remember(made, f"proof {number}")
    # It may be the previous one, which was replaced that many proofs ago.
    assert was_made_here(made)
    for number in range(100):
        remember(made, f"another {number}")
    assert not was_made_here(made)


def test_a_folder_that_cannot_be_written_is_no_fault(tmp_path, state):
    state.touch()
    remember(make_environment(tmp_path / ".venv", "ours"), "ours")
    forget(tmp_path / ".venv")
    assert remembered() == []
