"""Arguments of the API are parsed or rejected with a message."""

from typing import Any

import pytest

from gpuinstall.api import (
    Plan,
    Request,
    Sourcing,
    choose,
    install,
    install_into,
    load_catalog,
    lock,
    machine_from_options,
)
from gpuinstall.base.errors import UsageError
from gpuinstall.project.folder import Settings
from gpuinstall.project.run import open_project


def test_api_accepts_string_as_one_requirement():
    assert Request("torch") == Request(["torch"]) == Request()
    assert Request("numpy<2", constraints="six").constraints[0].line == "-c six"


WRONG: dict[str, dict[str, Any]] = {
    "requirements must be a string or a list of strings, not int": {"requirements": 3},
    "python must be a string, not float": {"python": 3.12},
    "backend must be a string, not list": {"backend": ["cpu"]},
    "gpus must be a string or a list of strings, not float": {"gpus": 0.5},
    "constraints must be a string or a list of strings, not dict": {"constraints": {}},
}


@pytest.mark.parametrize("message", WRONG)
def test_api_rejects_invalid_argument_types(message):
    with pytest.raises(TypeError, match=f"^{message}$"):
        Request(**WRONG[message])


@pytest.mark.parametrize("call", [lock, install])
def test_missing_python_interpreter_path_is_rejected(call, tmp_path):
    with pytest.raises(UsageError, match=r"^no such interpreter: \./none/python$"):
        call(tmp_path, Request(python="./none/python"))


def test_plan_uses_requirements_of_the_requested_extra(tmp_path, monkeypatch):
    text = '[project.optional-dependencies]\nold = ["torch==2.7.1"]\n'
    (tmp_path / "pyproject.toml").write_text(text, "utf-8")
    monkeypatch.chdir(tmp_path)
    machine = machine_from_options(("RTX 4090",), driver="580.95.05")

    plan = choose(machine, Request(extras="old"), load_catalog())

    assert isinstance(plan, Plan)
    assert str(plan.choice.build.torch) == "2.7.1"


def test_only_binary_of_the_api_forbids_builds(tmp_path):
    request = Request(sourcing=Sourcing(only_binary=True))

    with open_project(tmp_path, Settings(request=request)) as project:
        assert project.sources.uv.only_binary == {":all:"}


def test_unknown_extra_for_an_environment_is_rejected(tmp_path):
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\n', "utf-8"
    )
    python = tmp_path / "env" / "bin" / "python"

    with pytest.raises(UsageError, match=r"pyproject\.toml has no extra named gpu"):
        install_into(python, Request(extras="gpu"))


def test_api_lock_does_not_create_directories(tmp_path):
    with pytest.raises(UsageError, match="is not a folder"):
        lock(tmp_path / "gone", targets="cpu")
    with pytest.raises(TypeError, match=r"^targets must be a string or a list"):
        lock(tmp_path, targets=3)  # type: ignore[arg-type]
    assert [*tmp_path.iterdir()] == []
