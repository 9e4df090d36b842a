"""Conda packages as requirements of wheels."""

import pytest

from gpuinstall.lock.request.conda import CondaRequest, UnknownSpec, parse_conda
from tests.lab.parsed import required

CASES = {
    ("pytorch=2.1.0", "pytorch-cuda=11.8", "torchvision"): CondaRequest(
        required("torch==2.1.0.*", "torchvision"), preferred_backend="cu118"
    ),
    ("pytorch::pytorch==2.1", "cudatoolkit=11.3.1"): CondaRequest(
        required("torch==2.1"), preferred_backend="cu113"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0",): CondaRequest(
        required("torch==2.1.0"), preferred_backend="cu121"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_0", "pytorch-cuda=11.8"): CondaRequest(
        required("torch==2.1.0"), preferred_backend="cu118"
    ),
    ("pytorch", "cpuonly"): CondaRequest(required("torch"), backend="cpu"),
    ("pytorch-cuda>=11.8", "pytorch-cuda=12"): CondaRequest(),
    ("python=3.10.12", "pip", "cudnn", "mkl=2023"): CondaRequest(python="3.10"),
    ("python>=3.9",): CondaRequest(python=">=3.9"),
    ("numpy 1.26.*", "tqdm <5", "opencv", "pandas=2.0|2.1.*"): CondaRequest(
        required("numpy==1.26.*", "tqdm<5", "opencv-python", "pandas>=2.0,<2.2")
    ),
    ("pytorch=2.6|2.7", "numpy <1.24.*", "python=3.10|3.11"): CondaRequest(
        required("torch>=2.6,<=2.7", "numpy<1.24"), python=">=3.10,<=3.11"
    ),
    ("pytorch=2.6.*,!=2.6.1", "scipy 1.11"): CondaRequest(
        required("torch==2.6.*,!=2.6.1", "scipy==1.11")
    ),
    ("dask", "bokeh", "s3fs=2024.1", "matplotlib-base", "fastai"): CondaRequest(
        required("dask", "bokeh", "s3fs==2024.1.*", "matplotlib", "fastai")
    ),
    ("conda-forge::ffmpeg >=6", "gcc_linux-64=11"): CondaRequest(
        without_wheel=("conda-forge::ffmpeg >=6", "gcc_linux-64=11")
    ),
    # conda-forge's names, and what a build's string names.
    ("pytorch-gpu>=2.4", "cuda-version=12.6"): CondaRequest(
        required("torch>=2.4"), preferred_backend="cu126"
    ),
    ("pytorch-cpu=2.5",): CondaRequest(required("torch==2.5.*"), backend="cpu"),
    ("pytorch=*=*cuda*", "libtorch=2.5.1"): CondaRequest(
        required("torch", "torch==2.5.1.*")
    ),
    ("pytorch=2.5.*=*cpu*",): CondaRequest(required("torch==2.5.*"), backend="cpu"),
    ("pytorch=2.5=*cuda*",): CondaRequest(required("torch==2.5")),
    ("pytorch=*=*cpu*", "cuda-version=12.6"): CondaRequest(
        required("torch"), backend="cpu"
    ),
    ("pytorch >=2.4 cpu_generic*",): CondaRequest(
        required("torch>=2.4"), backend="cpu"
    ),
    ("pytorch >= 2.4, <2.6",): CondaRequest(required("torch>=2.4,<2.6")),
    ("pytorch[version='>=2.4,<2.6', build=*cuda118*]",): CondaRequest(
        required("torch>=2.4,<2.6"), preferred_backend="cu118"
    ),
    ("pytorch>=2.4=cuda126*", "pyg=2.6", "pytorch-scatter"): CondaRequest(
        required("torch>=2.4", "torch-geometric==2.6.*", "torch-scatter"),
        preferred_backend="cu126",
    ),
    ("cuda-version=12.4", "cuda-nvcc=12.4", "cupy"): CondaRequest(
        preferred_backend="cu124", without_wheel=("cuda-nvcc=12.4", "cupy")
    ),
    ("", "??"): CondaRequest(without_wheel=("", "??")),
}


def test_conda_packages_become_requirements():
    assert {packages: parse_conda(packages) for packages in CASES} == CASES


@pytest.mark.parametrize("text", ["pandas=1.5|2.0", "numpy=1.2x|2"])
def test_unknown_conda_version_is_no_empty_bound(text):
    with pytest.raises(UnknownSpec, match=r"^[a-z]+="):
        parse_conda((text,))


def test_packages_without_wheel_are_reported():
    assert parse_conda(("conda-forge::ffmpeg >=6", "gcc=11")).note() == (
        "not installed, because the index may have other projects with these names: ffmpeg >=6, gcc=11; "
        "if they are the same: gpuinstall install ffmpeg gcc; "
        "if only conda has them: conda install 'ffmpeg >=6' gcc=11"
    )
    assert parse_conda(("pytorch", "python=3.11", "cudnn")).note() == ""
    assert parse_conda(("Six=1", "gcc")).note({"six", "gcc"}) == ""
