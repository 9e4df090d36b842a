"""Which folder a command serves: the working one, or the nearest above that something can be requested by."""

import os
import sys
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.lock.request.declaration import parent_environment, served_folder


@pytest.fixture
def below(tmp_path, monkeypatch):
    """A folder two below a project's, in the user's home."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "home" / "project" / "src" / "app"
    folder.mkdir(parents=True)
    return folder


PROJECTS = {
    "project": '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n',
    "dynamic": '[project]\nname = "x"\ndynamic = ["version", "dependencies"]\n',
    "poetry": '[tool.poetry.dependencies]\ntorch = "*"\n',
    "gpuinstall": "[tool.gpuinstall]\n",
}
OTHERS = {
    "pyproject.toml": "[tool.ruff]\n",
    "setup.py": "",
    "requirements.txt": "torch\n",
    "environment.yml": "dependencies: [pytorch]\n",
    "Pipfile": "",
    "pylock.cpu.toml": 'lock-version = "1.0"\n',
    ".venv": "",
}


@pytest.mark.parametrize("form", PROJECTS)
def test_the_nearest_project_above_is_served(below, form):
    project = make_project(below, PROJECTS[form])
    assert served_folder(below) == project
    (below / "requirements.txt").touch()
    assert served_folder(below) == below


@pytest.mark.parametrize("name", OTHERS)
def test_other_files_above_are_not_adopted(below, name):
    (below.parents[1] / name).write_text(OTHERS[name], "utf-8")
    assert served_folder(below) == below


def test_an_environments_copy_of_a_lock_is_no_request(below):
    project = make_project(below)
    for name in ("pyvenv.cfg", "pylock.cpu.toml"):
        (below / name).touch()
    assert served_folder(below) == project
    # Some make one in the folder of the project itself.
    (below / "pyproject.toml").touch()
    assert served_folder(below) == below


def test_the_home_folder_and_its_parents_are_not_adopted(below, tmp_path):
    for folder in (tmp_path, tmp_path / "home"):
        (folder / "pyproject.toml").write_text(PROJECTS["project"], "utf-8")
    assert served_folder(below) == below


def test_the_folder_of_git_is_the_last(below):
    project = make_project(below)
    (project / ".git").mkdir()
    assert served_folder(below) == project
    (below / ".git").mkdir()
    assert served_folder(below) == below


def test_a_working_environment_above_is_found(below):
    venv = below.parents[1] / ".venv"
    python = interpreter(venv)
    python.parent.mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    assert parent_environment(below) is None
    python.touch(0o755)
    assert parent_environment(below) == venv
    make_project(below)
    assert parent_environment(below) is None


def make_project(below, text=PROJECTS["project"]):
    (below.parents[1] / "pyproject.toml").write_text(text, "utf-8")
    return below.parents[1]


def of_another_user(project):
    os.chown(project, 65534, 65534)


def in_the_folder_for_temporary_files(project):
    project.parent.chmod(0o1777)
    (project / "pyproject.toml").rename(project.parent / "pyproject.toml")


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
    project = make_project(below)
    assert served_folder(below) == project

    FILLED_BY_OTHERS[form](project)

    assert served_folder(below) == below


def test_a_link_is_not_followed_back(below, tmp_path, monkeypatch):
    strangers = tmp_path / "strangers" / "sub"
    strangers.mkdir(parents=True)
    make_project(below)
    (below / "link").symlink_to(strangers)
    monkeypatch.chdir(below / "link")

    assert served_folder(Path.cwd()) == strangers


def test_on_windows_nothing_outside_home_is_served(below, tmp_path, monkeypatch):
    outside = tmp_path / "work" / "sub" / "app"
    outside.mkdir(parents=True)
    project = make_project(outside)
    assert served_folder(outside) == project

    monkeypatch.setattr(sys, "platform", "win32")

    assert served_folder(outside) == outside
    project = make_project(below)
    assert served_folder(below) == project
