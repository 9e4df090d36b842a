"""``install --jupyter``: a kernel that every Jupyter of the user finds, and that goes with what it needs."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import TYPE_CHECKING

import pytest

from gpuinstall import process, uv
from gpuinstall.environments.environment import Marker
from gpuinstall.environments.jupyter import settle_kernel
from tests.integration.test_install_lab import RTX_4090, tell
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.fixtures import Play
    from tests.lab.index import StandInIndex


@pytest.fixture
def workshop(stand_in: StandInIndex, stand_in_folder: Path, tmp_path: Path, play: Play) -> Workshop:
    make_wheel(stand_in_folder / "simple", "ipykernel", "7.1.0")
    play(RTX_4090)
    (tmp_path / "project").mkdir()
    return Workshop(tmp_path / "project", tmp_path / "caches", stand_in.environment())


def kernels(workshop: Workshop) -> list[str]:
    files = (workshop.caches / "jupyter").glob("kernels/*/kernel.json")
    return [json.loads(file.read_text(encoding="utf-8"))["argv"][4] for file in files]


@pytest.mark.heavy
def test_a_kernel_comes_with_its_package_and_goes_with_it_and_with_the_environment(
    workshop: Workshop,
) -> None:
    done = workshop.run("install", "torch==2.13.0", "--jupyter")
    assert done.status == 0, done.err
    assert "Jupyter     the kernel project (PyTorch)" in done.out
    assert kernels(workshop) == [str(workshop.folder / ".venv" / "bin" / "python")]
    workshop.document("install", "torch==2.14.1")
    assert len(kernels(workshop)) == 1, "the same environment, renewed"
    workshop.document("remove", "ipykernel")
    assert kernels(workshop) == []
    workshop.document("install", "--jupyter")
    assert len(kernels(workshop)) == 1
    workshop.document("env", "remove", "--yes")
    assert kernels(workshop) == []


@pytest.mark.heavy
def test_an_installation_that_fails_offers_no_kernel(
    workshop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(monkeypatch, tmp_path, {"matmul-float32": "it went wrong"})
    assert workshop.run("install", "--jupyter", "--no-fallback").status == 5
    assert kernels(workshop) == []


@pytest.mark.heavy
def test_an_environment_of_others_is_given_none(workshop: Workshop) -> None:
    error = workshop.document("install", "--into", "--venv", "my env", "--jupyter", exit_code=2)[
        "errors"
    ][0]
    assert error["message"] == "--jupyter works only in environments made by gpuinstall"
    python = "'my env/bin/python'"
    assert (
        error["hint"]
        == f"{python} -m pip install ipykernel\n{python} -m ipykernel install --user --name NAME"
    )


EMPTY_LOCK = """\
lock-version = "1.0"
created-by = "gpuinstall"
packages = []
"""


@pytest.mark.heavy
@pytest.mark.network
def test_a_real_jupyter_finds_the_kernel_and_runs_a_cell_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    for name, package in (("theirs", "jupyter-client"), ("ours/.venv", "ipykernel")):
        for words in (
            ["venv", "-q", "--python", sys.executable, name],
            ["pip", "install", "-q", package],
        ):
            python = ["--python", f"{name}/bin/python"] if words[0] == "pip" else []
            done = process.run([uv.uv(), *words, *python], cwd=tmp_path)
            assert done.ok, done.err
    venv = tmp_path / "ours" / ".venv"
    (venv / "pylock.cpu.toml").write_text(EMPTY_LOCK, encoding="utf-8")
    digest = hashlib.sha256(EMPTY_LOCK.encode()).hexdigest()
    Marker("an-id", "pylock.cpu.toml", digest, "3.12", "2.14.1", "cpu", "here", {}).write(venv)
    settle_kernel(venv, ["ipykernel"], wanted=True)
    cell = """
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import start_new_kernel
[name] = [each for each in KernelSpecManager().find_kernel_specs() if each.startswith("gpuinstall-")]
manager, client = start_new_kernel(kernel_name=name)
client.execute_interactive("import sys; print(sys.prefix)", timeout=60)
manager.shutdown_kernel(now=True)
"""
    done = process.run([tmp_path / "theirs" / "bin" / "python", "-c", cell], cwd=tmp_path)

    assert done.out.strip() == str(venv), done.err
