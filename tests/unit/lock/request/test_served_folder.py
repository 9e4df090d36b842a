"""Which folder a command serves: the working one, or the nearest above that something can be requested by."""

import os

import pytest

from gpuinstall.lock.request.declaration import served_folder


@pytest.fixture
def below(tmp_path, monkeypatch):
    """A folder two below a project's, in the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "project" / "src" / "app"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "pyproject.toml",
        "setup.py",
        "requirements.txt",
        "environment.yml",
        "Pipfile",
        "pylock.cpu.toml",
        ".venv",
    ],
)
def test_what_says_something_above_is_served(below, name):
    project = below.parents[1]
    (project / name).touch()
    assert served_folder(below) == project
    (below / "requirements.txt").touch()
    assert served_folder(below) == below


def test_home_and_the_folder_of_git_are_the_last(below, tmp_path):
    assert served_folder(below) == below
    (tmp_path / "requirements.txt").touch()
    assert served_folder(below) == below
    (tmp_path / "home" / "requirements.txt").touch()
    assert served_folder(below) == tmp_path / "home"
    (below.parents[1] / ".git").mkdir()
    assert served_folder(below) == below


def test_a_folder_that_others_can_fill_is_not_served(below):
    project = below.parents[1]
    (project / "requirements.txt").touch()
    project.chmod(0o777)
    assert served_folder(below) == below
    project.chmod(0o755)
    assert served_folder(below) == project
    if os.geteuid() == 0:
        os.chown(project, 65534, 65534)
        assert served_folder(below) == below
