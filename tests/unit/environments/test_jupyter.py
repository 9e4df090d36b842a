from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gpuinstall.environments.jupyter import kernel_folder, kernel_name, remove_kernel, settle_kernel
from gpuinstall.launcher import command_file


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "jupyter"))
    return tmp_path / "jupyter"


VENV = Path("/home/ann/My Project/.venv")


def test_the_kernel_starts_the_environments_python_after_the_check(data: Path) -> None:
    settle_kernel(VENV, ["torch", "ipykernel"], wanted=True)
    [file] = data.glob("kernels/*/kernel.json")

    assert file.parent == kernel_folder(VENV)
    assert file.parent.name.startswith("gpuinstall-my-project-")
    assert json.loads(file.read_text()) == {
        "argv": [
            str(command_file()),
            *("run", "--venv", str(VENV), f"{VENV}/bin/python"),
            *("-m", "ipykernel_launcher", "-f", "{connection_file}"),
        ],
        "display_name": "My Project (PyTorch)",
        "language": "python",
        "metadata": {"debugger": True},
    }


def test_a_kernel_stays_as_long_as_its_environment_can_run_it(data: Path) -> None:
    settle_kernel(VENV, ["torch", "ipykernel"], wanted=False)
    assert not data.exists(), "nobody asked for one"
    settle_kernel(VENV, ["torch", "ipykernel"], wanted=True)
    settle_kernel(VENV, ["torch", "ipykernel"], wanted=False)
    assert kernel_folder(VENV).exists()
    settle_kernel(VENV, ["torch"], wanted=False)
    assert not kernel_folder(VENV).exists()
    remove_kernel(VENV)


def test_what_the_user_added_to_a_kernel_stays(data: Path) -> None:
    settle_kernel(VENV, ["torch", "ipykernel"], wanted=True)
    (kernel_folder(VENV) / "logo-64x64.png").touch()
    remove_kernel(VENV)
    assert [file.name for file in data.glob("kernels/*/*")] == ["logo-64x64.png"]


def test_environments_of_the_same_name_have_kernels_of_their_own() -> None:
    places = [VENV, VENV.with_name("env"), Path("/home/bob/My Project/.venv"), Path("/äöü/.venv")]

    assert len({kernel_folder(place) for place in places}) == len(places)
    assert [kernel_name(place) for place in places[:2]] == [
        "My Project (PyTorch)",
        "My Project/env (PyTorch)",
    ]
    assert all(
        set(kernel_folder(place).name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
        for place in places
    )


@pytest.mark.parametrize(
    ("system", "variables", "folder"),
    [
        ("linux", {}, ".local/share/jupyter"),
        ("linux", {"XDG_DATA_HOME": "/data"}, "/data/jupyter"),
        ("darwin", {"XDG_DATA_HOME": "/data"}, "Library/Jupyter"),
    ],
)
def test_jupyters_own_rule_says_where(
    system: str,
    variables: dict[str, str],
    folder: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("JUPYTER_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", system)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert kernel_folder(VENV).parent == tmp_path / folder / "kernels"
