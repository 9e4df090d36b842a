import pytest

from gpuinstall.catalog import load_catalog
from gpuinstall.verify.files import find_program_packages
from gpuinstall.verify.kernels.programs import PROGRAMS, create_program_check
from tests.lab.environments import small_package


def programs_in(*folders):
    return tuple(find_program_packages(folders))


def test_torch_and_numpy_require_no_package_checks(tmp_path):
    small_package(tmp_path, "torch", files=("torch/_C.so",))
    small_package(tmp_path, "numpy", files=("numpy/_core.so",))
    assert programs_in(tmp_path, tmp_path / "absent") == ()


def test_packages_to_check_are_found_by_metadata(tmp_path):
    # onnxruntime itself has no code for GPUs.
    for name in ("torchtune", "flash-attn", "vllm", "onnxruntime"):
        small_package(tmp_path, name)
    assert programs_in(tmp_path) == ("flash_attn", "torchtune", "vllm")
    small_package(tmp_path, "onnxruntime-gpu")
    assert "onnxruntime" in programs_in(tmp_path)


def test_package_in_two_directories_is_checked_once(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        small_package(tmp_path / folder, "torchvision")
    assert programs_in(tmp_path / "a", tmp_path / "b") == ("torchvision",)


@pytest.mark.parametrize(
    ("requires", "file", "found"),
    [
        ("torch", "gsplat/csrc.so", True),
        ("torch>=2.4", "gsplat/csrc.cp312-win_amd64.pyd", True),
        ("Torch ; python_version >= '3.10'", "gsplat/csrc.so", True),
        ("torch>=2.4 ; extra == 'torch'", "gsplat/csrc.so", False),
        ("torchmetrics", "gsplat/csrc.so", False),
        ("torch", "gsplat/csrc.cu", False),
    ],
)
def test_compiled_packages_requiring_torch_are_found(tmp_path, requires, file, found):
    small_package(tmp_path, "gsplat", requires=requires, files=(file,))
    assert programs_in(tmp_path) == (("gsplat",) if found else ())


def test_package_is_imported_by_recorded_module(tmp_path):
    small_package(tmp_path, "pytorch-triton")
    record = tmp_path / "pytorch_triton-1.0.dist-info" / "RECORD"
    record.write_text(
        "../bin/proton,,\ntriton/__init__.py,,\ntriton/language/__init__.py,,\n"
    )
    assert programs_in(tmp_path) == ("triton",)


def test_package_is_only_imported_on_unsupported_devices():
    names = {
        ("torchvision", "cpu"): "torchvision-nms",
        ("flash_attn", "cuda"): "flash-attn-attention",
        ("flash_attn", "cpu"): "flash-attn-import",
        ("torch_scatter", "cuda"): "torch-scatter-import",
    }
    for row in PROGRAMS:
        names[row.module, "none"] = f"{row.module.replace('_', '-')}-import"
    assert {where: create_program_check(*where).name for where in names} == names


def test_every_checked_package_has_one_row():
    modules = [row.module for row in PROGRAMS]
    assert len({*modules}) == len(modules)
    companions = {"torchvision", "torchaudio", "xformers", "triton"}
    assert companions <= load_catalog().family.intersection(modules)
