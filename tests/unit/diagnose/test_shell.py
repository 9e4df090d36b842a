"""Variables that reach into every environment."""

import os

import pytest

from gpuinstall.diagnose.evidence import read_shell
from tests.unit.diagnose.evidence import found as found_in


def found(environ):
    return [
        (finding.code, finding.id, finding.fix) for finding in found_in(shell=read_shell(environ))
    ]


def test_an_ordinary_shell_does_no_harm(tmp_path):
    assert (
        found({"PATH": "/usr/bin", "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)})
        == []
    )


@pytest.mark.parametrize("library", ["libnvJitLink.so.12.4.99", "libcublasLt.so", "libcudnn.so.9"])
def test_a_library_path_to_a_toolkit_is_found(tmp_path, library):
    (tmp_path / library).touch()
    path = os.pathsep.join(("/nowhere", str(tmp_path)))
    assert found({"LD_LIBRARY_PATH": path}) == [
        ("library-path-poisoned", "F49", "unset LD_LIBRARY_PATH")
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


def test_what_decides_over_builds_is_one_finding():
    environ = {
        "UV_TORCH_BACKEND": "cpu",
        "PIP_CONSTRAINT": "/etc/pip/constraint.txt",
        "UV_INDEX": "",
    }
    ((code, entry, fix),) = found(environ)
    assert (code, entry) == ("override-left-behind", "F32")
    assert (fix or "").startswith("unset UV_TORCH_BACKEND PIP_CONSTRAINT\n")


def test_the_backend_that_shellenv_has_set_decides_nothing_else():
    for backend, expected in (
        ("cu126", ()),
        ("cu130", ("UV_TORCH_BACKEND",)),
        (None, ("UV_TORCH_BACKEND",)),
    ):
        assert read_shell({"UV_TORCH_BACKEND": "cu126"}, backend).overrides == expected
