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


def test_the_guard_of_another_project_ends_without_an_environment(
    folder, capsys, monkeypatch
):
    guard = (folder / ".venv" / "constraints.txt").as_uri()
    left = {}
    for constraints in (f"/srv/mine.txt {guard}", guard, "/srv/mine.txt"):
        monkeypatch.setenv("UV_CONSTRAINT", constraints)
        assert run_command_line(["shellenv", "--venv", "none", "--json"]) == 0
        left[constraints] = data(capsys)["variables"]["UV_CONSTRAINT"]
    assert list(left.values()) == ["/srv/mine.txt", None, "/srv/mine.txt"]


def test_each_shell_is_told_what_ends(folder, capsys, monkeypatch):
    monkeypatch.setenv("UV_PROJECT_ENVIRONMENT", str(folder / ".venv"))
    lines = {}
    for shell in ("sh", "fish", "powershell"):
        words = ["shellenv", "--venv", "none", "--shell", shell, "--json"]
        assert run_command_line(words) == 0
        lines[shell], *_ = data(capsys)["text"].splitlines()
    assert lines == {
        "sh": "unset UV_NO_SYNC",
        "fish": "set -e UV_NO_SYNC",
        "powershell": "$env:UV_NO_SYNC = $null",
    }


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
