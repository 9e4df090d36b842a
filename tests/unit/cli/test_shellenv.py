import json
import os

import pytest

from gpuinstall.cli.main import run_command_line
from tests.unit.install.environments import make_environment


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with an environment for cu126, in which the command runs with no configuration of its own."""
    for name in os.environ:
        if name.startswith(("GPUINSTALL_", "PIP_", "UV_", "SSL_", "REQUESTS_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".venv").mkdir()
    make_environment(tmp_path / ".venv", "one")
    return tmp_path


def data(capsys):
    return json.loads(capsys.readouterr().out)["data"]


def test_it_is_the_environments_decision(folder, capsys):
    constraints = folder / ".venv" / "constraints.txt"
    constraints.touch()
    assert run_command_line(["shellenv"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "export UV_TORCH_BACKEND=cu126",
        f"export UV_CONSTRAINT={constraints.as_uri()}",
    ]


def test_constraints_of_the_user_go_on_counting(folder, capsys, monkeypatch):
    constraints = folder / ".venv" / "constraints.txt"
    constraints.touch()
    for _ in range(2):  # in a shell that has evaluated it already too
        monkeypatch.setenv("UV_CONSTRAINT", f"/srv/mine.txt {constraints.as_uri()}")
        assert run_command_line(["shellenv", "--json"]) == 0
        assert (
            data(capsys)["variables"]["UV_CONSTRAINT"]
            == f"/srv/mine.txt {constraints.as_uri()}"
        )


def test_the_guard_of_another_project_ends(
    folder,
    tmp_path,
    capsys,
    monkeypatch,
):
    other = tmp_path / "other" / ".venv"
    other.mkdir(parents=True)
    make_environment(other, "one")
    (other / "constraints.txt").touch()
    (folder / ".venv" / "constraints.txt").touch()
    monkeypatch.setenv(
        "UV_CONSTRAINT", f"{(other / 'constraints.txt').as_uri()} /srv/constraints.txt"
    )
    assert run_command_line(["shellenv", "--json"]) == 0
    own = (folder / ".venv" / "constraints.txt").as_uri()
    assert data(capsys)["variables"]["UV_CONSTRAINT"] == f"/srv/constraints.txt {own}"


def test_what_was_set_for_another_project_ends_without_an_environment(
    folder, capsys, monkeypatch
):
    guard = folder / ".venv" / "constraints.txt"
    guard.touch()
    monkeypatch.setenv("UV_NO_SYNC", "1")
    ended = {
        "sh": "unset UV_NO_SYNC",
        "fish": "set -e UV_NO_SYNC",
        "powershell": "$env:UV_NO_SYNC = $null",
    }
    wrong = {}
    for shell, line in ended.items():
        monkeypatch.setenv("UV_CONSTRAINT", f"/srv/mine.txt {guard.as_uri()}")
        assert (
            run_command_line(["shellenv", "--venv", "none", "--shell", shell, "--json"])
            == 0
        )
        document = data(capsys)
        constraint = document["variables"]["UV_CONSTRAINT"]
        if constraint != "/srv/mine.txt" or line not in document["text"].splitlines():
            wrong[shell] = document
        removed = (folder / "removed" / "constraints.txt").as_uri()
        monkeypatch.setenv("UV_CONSTRAINT", f"{guard.as_uri()} {removed}")
        assert (
            run_command_line(["shellenv", "--venv", "none", "--shell", shell, "--json"])
            == 0
        )
        if data(capsys)["variables"]["UV_CONSTRAINT"] is not None:
            wrong[f"{shell}, alone"] = document
        monkeypatch.setenv("UV_CONSTRAINT", "/srv/mine.txt")
        assert (
            run_command_line(["shellenv", "--venv", "none", "--shell", shell, "--json"])
            == 0
        )
        if line in data(capsys)["text"].splitlines():
            wrong[f"{shell}, not set up before"] = document
    assert wrong == {}


def test_a_project_gets_no_constraints_and_the_next_folder_none_of_its_variables(
    folder, capsys, monkeypatch
):
    (folder / ".venv" / "constraints.txt").touch()
    (folder / "pyproject.toml").touch()
    assert run_command_line(["shellenv", "--json"]) == 0
    project = data(capsys)["variables"]
    own = {"UV_NO_SYNC": "1", "UV_PROJECT_ENVIRONMENT": str(folder / ".venv")}
    assert project == {"UV_TORCH_BACKEND": "cu126", **own}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert run_command_line(["shellenv", "--venv", "none", "--json"]) == 0
    assert data(capsys)["variables"].items() >= dict.fromkeys(own).items()


@pytest.mark.usefixtures("folder")
def test_without_an_environment_it_is_the_plan_for_this_machine(
    capsys,
):
    assert run_command_line(["plan", "--json"]) == 0
    planned = data(capsys)["build"]["backend"]
    assert run_command_line(["shellenv", "--venv", "none", "--json"]) == 0
    assert data(capsys)["backend"] == planned
