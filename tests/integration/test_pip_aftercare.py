"""An environment that was installed, and what plain pip and uv may do to it later."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpuinstall import process
from gpuinstall.uv import uv
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from gpuinstall.process import Finished
    from tests.lab.index import StandInIndex

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def workshop(stand_in: StandInIndex, tmp_path: Path) -> Workshop:
    """A folder with spaces in its name that holds a CPU environment."""
    folder = tmp_path / "my project"
    folder.mkdir()
    variables = {name: value for name, value in stand_in.environment().items() if name != "PIP_CONFIG_FILE"}
    variables |= {"PIP_INDEX_URL": stand_in.default_index, "XDG_CONFIG_HOME": str(tmp_path / "no-settings")}
    workshop = Workshop(folder, tmp_path / "caches", variables)
    done = workshop.run("install", "torch==2.14.1", "--backend", "cpu", "--python", PYTHON)
    assert (folder / ".venv" / "bin" / "pip").is_file(), done.out + done.err
    return workshop


def pip(workshop: Workshop, *words: str) -> Finished:
    venv = workshop.folder / ".venv" / "bin" / "python"
    return process.run([sys.executable, "-m", "pip", "--python", venv, *words], env=workshop.environment)


def torch_in(workshop: Workshop) -> str:
    return workshop.python("import torch; print(torch.__version__)")


def test_pip_cannot_replace_torch_and_says_why(workshop: Workshop) -> None:
    (workshop.folder / "requirements.txt").write_text("torch==2.13.0\n", encoding="utf-8")
    done = pip(workshop, "install", "-r", str(workshop.folder / "requirements.txt"))
    assert not done.ok
    assert "The user requested (constraint) torch==2.14.1+cpu" in done.out
    assert torch_in(workshop) == "2.14.1+cpu"


def test_the_environments_own_pip_is_the_one_that_an_activated_shell_calls(workshop: Workshop) -> None:
    script = (
        ". .venv/bin/activate && command -v pip && .venv/bin/pip install --quiet cowsay && pip install torch==2.13.0"
    )
    done = process.run(["bash", "-c", script], env=workshop.environment, cwd=workshop.folder)
    assert done.out.splitlines()[0] == str(workshop.folder / ".venv" / "bin" / "pip")
    assert not done.ok
    assert torch_in(workshop) == "2.14.1+cpu"
    assert workshop.run("run", "python", "-c", "import cowsay").status == 0


def test_its_pip_is_nobodys_package_and_nothing_is_installed_again(workshop: Workshop) -> None:
    again = workshop.document("install", "torch==2.14.1", "--backend", "cpu", "--python", PYTHON)
    assert again["data"]["environment"]["status"] == "none"


def test_pip_installs_what_goes_with_it(workshop: Workshop) -> None:
    done = pip(workshop, "install", "cowsay", "torch>=2.9")
    assert done.ok, done.err
    assert torch_in(workshop) == "2.14.1+cpu"


def test_the_line_in_pip_conf_lifts_it(workshop: Workshop) -> None:
    (workshop.folder / ".venv" / "pip.conf").unlink()
    done = pip(workshop, "install", "--no-deps", "torch==2.13.0")
    assert done.ok, done.err
    assert torch_in(workshop) == "2.13.0"


def test_in_a_shell_that_knows_uv_cannot_either(workshop: Workshop) -> None:
    shell = shutil.which("dash") or "/bin/sh"
    program = f'eval "$({sys.executable} -m gpuinstall shellenv)" && {uv()} pip install --python .venv "torch==2.13.0"'
    done = process.run([shell, "-c", program], env=workshop.environment, cwd=workshop.folder)
    assert not done.ok
    assert "torch==2.14.1+cpu" in done.err
    assert torch_in(workshop) == "2.14.1+cpu"


def test_gpuinstall_itself_is_not_held_by_what_a_shell_knows(workshop: Workshop) -> None:
    said = workshop.document("shellenv")["data"]["variables"]
    assert "UV_CONSTRAINT" in said
    inside = replace(workshop, variables={**workshop.variables, **said})
    inside.document("install", "torch==2.13.0", "--backend", "cpu", "--python", PYTHON)
    assert torch_in(workshop) == "2.13.0+cpu"


def test_the_constraints_hold_after_a_roll_back(workshop: Workshop) -> None:
    workshop.document("install", "torch==2.13.0", "--backend", "cpu", "--python", PYTHON)
    workshop.document("install", "--rollback")
    assert torch_in(workshop) == "2.14.1+cpu"
    assert not pip(workshop, "install", "torch==2.13.0").ok
