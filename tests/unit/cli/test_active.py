import sys
from pathlib import Path

import pytest

from gpuinstall.cli.active import command_for_active
from tests.unit.install.environments import make_environment


@pytest.fixture
def active(tmp_path, monkeypatch):
    """An environment of ours that the shell has activated."""
    folder = make_environment(tmp_path / "active", "ours")
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    return folder


def test_the_active_environment_is_meant_by_its_folder(active, tmp_path):
    venv = tmp_path / ".venv"

    assert (
        str(command_for_active("install", venv))
        == f"gpuinstall install --venv {active}"
    )
    (active / "gpuinstall.json").unlink()
    assert (
        str(command_for_active("install", venv))
        == f"gpuinstall install --into --venv {active}"
    )
    assert str(command_for_active("sync", venv)) == f"gpuinstall sync --venv {active}"


def test_no_command_is_named_for_the_environment_itself(active, monkeypatch):
    assert command_for_active("install", active) is None
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    assert command_for_active("install", Path(".venv")) is None
