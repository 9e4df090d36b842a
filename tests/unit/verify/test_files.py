import os
import shutil
import zipfile

import pytest

from gpuinstall.verify.interpreter import FoundTorch
from gpuinstall.verify.runner import altered_files
from tests.lab.wheels import make_wheel

FAMILY = {"torch", "torchvision"}
MODULES: dict[str, str | bytes] = {
    "torch/__init__.py": "answer = 42",
    "torch/lib/libtorch.so": b"code",
}


@pytest.fixture
def wheel(tmp_path):
    """The wheel as uv's cache has it, unpacked."""
    with zipfile.ZipFile(
        make_wheel(tmp_path, "torch", "2.14.1", modules=MODULES)
    ) as archive:
        archive.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked"


@pytest.fixture
def site(tmp_path, wheel):
    return shutil.copytree(wheel, tmp_path / "site")


def torch_in(site):
    return FoundTorch("3.12.1", venv=True, torch=str(site / "torch" / "__init__.py"))


def test_files_as_they_were_installed_are_not_named(site):
    assert list(altered_files(torch_in(site), FAMILY)) == []


def test_a_file_that_was_changed_or_removed_is_named(site):
    (site / "torch/__init__.py").write_text("answer = 43")
    (site / "torch/lib/libtorch.so").unlink()
    assert {*altered_files(torch_in(site), FAMILY)} == {
        "torch/__init__.py",
        "torch/lib/libtorch.so",
    }


def test_packages_of_others_are_not_read(site):
    (site / "torch/__init__.py").write_text("answer = 43")
    assert list(altered_files(torch_in(site), {"torchvision"})) == []


def test_a_pipe_in_the_place_of_a_file_is_another_file(site):
    (site / "torch/__init__.py").unlink()
    os.mkfifo(site / "torch/__init__.py")
    assert list(altered_files(torch_in(site), FAMILY)) == ["torch/__init__.py"]
