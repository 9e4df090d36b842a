"""Packages that are built beside the torch that they import: checked before anything is fetched, and really built."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuinstall.base import process
from tests.lab.driver import FakeDriver, FakeGpu
from tests.lab.projects import make_sdist
from tests.lab.wheels import make_wheel
from tests.lab.workshop import Workshop

A100 = FakeDriver((FakeGpu("NVIDIA A100-SXM4-80GB", cc="8.0"),))
TOOLS = ("setuptools", "wheel", "packaging", "psutil", "ninja", "einops")


@pytest.fixture
def workshop(stand_in, stand_in_folder, tmp_path, play):
    """A machine with an A100 and a C++ compiler, without nvcc."""
    play(A100)
    for tool in TOOLS:
        make_wheel(stand_in_folder / "simple", tool, "80.0")
    make_sdist(
        stand_in_folder / "simple",
        "flash-attn",
        "2.8.3",
        ["torch", "einops"],
        imports="import torch",
    )
    (tmp_path / "bin").mkdir()
    for name in ("git", "c++"):
        (tmp_path / "bin" / name).symlink_to(shutil.which(name) or "/bin/true")
    folder = tmp_path / "project"
    folder.mkdir()
    variables = {
        **stand_in.environment(),
        "PATH": f"{tmp_path / 'bin'}:/bin",
        "CUDA_HOME": str(tmp_path / "no-toolkit"),
    }
    return Workshop(folder, tmp_path / "caches", variables)


@dataclass(frozen=True)
class Compiling:
    """A workshop in which each compilation leaves a line in a file."""

    workshop: Workshop
    file: Path

    def built(self, venv, torch="2.14.1", package="flash-attn", **more):
        """Install into an environment; return what its package was compiled beside and for."""
        own = {"GPUINSTALL_VENV": f"{venv}/.venv", "LAB_COMPILED": str(self.file), **more}
        workshop = self.workshop.having(**own)
        requirement = flash(workshop) if package == "flash-attn" else package
        done = workshop.run(
            "install", "--only", f"torch=={torch}", requirement, "--backend", "cu126"
        )
        assert done.status == 0, done.err
        python = workshop.folder / venv / ".venv" / "bin" / "python"
        return process.run(
            [python, "-c", f"import {package.replace('-', '_')} as it; print(it.SAID)"]
        ).out.strip()

    @property
    def log(self):
        """A line for each compilation."""
        return self.file.read_text("utf-8").splitlines()


def flash(workshop):
    """Return a requirement by address: a named extension is never compiled."""
    files = workshop.variables["UV_DEFAULT_INDEX"].replace("/simple", "/files")
    return f"flash-attn @ {files}/flash_attn-2.8.3.tar.gz"


def with_nvcc(workshop, release):
    """Put an nvcc on PATH that says its release."""
    script = workshop.caches.parent / "bin" / "nvcc"
    script.write_text(
        f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n",
        "utf-8",
    )
    script.chmod(0o755)
    return workshop.having(CUDA_HOME="")


def test_without_a_compiler_for_gpus_it_is_refused_before_anything_is_fetched(workshop, stand_in):
    error = workshop.refusal(
        "install", "torch==2.14.1", flash(workshop), "--backend", "cu126", exit_code=3
    )
    assert error["code"] == "toolkit-missing"
    assert "no nvcc" in error["message"]
    assert "cuda-toolkit-12-6" in error["hint"]
    assert set(stand_in.sent()) == {"flash_attn-2.8.3.tar.gz"}
    assert not (workshop.folder / ".venv").exists()


def test_an_extension_without_a_prebuilt_file_is_refused_with_the_command_that_compiles_it(
    workshop, stand_in
):
    error = workshop.refusal(
        "install", "torch==2.14.1", "flash-attn", "--backend", "cu126", exit_code=3
    )
    assert error["code"] == "no-prebuilt-extension"
    command = "gpuinstall run python -m pip install --no-build-isolation flash-attn"
    assert error["hint"].startswith(f"{command}   # compiles it, with nvcc of CUDA 12.6, a C++ ")
    assert "9 GB of memory for each job" in error["hint"]
    assert stand_in.sent() == {}


@pytest.mark.heavy
def test_it_is_built_with_the_torch_that_is_installed_and_with_so_many_jobs(
    workshop,
):
    workshop = with_nvcc(workshop, "12.4")
    workshop = workshop.having(MAX_JOBS="3")
    done = workshop.run("install", "torch==2.14.1", flash(workshop), "--backend", "cu126")
    assert done.status == 0, done.err
    assert "flash-attn 2.8.3 is built from an archive, with nvcc of CUDA 12.6" in done.err
    assert "9 GB of memory for each job (MAX_JOBS)" in done.err
    assert workshop.python("import flash_attn; print(flash_attn.SAID.split()[0])") == "MAX_JOBS=3"
    assert all(f'name = "{tool}"' in workshop.lock("pylock.cu126.toml") for tool in TOOLS)
    assert workshop.document("sync")["data"]["environment"]["status"] == "none"


@pytest.fixture
def compiling(workshop, stand_in_folder, tmp_path):
    """The same with nvcc, and a flash-attn that is really compiled."""
    make_sdist(
        stand_in_folder / "simple", "flash-attn", "2.8.3", ["torch", "einops"], compiled=True
    )
    return Compiling(with_nvcc(workshop, "12.4"), tmp_path / "compiled")


@pytest.mark.heavy
def test_another_torch_and_other_gpus_are_compiled_for_anew(compiling):
    assert compiling.built("one") == "torch 2.14.1+cu126 for 8.0"
    assert compiling.built("two", torch="2.13.0") == "torch 2.13.0+cu126 for 8.0"
    assert compiling.built("three", TORCH_CUDA_ARCH_LIST="8.6") == "torch 2.14.1+cu126 for 8.6"
    assert compiling.built("four") == "torch 2.14.1+cu126 for 8.0"
    assert len(compiling.log) == 3


@pytest.mark.heavy
def test_a_package_that_nobody_knows_is_compiled_with_the_torch_of_its_environment(
    compiling, stand_in_folder
):
    make_sdist(
        stand_in_folder / "simple", "odd-ext", "1.0", ["torch"], compiled=True, built_with=["torch"]
    )
    assert compiling.built("one", package="odd-ext") == "torch 2.14.1+cu126 for no GPU"
    assert (
        compiling.built("two", torch="2.13.0", package="odd-ext") == "torch 2.13.0+cu126 for no GPU"
    )
    assert compiling.built("three", package="odd-ext") == "torch 2.14.1+cu126 for no GPU"
    assert len(compiling.log) == 2


def test_a_lock_for_other_machines_says_what_will_be_built_and_checks_nothing_here(
    workshop,
):
    done = workshop.run("lock", "torch==2.14.1", flash(workshop), "--target", "cu126")
    assert done.status == 0, done.err
    assert "flash-attn 2.8.3 is built from an archive" in done.err
    refused = workshop.refusal("sync", exit_code=3)
    assert refused["code"] == "toolkit-missing"


def test_a_setup_that_imports_torch_and_is_not_known_is_explained(workshop, tmp_path):
    folder = tmp_path / "odd"
    folder.mkdir()
    (folder / "setup.py").write_text("import torch\n", "utf-8")
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n',
        "utf-8",
    )
    (folder / "b.py").write_text("import torch\n", "utf-8")
    error = workshop.refusal("lock", "torch", "odd @ ../odd", exit_code=4)
    assert error["code"] == "build-needs-torch"
    without, build = error["hint"].splitlines()
    assert without == "Run it again without odd"
    assert "--no-build-isolation odd" in build
