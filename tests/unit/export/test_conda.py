import yaml

from gpuinstall.export.formats import conda
from gpuinstall.lock.file.lock import parse
from tests.unit.export.locks import cpu_lock, cuda_lock


def test_a_machine_without_a_gpu_has_a_command_of_its_own():
    assert "CONDA_OVERRIDE_CUDA=12.0 conda env create" in conda(cuda_lock())
    assert "CUDA" not in conda(cpu_lock())


def test_a_lock_of_somebody_elses_may_serve_several_pythons():
    text = cuda_lock().text.replace('"==3.12.*"', '">=3.10,<3.13"')
    read = yaml.safe_load(conda(parse("pylock.toml", text)))
    assert read["dependencies"][0] == "python<3.13,>=3.10"
