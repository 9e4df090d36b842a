"""Variables that reach into every environment."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from gpuinstall.diagnose.evidence import read_shell
from tests.unit.diagnose.evidence import found as found_in


def found(environ: Mapping[str, str]) -> list[tuple[str, str | None, str | None]]:
    return [
        (finding.code, finding.id, finding.fix) for finding in found_in(shell=read_shell(environ))
    ]


def test_an_ordinary_shell_does_no_harm(tmp_path):
    assert (
        found({"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})
        == []
    )


@pytest.mark.parametrize(
    ("libraries", "entry"),
    [
        (["libcudart.so.12"], "F49"),
        (["libnvJitLink.so.12.4.99"], "F49"),
        (["libcublasLt.so", "libcublas.so"], "F50"),
        (["libcudnn.so.9"], "F51"),
        (["libnccl.so.2"], "F53"),
        (["libcudart.so.12", "libcublas.so.12", "libcudnn.so.9"], "F49"),
    ],
)
def test_a_library_path_to_a_toolkit_is_found(tmp_path, libraries, entry):
    for library in libraries:
        (tmp_path / library).touch()
    path = os.pathsep.join(("/nowhere", str(tmp_path)))
    assert found({"LD_LIBRARY_PATH": path}) == [
        ("library-path-poisoned", entry, "unset LD_LIBRARY_PATH")
    ]


@pytest.mark.parametrize(
    ("torch", "entries"), [("2.14.1+rocm7.2", ["F114"]), ("2.14.1+cu126", []), (None, [])]
)
def test_a_library_path_to_another_rocm_is_found_where_torch_is_for_rocm(tmp_path, torch, entries):
    (tmp_path / "libamdhip64.so.7").touch()
    shell = read_shell({"LD_LIBRARY_PATH": str(tmp_path)})

    assert [finding.id for finding in found_in(torch=torch, shell=shell)] == entries


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1", "libcudart-notes.txt"])
def test_the_drivers_own_libraries_are_no_toolkit(tmp_path, library):
    (tmp_path / library).touch()
    assert found({"LD_LIBRARY_PATH": str(tmp_path)}) == []


def test_a_python_path_that_holds_torch_is_found(tmp_path):
    (tmp_path / "torch").mkdir()
    assert found({"PYTHONPATH": str(tmp_path)}) == [("torch-shadowed", "F46", "unset PYTHONPATH")]


def test_a_moved_python_is_found():
    assert found({"PYTHONHOME": "/opt/python"}) == [("python-home-set", "F46", "unset PYTHONHOME")]


def test_what_decides_over_builds_is_one_finding():
    environ = {
        "UV_TORCH_BACKEND": "cpu",
        "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
        "UV_INDEX": "",
    }
    ((code, entry, fix),) = found(environ)
    assert (code, entry) == ("override-left-behind", "F32")
    assert (fix or "").startswith("unset UV_TORCH_BACKEND PIP_CONSTRAINT\n")


@pytest.mark.parametrize(
    ("version", "torch", "codes"),
    [
        ('{"cuda": {"version": "11.8.89"}}', "2.11.0+cu126", ["toolkit-differs"]),
        ('{"cuda": {"version": "12.2.0"}}', "2.11.0+cu126", []),
        ('{"cuda": {"version": "11.8.89"}}', "2.11.0", []),
        ('{"cuda": "11.8"}', "2.11.0+cu126", []),
        ("[]", "2.11.0+cu126", []),
        ("[" * 100_000, "2.11.0+cu126", []),
        ("", "2.11.0+cu126", []),
    ],
)
def test_a_toolkit_of_another_major_is_a_note(tmp_path, version, torch, codes):
    (tmp_path / "version.json").write_text(version)
    findings = found_in(torch=torch, shell=read_shell({"CUDA_HOME": str(tmp_path)}))
    assert [finding.code for finding in findings] == codes
    assert not any(finding.blocking for finding in findings)
    assert all("cuda-12.6" in (finding.fix or "") for finding in findings)


def test_a_cuda_home_without_a_version_says_nothing(tmp_path):
    assert read_shell({"CUDA_HOME": str(tmp_path)}).toolkit is None


def test_the_backend_that_shellenv_has_set_decides_nothing_else():
    for backend, expected in (
        ("cu126", set()),
        ("cu130", {"UV_TORCH_BACKEND"}),
        (None, {"UV_TORCH_BACKEND"}),
    ):
        assert read_shell({"UV_TORCH_BACKEND": "cu126"}, backend).variables == expected
