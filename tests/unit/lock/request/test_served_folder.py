"""Tests of the folder that a command applies to."""

import os
import sys
from pathlib import Path

import pytest

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.lock.request.declaration import (
    find_parent_environment,
    find_project_folder,
)


@pytest.fixture
def below(tmp_path, monkeypatch):
    """Create a folder two levels below a project, in the user's home."""
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
def test_nearest_parent_project_is_used(below, form):
    project = make_project(below, PROJECTS[form])
    assert find_project_folder(below) == project
    (below / "requirements.txt").touch()
    assert find_project_folder(below) == below


@pytest.mark.parametrize("name", OTHERS)
def test_parent_directory_without_project_is_not_used(below, name):
    (below.parents[1] / name).write_text(OTHERS[name], "utf-8")
    assert find_project_folder(below) == below


def test_lock_in_environment_is_not_a_project(below):
    project = make_project(below)
    for name in ("pyvenv.cfg", "pylock.cpu.toml"):
        (below / name).touch()
    assert find_project_folder(below) == project
    # An environment can be in the project's own folder.
    (below / "pyproject.toml").touch()
    assert find_project_folder(below) == below


def test_home_and_its_parents_are_not_used(below, tmp_path):
    for folder in (tmp_path, tmp_path / "home"):
        (folder / "pyproject.toml").write_text(PROJECTS["project"], "utf-8")
    assert find_project_folder(below) == below


def test_search_ends_at_the_git_repository(below):
    project = make_project(below)
    (project / ".git").mkdir()
    assert find_project_folder(below) == project
    (below / ".git").mkdir()
    assert find_project_folder(below) == below


def test_parent_environment_with_an_interpreter_is_found(below):
    venv = below.parents[1] / ".venv"
    python = interpreter(venv)
    python.parent.mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    assert find_parent_environment(below) is None
    python.touch(0o755)
    assert find_parent_environment(below) == venv
    make_project(below)
    assert find_parent_environment(below) is None


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
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can change a folder's owner"
    ),
)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, marks=OF_ROOT if "another" in form else ())
        for form in FILLED_BY_OTHERS
    ],
)
def test_project_writable_by_others_is_not_used(below, form):
    project = make_project(below)
    assert find_project_folder(below) == project

    FILLED_BY_OTHERS[form](project)

    assert find_project_folder(below) == below


def test_project_search_starts_at_resolved_path(below, tmp_path, monkeypatch):
    strangers = tmp_path / "strangers" / "sub"
    strangers.mkdir(parents=True)
    make_project(below)
    (below / "link").symlink_to(strangers)
    monkeypatch.chdir(below / "link")

    assert find_project_folder(Path.cwd()) == strangers


def test_windows_ignores_parent_projects_outside_home(below, tmp_path, monkeypatch):
    outside = tmp_path / "work" / "sub" / "app"
    outside.mkdir(parents=True)
    project = make_project(outside)
    assert find_project_folder(outside) == project

    monkeypatch.setattr(sys, "platform", "win32")

    assert find_project_folder(outside) == outside
    project = make_project(below)
    assert find_project_folder(below) == project
