"""What an environment's folder tells, read from real records and a real library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuinstall.diagnose.environment import extensions_differ, libraries_apart
from gpuinstall.diagnose.evidence import EnvironmentContents, needs_executable_stack, read_contents
from tests.unit.diagnose.evidence import doctor_evidence


def record(venv: Path, name: str, metadata: str = "", lib: str = "lib"):
    folder = venv / lib / "python3.12" / "site-packages" / f"{name}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\n{metadata}\n")


def test_an_environments_folder_is_read_once_for_both_of_its_library_folders(
    tmp_path,
):
    site = tmp_path / "lib" / "python3.12" / "site-packages"
    for name in ("torch-2.11.0+cu126", "nvidia_cudnn_cu12-9.10.2.21", "Jinja2-3.1.6"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    (tmp_path / "lib64").symlink_to("lib")
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta" / "pytorch-2.5.1-cpu.json").touch()
    contents = read_contents(tmp_path)
    assert sorted((package.name, package.version) for package in contents.packages) == [
        ("jinja2", "3.1.6"),
        ("nvidia-cudnn-cu12", "9.10.2.21"),
        ("torch", "2.11.0+cu126"),
    ]
    assert contents.conda == ("pytorch-2.5.1-cpu",)
    assert list(libraries_apart(doctor_evidence(contents=contents))) == []


def test_a_folder_that_is_no_environment_holds_nothing(tmp_path):
    assert read_contents(tmp_path / "absent") == EnvironmentContents()


@pytest.mark.parametrize(
    ("name", "metadata", "minor"),
    [
        ("xformers-0.0.29", "Requires-Dist: numpy\nRequires-Dist: torch==2.5.1", "2.5"),
        ("vllm-0.11.0", 'Requires-Dist: torch ==2.8.* ; sys_platform == "linux"', "2.8"),
        ("torch_scatter-2.1.2+pt26cu124", "", "2.6"),
        ("torch_scatter-2.1.2+pt210cu128", "", "2.10"),
        ("flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE", "", "2.8"),
        ("flash_attn-2.8.3+cu128torch280", "", None),
        ("accelerate-1.2.0", "Requires-Dist: torch>=2.0.0", None),
        ("lightning-2.5", "Requires-Dist: torchmetrics==2.1.0", None),
        ("torchvision-0.26.0+cu126", "", None),
    ],
)
def test_the_torch_that_a_package_was_built_for_is_read(tmp_path, name, metadata, minor):
    record(tmp_path, "torch-2.40.0")
    record(tmp_path, name, metadata)
    findings = list(extensions_differ(doctor_evidence(contents=read_contents(tmp_path))))
    assert [finding.message.partition(" was built for ")[2] for finding in findings] == (
        [f"torch {minor}, not 2.40.0"] if minor else []
    )


def test_cuda_libraries_in_another_folder_than_torch_are_seen(tmp_path):
    record(tmp_path, "torch-2.11.0", lib="lib64")
    for name in ("nvidia_cudnn_cu12-9.10.2.21", "nvidia_ml_py-13.580.82", "numpy-2.3.1"):
        record(tmp_path, name)
    (finding,) = libraries_apart(doctor_evidence(contents=read_contents(tmp_path)))
    assert finding.message.startswith("nvidia-cudnn-cu12 is in another folder")


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is here to make a library")
@pytest.mark.parametrize(("flag", "asks"), [("execstack", True), ("noexecstack", False)])
def test_a_library_that_asks_for_an_executable_stack_is_told_from_one_that_does_not(
    tmp_path, flag, *, asks
):
    record(tmp_path, "torch-2.5.1")
    library = (
        tmp_path / "lib" / "python3.12" / "site-packages" / "torch" / "lib" / "libtorch_cpu.so"
    )
    library.parent.mkdir(parents=True)
    source = tmp_path / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-z,{flag}", "-o", library, source], check=True)
    assert read_contents(tmp_path).executable_stack is asks


@pytest.mark.parametrize(
    "content", [b"", b"MZ", b"\x7fELF\x02", b"\x7fELF\x01" + bytes(80), b"\x7fELF\x02" + bytes(80)]
)
def test_what_is_no_library_asks_for_nothing(tmp_path, content):
    file = tmp_path / "libtorch_cpu.so"
    file.write_bytes(content)
    assert needs_executable_stack(file) is False


def test_a_cut_library_asks_for_nothing(tmp_path):
    header = bytearray(64)
    header[:5], header[54:58] = b"\x7fELF\x02", b"\x38\x00\xff\xff"
    file = tmp_path / "libtorch_cpu.so"
    file.write_bytes(header)
    assert needs_executable_stack(file) is False
