"""Which folder a command serves: the working one, or the nearest above that something can be requested by."""

import os
import sys
from pathlib import Path

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


def test_an_environment_is_no_project_by_its_own_copy_of_a_lock(below):
    project = below.parents[1]
    (project / "requirements.txt").touch()
    for name in ("pyvenv.cfg", "pylock.cpu.toml"):
        (below / name).touch()
    assert served_folder(below) == project
    # Some make one in the folder of the project itself.
    (below / "pyproject.toml").touch()
    assert served_folder(below) == below


def test_home_and_the_folder_of_git_are_the_last(below, tmp_path):
    assert served_folder(below) == below
    (tmp_path / "requirements.txt").touch()
    assert served_folder(below) == below
    (tmp_path / "home" / "requirements.txt").touch()
    assert served_folder(below) == tmp_path / "home"
    (below.parents[1] / ".git").mkdir()
    assert served_folder(below) == below


def of_another_user(project):
    os.chown(project, 65534, 65534)


def in_the_folder_for_temporary_files(project):
    project.parent.chmod(0o1777)
    (project.parent / "requirements.txt").touch()
    (project / "requirements.txt").unlink()


FILLED_BY_OTHERS = {
    "all may write": lambda project: project.chmod(0o777),
    "all may write, sticky": lambda project: project.chmod(0o1777),
    "the folder above": in_the_folder_for_temporary_files,
    "another user's": of_another_user,
    "a lock of another's folder": lambda project: (
        (project / "pylock.cpu.toml").touch(),
        of_another_user(project),
    ),
    "another user's between": lambda project: of_another_user(project / "src"),
    "all may write between": lambda project: (project / "src").chmod(0o757),
}


OF_ROOT = (
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away"),
)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=OF_ROOT if "another" in form else ())
        for form in FILLED_BY_OTHERS
    ],
)
def test_a_folder_that_others_can_fill_is_not_served(below, form):
    project = below.parents[1]
    (project / "requirements.txt").touch()
    assert served_folder(below) == project

    FILLED_BY_OTHERS[form](project)

    assert served_folder(below) == below


def test_a_link_is_not_followed_back(below, tmp_path, monkeypatch):
    strangers = tmp_path / "strangers" / "sub"
    strangers.mkdir(parents=True)
    (below.parents[1] / "requirements.txt").touch()
    (below / "link").symlink_to(strangers)
    monkeypatch.chdir(below / "link")

    assert served_folder(Path.cwd()) == strangers


def test_on_windows_nothing_outside_home_is_served(below, tmp_path, monkeypatch):
    (tmp_path / "requirements.txt").touch()
    outside = tmp_path / "work" / "sub"
    outside.mkdir(parents=True)
    assert served_folder(outside) == tmp_path

    monkeypatch.setattr(sys, "platform", "win32")

    assert served_folder(outside) == outside
    (below.parent / "requirements.txt").touch()
    assert served_folder(below) == below.parent
