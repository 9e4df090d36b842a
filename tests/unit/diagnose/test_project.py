"""uv projects that replace the build or were installed from another folder."""

import hashlib

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.diagnose.checks import changed_by_hand
from gpuinstall.environments.environment import Marker
from tests.unit.diagnose.evidence import doctor_evidence, installed_in
from tests.unit.diagnose.evidence import found as found_in
from tests.unit.install.environments import SITE

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


def uv_codes(folder, text, torch):
    (folder / "pyproject.toml").write_text(text)
    return [
        (finding.code, finding.id) for finding in found_in(HERE, torch, folder=folder)
    ]


def test_uv_project_without_a_source_is_reported(tmp_path):
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
        (
            '[project]\nname = "app"\nversion = "1"\ndependencies = ["torchmetrics"]\n',
            "2.11.0+cu126",
        ),
        ("", "2.11.0+cu126"),
        ("not = [toml", "2.11.0+cu126"),
        ('project = "no table"', "2.11.0+cu126"),
        ("[project]\ndependencies = 5\n", "2.11.0+cu126"),
    ],
)
def test_project_keeping_torch_build_is_not_reported(tmp_path, text, torch):
    assert uv_codes(tmp_path, text, torch) == []


def test_project_installed_from_another_directory_is_reported(tmp_path):
    venv = tmp_path / "venv"
    record = venv / SITE / "lb-1.0.dist-info"
    record.mkdir(parents=True)
    (record / "METADATA").touch()
    lock = 'lock-version = "1.0"\ncreated-by = "gpuinstall"\n[[packages]]\nname = "lb"\ndirectory = { path = "lb" }\n'
    (venv / "pylock.cpu.toml").write_text(lock, "utf-8", newline="")
    sha256 = hashlib.sha256(lock.encode()).hexdigest()
    Marker("1", "pylock.cpu.toml", sha256, "3.12", "2.14.1", "cpu", "0", {}).write(venv)
    evidence = doctor_evidence(venv=venv, packages=installed_in(venv), folder=tmp_path)

    [found] = changed_by_hand(evidence)
    source = f'{{"url": "{(tmp_path / "lb").as_uri()}", "dir_info": {{}}}}'
    (record / "direct_url.json").write_text(source, "utf-8")

    assert found.message == "lb is missing or was installed from a different path"
    assert list(changed_by_hand(evidence)) == []
