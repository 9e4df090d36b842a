import shutil

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.shell import quoted
from gpuinstall.environments.records import (
    forget,
    remember,
    remembered,
    unfinished_change,
    vouch,
    was_made_here,
)
from tests.unit.install.environments import make_environment


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state"


def test_environments_are_remembered_as_long_as_they_are_there(tmp_path):
    made = [make_environment(tmp_path / name, name) for name in ("a b", "ü")]
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


def test_with_an_environment_the_journals_of_its_changes_are_forgotten(tmp_path, state):
    venv = make_environment(tmp_path / ".venv", "ours")
    remember(venv, "ours")
    vouch(EnvironmentPaths(venv).work, "a digest")
    forget(venv)
    assert list((state / "gpuinstall" / "environments").iterdir()) == []


def test_a_change_that_is_not_finished_is_named_with_what_ends_it(tmp_path):
    ours, theirs = make_environment(tmp_path / "a", "ours"), tmp_path / "b"
    work = theirs / "lib/python3.12/site-packages/.gpuinstall"
    assert unfinished_change(ours) == unfinished_change(theirs) == ""
    # Between two environments of ours there is none at its place.
    shutil.rmtree(ours)
    for folder in (EnvironmentPaths(ours).work, work):
        (folder / "changing").mkdir(parents=True)
    assert f"; gpuinstall env rollback --venv {quoted(ours)} c" in unfinished_change(
        ours
    )
    python = quoted(theirs / "bin" / "python")
    into = f"; gpuinstall env rollback --into --python {python} c"
    assert into in unfinished_change(theirs)
