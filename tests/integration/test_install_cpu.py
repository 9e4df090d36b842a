"""Tests of installing the real torch for the CPU."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from tests.lab.pace import slowness
from tests.lab.processes import succeed
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.network

WHEEL = "torch-2.13.0+cpu-cp311-*linux*_x86_64.whl"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Install torch for the CPU in a project, once for all tests."""
    find_links = os.environ.get("PIP_FIND_LINKS", "")
    if not any(Path(find_links).glob(WHEEL)):
        pytest.skip(
            f"no wheel of torch 2.13.0+cpu in PIP_FIND_LINKS ({find_links or 'not set'})"
        )
    workshop = Workshop.made(tmp_path_factory.mktemp("cpu"))
    data = workshop.document(
        "install", "--backend", "cpu", "--python", "3.11", "torch==2.13.0"
    )["data"]
    assert data["verdict"]["status"] == "passed", data["verdict"]
    assert {check["name"] for check in data["verdict"]["devices"][0]["checks"]} >= {
        "matmul-float32",
        "convolution",
    }
    return workshop


def test_installed_torch_and_its_scripts_run(project):
    assert project.python(
        "import torch; print(torch.__version__, (torch.ones(2, 2) @ torch.ones(2, 2)).sum().item())"
    ) == ("2.13.0+cpu 8.0")
    succeed([project.folder / ".venv" / "bin" / "torchrun", "--help"])


@pytest.mark.parametrize("shell", ["dash", "bash", "zsh"])
def test_activated_environment_uses_its_python(project, shell):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    done = process.run(
        [shell, "-c", ". .venv/bin/activate; command -v python"], cwd=project.folder
    )
    assert done.out.strip() == str(project.folder / ".venv" / "bin" / "python")


def test_second_install_changes_nothing(project):
    data = project.document("install", "--backend", "cpu", "torch==2.13.0")["data"]
    assert (data["environment"]["status"], data["bytes"]) == ("none", 0)
    assert data["seconds"] < slowness()


def test_pip_and_uv_keep_the_installed_torch(project):
    """Without a torch index, PyTorch packages are not replaced."""
    constrained = {
        **project.environment,
        "UV_CONSTRAINT": (
            project.folder / ".venv" / "gpuinstall-constraints.txt"
        ).as_uri(),
    }
    pip, python = (
        project.folder / ".venv" / "bin" / "pip",
        project.folder / ".venv" / "bin" / "python",
    )
    before = installed(python)
    commands = [
        [pip, "install", "einops"],
        [uv.uv(), "pip", "install", "--python", python, "pytorch-lightning"],
    ]
    for command in commands:
        succeed(command, env=constrained, cwd=project.folder)
    commands = [
        [pip, "install", "timm"],
        [uv.uv(), "pip", "install", "--python", python, "timm"],
    ]
    for command in commands:
        process.run(command, env=constrained, cwd=project.folder)
    code = "import torch, einops, pytorch_lightning; print(torch.__version__)"
    assert project.python(code) == "2.13.0+cpu"
    frozen = process.run([uv.uv(), "pip", "freeze", "--python", python]).out
    assert not re.search(r"^torchvision==[\d.]+$", frozen, re.MULTILINE), frozen
    added = [re.split("[= ]", line)[0] for line in installed(python) - before]
    assert process.run([uv.uv(), "pip", "uninstall", "--python", python, *added]).ok


def installed(python):
    """Return the installed packages except pip, which is not locked."""
    listed = succeed([uv.uv(), "pip", "freeze", "--exclude", "pip", "--python", python])
    return set(listed.out.splitlines())


@pytest.fixture
def empty(tmp_path, project):
    """Return the interpreter of an empty environment."""
    base = (project.folder / ".venv" / "bin" / "python").resolve()
    succeed([base, "-m", "venv", "--without-pip", tmp_path / "empty"])
    return tmp_path / "empty" / "bin" / "python"


def test_plain_uv_installs_the_lock(project, empty):
    lock = project.folder / "pylock.cpu.toml"
    succeed([uv.uv(), "pip", "sync", "--python", empty, lock], env=project.environment)
    assert installed(empty) == installed(project.folder / ".venv" / "bin" / "python")


def test_plain_pip_installs_the_lock(project, empty):
    lock = project.folder / "pylock.cpu.toml"
    succeed(
        [sys.executable, "-m", "pip", "--python", empty, "install", "-q", "-r", lock]
    )
    assert installed(empty) == installed(project.folder / ".venv" / "bin" / "python")


@pytest.mark.parametrize(
    "edit",
    [
        ("sys_platform == 'linux'", "sys_platform == 'win32'"),
        ('requires-python = "==3.11.*"', 'requires-python = "==3.9.*"'),
    ],
)
def test_pip_and_uv_reject_incompatible_lock(project, empty, tmp_path, edit):
    lock = tmp_path / "pylock.cpu.toml"
    lock.write_text(project.lock("pylock.cpu.toml").replace(*edit), "utf-8")
    by_uv = process.run(
        [uv.uv(), "pip", "sync", "--python", empty, lock], env=project.environment
    )
    by_pip = process.run(
        [sys.executable, "-m", "pip", "--python", empty, "install", "-q", "-r", lock]
    )
    assert (by_uv.ok, by_pip.ok) == (False, False)
    assert installed(empty) == set()
