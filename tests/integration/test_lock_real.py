"""Tests that gpuinstall, uv, and pip install the same lock from PyPI."""

import sys
from pathlib import Path

import pytest

from gpuinstall.base import process, uv
from gpuinstall.lock.file.folder import read_folder_locks
from gpuinstall.machine.pythons import find_python
from tests.lab.driver import NO_GPU
from tests.lab.processes import succeed
from tests.lab.workshop import Workshop

pytestmark = pytest.mark.network

PYTHON = "3.11"
MULTIPLY = "import torch; print(torch.__version__, (torch.ones(2, 2) @ torch.ones(2, 2)).sum().item())"


def installed(python):
    listed = process.run(
        [uv.uv(), "pip", "freeze", "--quiet", "--exclude", "pip", "--python", python]
    ).out.split()
    return {
        name: version for name, _, version in (line.partition("==") for line in listed)
    }


def empty(base, folder):
    succeed([base, "-m", "venv", "--without-pip", folder])
    return folder / "bin" / "python"


def locked_and_installed_by_three(folder, variables, words, play):
    """Lock, install with three tools, and return the version of torch."""
    base = find_python(PYTHON)
    if base is None:
        pytest.skip(f"no Python {PYTHON} here")
    play(NO_GPU)
    here = Workshop.made(folder, variables)
    made = here.document("lock", *words, "--python", PYTHON)["data"]["locks"][0]
    [lock] = read_folder_locks(Path(made["path"]).parent).check()
    by_uv, by_pip = empty(base, folder / "by-uv"), empty(base, folder / "by-pip")
    succeed(
        [uv.uv(), "pip", "sync", "--python", by_uv, made["path"]], env=here.environment
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        by_pip,
        "install",
        "-q",
        "-r",
        made["path"],
    ]
    assert process.run(pip, env=here.environment).ok
    assert here.document("sync")["data"]["verdict"]["status"] == "passed"
    for python in (by_uv, by_pip, here.folder / ".venv" / "bin" / "python"):
        assert installed(python) == lock.versions
        assert process.run([python, "-c", MULTIPLY]).out.split()[1] == "8.0"
    return lock.versions["torch"]


@pytest.mark.heavy
def test_cuda_build_of_the_default_index_is_locked(tmp_path, play):
    variables = {
        "PIP_FIND_LINKS": "",
        "GPUINSTALL_TORCH_INDEX": "http://127.0.0.1:9/whl",
    }
    torch = locked_and_installed_by_three(
        tmp_path, variables, ("torch", "torchvision", "numpy"), play
    )
    assert "+" not in torch
