"""What conda's packages ask for, as far as wheels have it."""

from gpuinstall.lock.request.conda import CondaRequest, parse_conda

CASES = {
    ("pytorch=2.1.0", "pytorch-cuda=11.8", "torchvision"): CondaRequest(
        ("torch==2.1.0.*", "torchvision"), preferred_backend="cu118"
    ),
    ("pytorch::pytorch==2.1", "cudatoolkit=11.3.1"): CondaRequest(
        ("torch==2.1",), preferred_backend="cu113"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_cudnn8.9.2_0",): CondaRequest(
        ("torch==2.1.0",), preferred_backend="cu121"
    ),
    ("pytorch=2.1.0=py3.10_cuda12.1_0", "pytorch-cuda=11.8"): CondaRequest(
        ("torch==2.1.0",), preferred_backend="cu118"
    ),
    ("pytorch", "cpuonly"): CondaRequest(("torch",), backend="cpu"),
    ("pytorch-cuda>=11.8", "pytorch-cuda=12"): CondaRequest(),
    ("python=3.10.12", "pip", "cudnn", "mkl=2023"): CondaRequest(python="3.10"),
    ("python>=3.9",): CondaRequest(python=">=3.9"),
    ("numpy 1.26.*", "tqdm <5", "opencv", "pandas=1.5|2.0"): CondaRequest(
        ("numpy==1.26.*", "tqdm<5", "opencv-python", "pandas")
    ),
    ("conda-forge::ffmpeg >=6", "gcc_linux-64=11"): CondaRequest(
        without_wheel=("conda-forge::ffmpeg >=6", "gcc_linux-64=11")
    ),
    # conda-forge's names, and what a build's string names.
    ("pytorch-gpu>=2.4", "cuda-version=12.6"): CondaRequest(
        ("torch>=2.4",), preferred_backend="cu126"
    ),
    ("pytorch-cpu=2.5",): CondaRequest(("torch==2.5.*",), backend="cpu"),
    ("pytorch=*=*cuda*", "libtorch=2.5.1"): CondaRequest(("torch", "torch==2.5.1.*")),
    ("pytorch=2.5.*=*cpu*",): CondaRequest(("torch==2.5.*",), backend="cpu"),
    ("pytorch=2.5=*cuda*",): CondaRequest(("torch==2.5",)),
    ("pytorch=*=*cpu*", "cuda-version=12.6"): CondaRequest(("torch",), backend="cpu"),
    ("pytorch >=2.4 cpu_generic*",): CondaRequest(("torch>=2.4",), backend="cpu"),
    ("pytorch >= 2.4, <2.6",): CondaRequest(("torch<2.6,>=2.4",)),
    ("pytorch[version='>=2.4,<2.6']",): CondaRequest(
        without_wheel=("pytorch[version='>=2.4,<2.6']",)
    ),
    ("pytorch>=2.4=cuda126*", "pyg=2.6", "pytorch-scatter"): CondaRequest(
        ("torch>=2.4", "torch-geometric==2.6.*", "torch-scatter"),
        preferred_backend="cu126",
    ),
    ("cuda-version=12.4", "cuda-nvcc=12.4", "cupy"): CondaRequest(
        preferred_backend="cu124", without_wheel=("cuda-nvcc=12.4", "cupy")
    ),
    ("", "??"): CondaRequest(without_wheel=("", "??")),
}


def test_packages_of_conda_are_read_by_the_names_of_wheels():
    assert {packages: parse_conda(packages) for packages in CASES} == CASES


def test_what_has_no_wheel_is_listed_with_what_it_would_take():
    assert parse_conda(("conda-forge::ffmpeg >=6", "gcc=11")).note() == (
        "not installed, as the index may have other projects by these names: ffmpeg >=6, gcc=11; "
        "if they are the same: gpuinstall install ffmpeg gcc; "
        "if only conda has them: conda install 'ffmpeg >=6' gcc=11"
    )
    assert parse_conda(("pytorch", "python=3.11", "cudnn")).note() == ""
    assert parse_conda(("Six=1", "gcc")).note({"six", "gcc"}) == ""
