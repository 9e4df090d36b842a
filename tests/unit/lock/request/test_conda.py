"""Conda packages as requirements of wheels."""

import json
from typing import NamedTuple

import pytest

from gpuinstall.base.errors import UsageError
from gpuinstall.base.requirement import Requirement
from gpuinstall.lock.request.conda import read_conda
from gpuinstall.sources.requirements_file import CondaRequest
from tests.lab.parsed import required


class Read(NamedTuple):
    """A request for conda packages."""

    requirements: tuple[Requirement, ...] = ()
    python: str | None = None
    backend: str | None = None
    preferred_backend: str | None = None
    without_wheel: tuple[tuple[str, str], ...] = ()


CASES = {
    ("pytorch=2.1.0", "pytorch-cuda=11.8", "torchvision"): Read(
        required("torch==2.1.0.*", "torchvision"), preferred_backend="cu118"
    ),
    ("pytorch::pytorch==2.1", "cudatoolkit=11.3.1"): Read(
        required("torch==2.1"), preferred_backend="cu113"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0",): Read(
        required("torch==2.1.0"), preferred_backend="cu121"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_0", "pytorch-cuda=11.8"): Read(
        required("torch==2.1.0"), preferred_backend="cu118"
    ),
    ("pytorch", "cpuonly"): Read(required("torch"), backend="cpu"),
    ("pytorch-cuda>=11.8", "pytorch-cuda=12"): Read(),
    ("python=3.10.12", "pip", "cudnn", "mkl=2023"): Read(python="3.10"),
    ("python>=3.9",): Read(python=">=3.9"),
    ("numpy 1.26.*", "tqdm <5", "opencv", "pandas=2.0|2.1.*"): Read(
        required("numpy==1.26.*", "tqdm<5", "opencv-python", "pandas>=2.0,<2.2")
    ),
    ("pytorch=2.6|2.7", "numpy <1.24.*", "python=3.10|3.11"): Read(
        required("torch>=2.6,<=2.7", "numpy<1.24"), python="<=3.11,>=3.10"
    ),
    ("pytorch=2.6.*,!=2.6.1", "scipy 1.11"): Read(
        required("torch==2.6.*,!=2.6.1", "scipy==1.11")
    ),
    ("dask", "bokeh", "s3fs=2024.1", "matplotlib-base", "fastai"): Read(
        required("dask", "bokeh", "s3fs==2024.1.*", "matplotlib", "fastai")
    ),
    ("conda-forge::ffmpeg >=6", "gcc_linux-64=11"): Read(
        without_wheel=(("ffmpeg", "ffmpeg >=6"), ("gcc_linux-64", "gcc_linux-64=11"))
    ),
    # Names of conda-forge, and build strings.
    ("pytorch-gpu>=2.4", "cuda-version=12.6"): Read(
        required("torch>=2.4"), preferred_backend="cu126"
    ),
    ("pytorch-cpu=2.5",): Read(required("torch==2.5.*"), backend="cpu"),
    ("pytorch=*=*cuda*", "libtorch=2.5.1"): Read(required("torch", "torch==2.5.1.*")),
    ("pytorch=2.5.*=*cpu*",): Read(required("torch==2.5.*"), backend="cpu"),
    ("pytorch=2.5=*cuda*",): Read(required("torch==2.5")),
    ("pytorch=*=*cpu*", "cuda-version=12.6"): Read(required("torch"), backend="cpu"),
    ("pytorch >=2.4 cpu_generic*",): Read(required("torch>=2.4"), backend="cpu"),
    ("pytorch >= 2.4, <2.6",): Read(required("torch>=2.4,<2.6")),
    ("pytorch>=2.4=cuda126*", "pyg=2.6", "pytorch-scatter"): Read(
        required("torch>=2.4", "torch-geometric==2.6.*", "torch-scatter"),
        preferred_backend="cu126",
    ),
    ("cuda-version=12.4", "cuda-nvcc=12.4", "cupy"): Read(
        preferred_backend="cu124",
        without_wheel=(("cuda-nvcc", "cuda-nvcc=12.4"), ("cupy", "cupy")),
    ),
}


def read(tmp_path, *packages):
    """Read an environment file with some packages."""
    path = tmp_path / "environment.yaml"
    lines = ["dependencies:", *(f"  - {json.dumps(one)}" for one in packages)]
    path.write_text("\n".join(lines))
    return read_conda(path)


@pytest.mark.parametrize("packages", CASES, ids=" ".join)
def test_conda_packages_become_requirements(tmp_path, packages):
    listed = read(tmp_path, *packages)
    [conda] = listed.conda
    request = conda.request

    backends = request.python, request.backend, request.preferred_backend
    assert CASES[packages] == (listed.requirements, *backends, conda.without_wheel)


def test_conda_requirements_have_file_and_line(tmp_path):
    listed = read(tmp_path, "python=3.11", "cuda-version=12.6", "scipy")
    path = tmp_path / "environment.yaml"

    places = listed.conda[0].request.places
    assert {tag: str(place) for tag, place in places.items()} == {
        "3.11": f"{path}, line 2",
        "cu126": f"{path}, line 3",
    }
    assert str(listed.requirements[0].origin) == f"{path}, line 4"


@pytest.mark.parametrize("text", ["pandas=1.5|2.0", "numpy=1.2x|2"])
def test_unconvertible_conda_version_is_rejected(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "tqdm", text)
    path = tmp_path / "environment.yaml"
    message = f"{path}, line 3: cannot convert {text} to a version specifier"
    assert caught.value.message == message


@pytest.mark.parametrize("text", ["??", "=1.0", "numpy[version=2]"])
def test_malformed_conda_package_is_rejected(tmp_path, text):
    with pytest.raises(UsageError) as caught:
        read(tmp_path, "tqdm", text)
    path = tmp_path / "environment.yaml"
    assert (
        caught.value.message
        == f"{path}, line 3: {text!r} is not a valid conda package specification"
    )


def test_conda_packages_without_wheel_are_reported():
    gcc = CondaRequest(without_wheel=(("ffmpeg", "ffmpeg >=6"), ("gcc", "gcc=11")))
    assert gcc.note() == (
        "not installed, because the index may have different projects with these names: ffmpeg >=6, gcc=11; "
        "to install them from the index: gpuinstall install ffmpeg gcc; "
        "to install them from conda: conda install 'ffmpeg >=6' gcc=11"
    )
    assert CondaRequest().note() == ""
    six = CondaRequest(without_wheel=(("Six", "Six=1"), ("gcc", "gcc")))
    assert six.note({"six", "gcc"}) == ""
