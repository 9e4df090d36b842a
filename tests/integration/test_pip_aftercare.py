"""An environment that was installed, and what plain pip and uv may do to it later."""

import os
import shutil
import sys

import pytest

from gpuinstall.base import process
from gpuinstall.base.shell import joined
from gpuinstall.base.uv import uv
from tests.frozen import GPUINSTALL
from tests.lab.cases import mostly_heavy
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def workshop(stand_in, tmp_path):
    """A folder with spaces in its name that holds a CPU environment."""
    folder = tmp_path / "my project"
    folder.mkdir()
    variables = {
        name: value
        for name, value in stand_in.environment().items()
        if name != "PIP_CONFIG_FILE"
    }
    variables |= {
        "PIP_INDEX_URL": stand_in.default_index,
        "XDG_CONFIG_HOME": str(tmp_path / "no-settings"),
    }
    workshop = Workshop(folder, tmp_path / "caches", variables)
    done = workshop.run(
        "install", "torch==2.14.1", "--backend", "cpu", "--python", PYTHON
    )
    assert (folder / ".venv" / "bin" / "pip").is_file(), done.out + done.err
    return workshop


def pip(workshop, *words):
    venv = workshop.folder / ".venv" / "bin" / "python"
    return process.run(
        [sys.executable, "-m", "pip", "--python", venv, *words],
        env=workshop.environment,
    )


def in_shell(workshop, command, shell="bash"):
    """Run a line in a shell that has evaluated what ``shellenv`` prints, with gpuinstall and uv on its path."""
    programs = workshop.caches / "programs"
    programs.mkdir(exist_ok=True)
    (programs / "gpuinstall").write_text(
        f'#!/bin/sh\nexec {joined(GPUINSTALL)} "$@"\n', "utf-8"
    )
    (programs / "gpuinstall").chmod(0o755)
    for name in ("uv", "uvx"):
        if not (programs / name).exists():
            (programs / name).symlink_to(uv().with_name(name))
    variables = {
        **workshop.environment,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
    }
    variables |= {
        "UV_TOOL_DIR": str(workshop.caches / "tools"),
        "UV_TOOL_BIN_DIR": str(workshop.caches / "bin"),
    }
    lines = {"fish": "gpuinstall shellenv --shell fish | source"}.get(
        shell, 'eval "$(gpuinstall shellenv)"'
    )
    return process.run(
        [shell, "-c", f"{lines}\n{command}"], env=variables, cwd=workshop.folder
    )


def torch_in(workshop):
    return workshop.python("import torch; print(torch.__version__)")


def test_pip_cannot_replace_torch_and_says_why(workshop):
    (workshop.folder / "requirements.txt").write_text("torch==2.13.0\n", "utf-8")
    done = pip(workshop, "install", "-r", str(workshop.folder / "requirements.txt"))
    assert not done.ok
    assert "The user requested (constraint) torch==2.14.1+cpu" in done.out
    assert torch_in(workshop) == "2.14.1+cpu"


@pytest.mark.heavy
@pytest.mark.parametrize("tool", mostly_heavy(["pip", "uv"], ["pip"]))
def test_what_comes_later_goes_with_torch(workshop, stand_in, tool):
    make_wheel(
        stand_in.folder / "simple", "timm", "1.0", requires=["torch", "torchvision"]
    )
    stand_in.forget()
    packages = "timm torchvision torchaudio"
    command = (
        f".venv/bin/pip install {packages}"
        if tool == "pip"
        else f"uv pip install {packages}"
    )
    done = in_shell(workshop, command)
    assert done.ok, done.out + done.err
    names = "torch", "torchvision", "torchaudio", "timm"
    code = f"from importlib.metadata import version; print(*map(version, {names}))"
    assert workshop.python(code) == "2.14.1+cpu 0.29.2+cpu 2.11.0+cpu 1.0"
    pages = {
        asked.path for asked in stand_in.torch.log if not asked.path.endswith(".whl")
    }
    assert pages == set(), "the default index alone was asked"
    for name in ("triton", "xformers"):
        refused = in_shell(workshop, command.replace(packages, name))
        assert not refused.ok
        assert f"{name}==0+none.for.cpu" in refused.out + refused.err


IMPORTED = """
from importlib.util import find_spec
import torch
print(torch.__version__, find_spec("pip") is not None, find_spec("cowsay") is not None)
"""


@pytest.mark.heavy
@pytest.mark.parametrize("shell", ["dash", "fish"])
def test_every_command_of_uv_keeps_torch_in_a_project(workshop, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    project = '[project]\nname = "p"\nversion = "1"\nrequires-python = "=={}.*"\ndependencies = ["torch==2.14.1"]\n'
    (workshop.folder / "pyproject.toml").write_text(project.format(PYTHON), "utf-8")
    for command, expected in (
        ("uv add cowsay && gpuinstall install", "2.14.1+cpu True True"),
        ("uv run python -c 'import torch, cowsay'", "2.14.1+cpu True True"),
        ("uvx --from filelock python -c 'import filelock'", "2.14.1+cpu True True"),
        ("uv pip install numpy && uv pip uninstall numpy", "2.14.1+cpu True True"),
        ("uv remove cowsay && gpuinstall install", "2.14.1+cpu True False"),
    ):
        done = in_shell(workshop, command, shell)
        assert done.ok, (command, done.out + done.err)
        assert workshop.python(IMPORTED) == expected, command
    assert "+cpu" not in (workshop.folder / "uv.lock").read_text("utf-8"), (
        "which is for every machine"
    )
