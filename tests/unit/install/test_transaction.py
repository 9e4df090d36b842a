"""Going back to what was before the last change: only if that is ours."""

import shutil

import pytest

from gpuinstall.base.environment_paths import EnvironmentPaths
from gpuinstall.base.errors import UsageError
from gpuinstall.base.reporter import Reporter
from gpuinstall.environments.records import forget, remember
from gpuinstall.install.swap import roll_back, swap_in
from tests.unit.install.environments import make_environment, name_of


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """A previous environment that was made here, and nothing in its place."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = EnvironmentPaths(tmp_path / ".venv")
    make_environment(paths.previous, "previous")
    remember(paths.venv, "previous")
    return paths


def test_what_gpuinstall_did_not_make_is_replaced_only_if_told(paths):
    paths.venv.mkdir()
    (paths.venv / "pyvenv.cfg").touch()

    with pytest.raises(UsageError) as raised:
        roll_back(paths, Reporter(), replace=False)

    assert (raised.value.code, raised.value.hint) == (
        "not-ours",
        "Run it again with --replace",
    )
    assert (paths.venv / "pyvenv.cfg").exists()
    assert name_of(paths.previous) == "previous"

    roll_back(paths, Reporter(), replace=True)
    assert name_of(paths.venv) == "previous"
    assert (paths.previous / "pyvenv.cfg").exists()


def test_what_others_made_comes_back_and_goes_again(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    paths = EnvironmentPaths(tmp_path / "project" / ".venv")
    (paths.venv / "bin").mkdir(parents=True)
    (paths.venv / "thesis.txt").write_text("mine")
    make_environment(paths.staging, "ours")
    remember(paths.venv, "ours")
    swap_in(paths, paths.staging, Reporter())

    roll_back(paths, Reporter(), replace=False)
    assert {path.name for path in paths.venv.iterdir()} == {"bin", "thesis.txt"}
    assert name_of(paths.previous) == "ours"

    roll_back(paths, Reporter(), replace=False)
    assert name_of(paths.venv) == "ours"
    assert {path.name for path in paths.previous.iterdir()} == {"bin", "thesis.txt"}


def test_a_previous_that_came_with_the_folder_is_refused(paths):
    forget(paths.venv)
    for marker in ("previous", "inode:1", None):
        (paths.previous / "gpuinstall.json").unlink()
        if marker:
            shutil.rmtree(paths.previous)
            make_environment(paths.previous, marker)

        with pytest.raises(UsageError) as raised:
            roll_back(paths, Reporter(), replace=False)

        assert raised.value.code == "not-made-here", marker


def test_the_previous_comes_back_to_an_empty_place(paths):
    roll_back(paths, Reporter(), replace=False)

    assert name_of(paths.venv) == "previous"
