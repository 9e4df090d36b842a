"""Locks that no longer hold, and a uv project that undoes the right build."""

import pytest

from gpuinstall.base.advice import Advice
from gpuinstall.base.machine import Machine
from gpuinstall.base.request import Request
from tests.unit.diagnose.evidence import found as found_in

HERE = Machine("linux", "x86_64", "glibc", "2.36")
UV = """
[project]
name = "app"
version = "1"
dependencies = ["torch>=2.9", "numpy"]
"""
SOURCES = """
[tool.uv.sources]
torch = [{ index = "pytorch-cu126" }]
"""
EXPORTED = """
[dependency-groups]
torch-cu126 = ["torch==2.14.1"]
torch-cu130 = ["torch==2.14.1"]
[tool.uv.sources]
torch = [{ index = "gpuinstall-cu126", group = "torch-cu126" }, { index = "gpuinstall-cu130", group = "torch-cu130" }]
"""
LOCK = """
lock-version = "1.0"
environments = ["sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'"]
requires-python = "==3.12.*"
created-by = "gpuinstall"

[[packages]]
name = "torch"
version = "2.14.1+cpu"

[[packages.wheels]]
name = "torch-2.14.1+cpu-cp312-cp312-manylinux_2_28_x86_64.whl"
url = "https://index.example/torch-2.14.1%2Bcpu-cp312-cp312-manylinux_2_28_x86_64.whl"
hashes = {sha256 = "{sha256}"}
""".replace("{sha256}", "0" * 64)


def uv_codes(folder, text, torch):
    (folder / "pyproject.toml").write_text(text)
    return [
        (finding.code, finding.id) for finding in found_in(HERE, torch, folder=folder)
    ]


def test_a_uv_project_without_a_source_undoes_a_cuda_build(tmp_path):
    assert uv_codes(tmp_path, UV, "2.11.0+cu126") == [("uv-undoes-build", "F44")]


@pytest.mark.parametrize(
    ("text", "torch"),
    [
        (UV + SOURCES, "2.11.0+cu126"),
        (
            UV
            + '[[tool.uv.index]]\nurl = "https://index.example/whl/cu126"\ndefault = true\n',
            "2.11.0+cu126",
        ),
        (UV + EXPORTED, "2.14.1+cu126"),
        (UV, "2.11.0"),
        (UV, "2.11.0+cpu"),
        (UV, None),
        ('[project]\nname = "app"\ndependencies = ["torchmetrics"]\n', "2.11.0+cu126"),
        ("", "2.11.0+cu126"),
        ("not = [toml", "2.11.0+cu126"),
        ('project = "no table"', "2.11.0+cu126"),
        ("[project]\ndependencies = 5\n", "2.11.0+cu126"),
    ],
)
def test_a_project_that_does_not_undo_it_is_left_alone(tmp_path, text, torch):
    assert uv_codes(tmp_path, text, torch) == []


def lock_codes(folder, **parts):
    return [finding.code for finding in found_in(HERE, folder=folder, **parts)]


def test_a_lock_that_fits_is_no_finding(tmp_path):
    (tmp_path / "pylock.cpu.toml").write_text(LOCK)
    assert lock_codes(tmp_path) == []


def test_no_lock_is_no_finding(tmp_path):
    assert lock_codes(tmp_path) == []


def test_a_broken_lock_is_found(tmp_path):
    (tmp_path / "pylock.cpu.toml").write_text(LOCK[:60])
    assert lock_codes(tmp_path) == ["lock-malformed"]


def test_a_lock_that_no_longer_holds_the_request_is_found(tmp_path):
    (tmp_path / "pylock.cpu.toml").write_text(LOCK)
    request = Request(("torch", "einops"))
    assert lock_codes(tmp_path, request=request) == ["lock-other-request"]


def test_locks_for_other_machines_only_are_one_finding(tmp_path):
    (tmp_path / "pylock.cpu.toml").write_text(LOCK)
    (finding,) = found_in(Machine("macos", "arm64"), folder=tmp_path)
    assert finding.fixes == (Advice("gpuinstall", ("lock",), tmp_path),)
    assert "pylock.cpu.toml" in finding.message
