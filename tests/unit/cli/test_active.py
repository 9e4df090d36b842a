import os
import sys
from io import StringIO
from pathlib import Path

import click
import pytest

from gpuinstall.base.environment_paths import interpreter
from gpuinstall.base.files import display_path
from gpuinstall.base.shell import format_activation
from gpuinstall.cli.active import (
    enter_project_folder,
    find_active_environment,
    report_active_environment,
)
from gpuinstall.cli.commands import detect_shell, load_command
from gpuinstall.cli.install import format_activation_command
from gpuinstall.cli.terminal import Terminal
from tests.lab.own_sources import only_variables
from tests.unit.install.environments import make_environment


@pytest.fixture
def active(tmp_path, monkeypatch):
    """Create a managed environment and activate it."""
    folder = make_environment(tmp_path / "active", "ours")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    return folder


def advice(command, venv):
    """Return the command for the active environment, or an empty text."""
    err = StringIO()
    report_active_environment(command.split(), venv, Terminal(err=err))
    return err.getvalue().partition("to use the active one: ")[2].strip()


def test_install_hint_suggests_the_active_environment(active, tmp_path):
    venv = tmp_path / ".venv"

    assert advice("install", venv) == f"gpuinstall install --venv {active}"
    assert advice("verify", venv) == f"gpuinstall verify --venv {active}"


def test_no_hint_is_printed_for_active_environment(active, monkeypatch):
    assert advice("install", active) == ""
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert advice("install", Path(".venv")) == ""


def test_other_active_environment_is_detected(tmp_path):
    venv, theirs, conda = (tmp_path / name for name in (".venv", "theirs", "conda"))
    for folder in (venv, theirs, conda):
        interpreter(folder).parent.mkdir(parents=True)
        interpreter(folder).touch()
    cases = {
        (None, None): None,
        (theirs, None): theirs,
        (None, conda): conda,
        (theirs, conda): theirs,
        (venv, conda): None,
        (tmp_path / "gone", None): None,
        ("theirs", None): None,
        (sys.prefix, None): None,
    }
    for (virtual, prefix), active in cases.items():
        values = {"VIRTUAL_ENV": virtual, "CONDA_PREFIX": prefix}
        environ = {name: str(value) for name, value in values.items() if value}
        with only_variables(environ):
            assert find_active_environment(venv) == active, environ


def test_paths_in_subfolder_are_relative_to_the_shell(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("[tool.gpuinstall]\nrequirements = []\n")
    here = tmp_path / "src" / "deep"
    here.mkdir(parents=True)
    interpreter(tmp_path / ".venv").parent.mkdir(parents=True)
    monkeypatch.setenv("USERPROFILE", str(tmp_path.parent))
    monkeypatch.chdir(here)

    command = load_command("install")
    with click.Context(command), enter_project_folder(Terminal(err=StringIO())):
        shown = display_path(tmp_path / ".venv"), display_path(here / "a.txt")
        line = format_activation_command(tmp_path / ".venv")

    venv = str(Path("../../.venv"))
    assert shown == (venv, "a.txt")
    windows = os.name == "nt"
    assert line == format_activation(venv, detect_shell(), windows=windows)
    assert display_path(tmp_path / ".venv") == str(tmp_path / ".venv")
