import yaml

from gpuinstall.export.formats import conda
from gpuinstall.lock.lock import parse
from tests.unit.export.locks import INDEX, cpu_lock, cuda_lock, digest


def document():
    return yaml.safe_load(conda([cuda_lock()]))


def test_it_has_the_keys_of_condas_format_and_no_other():
    read = document()
    assert read.keys() == {"name", "channels", "dependencies"}
    assert read["name"] == "torch-cu126"
    assert all(isinstance(channel, str) for channel in read["channels"])
    *packages, section = read["dependencies"]
    assert all(isinstance(package, str) for package in packages)
    assert section.keys() == {"pip"}
    assert all(isinstance(line, str) for line in section["pip"])


def test_conda_brings_python_and_pip_alone_to_a_machine_that_the_lock_runs_on():
    assert document()["dependencies"][:-1] == [
        "__cuda >=12.0",
        "__glibc >=2.28",
        "python=3.12",
        "pip",
    ]


def test_a_machine_without_a_gpu_has_a_command_of_its_own():
    assert "CONDA_OVERRIDE_CUDA=12.0 conda env create" in conda([cuda_lock()])
    assert "CUDA" not in conda([cpu_lock()])


def test_the_lines_for_pip_are_requirements_with_hashes():
    assert document()["dependencies"][-1]["pip"][1] == (
        f"torch @ {INDEX}/torch-2.14.1%2Bcu126-cp312-cp312-manylinux_2_28_x86_64.whl --hash=sha256:{digest('torch')}"
    )


def test_a_lock_of_somebody_elses_may_serve_several_pythons():
    text = cuda_lock().text.replace('"==3.12.*"', '">=3.10,<3.13"')
    read = yaml.safe_load(conda([parse("pylock.toml", text)]))
    assert read["dependencies"][0] == "python<3.13,>=3.10"
