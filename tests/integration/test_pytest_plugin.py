"""Tests of ``pytest --require-gpu`` with a fake torch."""

import os
import re
import sys

import pytest
import tomli

from gpuinstall.base import process
from tests.lab.clone import ROOT

TORCH = """
class Device:
    count = 0
    def is_available(self): return True
    def is_initialized(self): return self.count > 0
    def device_count(self): return 1
    def memory_stats(self, index): return {"allocation.all.allocated": self.count}
cuda = Device()
def ones():
    cuda.count += 1
"""
TESTS = """
import pytest

@pytest.mark.gpu_required
def test_skipped():
    pytest.skip("this machine has no GPU")

@pytest.mark.gpu_required
def test_on_the_cpu():
    assert 1 + 1 == 2

@pytest.mark.gpu_required
def test_on_the_gpu():
    import torch
    torch.ones()

@pytest.mark.gpu_required
@pytest.mark.xfail(strict=True)
def test_known_to_fail():
    assert False

def test_of_anything_else():
    pass
"""


def run(folder, tests, *words):
    """Run pytest in a separate process."""
    (folder / "torch.py").write_text(TORCH)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").write_text(
        "[pytest]\naddopts = --strict-markers -p no:cacheprovider\npythonpath = .\n"
    )
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "gpuinstall.verify.pytest_plugin",
        *words,
    ]
    return process.run(
        argv, cwd=folder, env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    )


def summary(done):
    return {
        kind: int(number)
        for number, kind in re.findall(r"(\d+) (\w+)", done.out.splitlines()[-1])
    }


def test_skipped_and_cpu_only_tests_fail(tmp_path):
    done = run(tmp_path, TESTS, "--require-gpu")
    assert done.status == 1
    assert "gpu_required: it was skipped (test_it.py::test_skipped)" in done.out
    assert (
        "gpu_required: it ran only on the CPU (test_it.py::test_on_the_cpu)" in done.out
    )
    counted = summary(done)
    assert (counted["failed"], counted["passed"], counted.get("skipped", 0)) == (
        2,
        2,
        0,
    ), done.out


def test_pytest_run_without_gpu_tests_fails(tmp_path):
    green = "def test_green():\n    pass\n"
    done = run(tmp_path, green, "--require-gpu")
    assert done.status == 1
    assert "error: no test ran on a GPU, as --require-gpu requires" in done.err
    assert run(tmp_path, green, "--require-gpu", "--collect-only").status == 0
    assert (
        run(
            tmp_path,
            "import torch\ndef test_used():\n    torch.ones()\n",
            "--require-gpu",
        ).status
        == 0
    )


@pytest.mark.heavy
def test_xdist_processes_report_their_gpu_use(tmp_path):
    used = "import torch\ndef test_used():\n    torch.ones()\ndef test_other():\n    pass\n"
    assert run(tmp_path, used, "--require-gpu", "-p", "xdist", "-n", "2").status == 0
    assert (
        run(
            tmp_path,
            "def test_a():\n    pass\n",
            "--require-gpu",
            "-p",
            "xdist",
            "-n",
            "1",
        ).status
        == 1
    )


def test_pytest_plugin_is_inactive_without_its_option(tmp_path):
    code = """
import sys
def test_light():
    ours = {name for name in sys.modules if name.partition(".")[0] in {"gpuinstall", "torch"}}
    below = {"base", "base.version", "verify", "verify.pytest_plugin"}
    assert ours == {"gpuinstall", *(f"gpuinstall.{name}" for name in below)}
"""
    done = run(tmp_path, code + TESTS)
    assert done.status == 0, done.out
    assert summary(done)["skipped"] == 1


def test_pytest_plugin_is_registered():
    project = tomli.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {
        "gpuinstall": "gpuinstall.verify.pytest_plugin"
    }
