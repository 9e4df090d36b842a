"""Tests of verification with the real torch on the CPU."""

import json
import os
import shutil
import sys

import pytest
import uv

from gpuinstall.base import process
from gpuinstall.base.machine import Machine
from gpuinstall.verify.kernel_run import KERNELS
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import VERSION, packages, rewrite
from tests.lab.pace import slowness
from tests.lab.processes import succeed

HERE = Machine("linux", "x86_64")
OLD_LIBSTDCXX = "GLIBCXX_3.4 { global: *; };"


def verify(environment, *, deep=False, requested=()):
    return verify_environment(
        environment / "bin" / "python", HERE, deep=deep, requested=requested
    )


def the_fault(verdict):
    assert verdict.status == "failed"
    (device,) = verdict.devices
    (fault,) = (check for check in device.checks if check.status == "failed")
    assert fault.message is not None
    return fault


def test_intact_cpu_environment_passes_verification(real_torch):
    verdict = verify(real_torch)
    assert verdict.status == "passed"
    assert (verdict.environment.torch, verdict.environment.backend) == (VERSION, "cpu")
    (device,) = verdict.devices
    assert device.name == "CPU"
    passed = [check.name for check in device.checks if check.status == "passed"]
    assert {"import", "device", "matmul-float32", "convolution"} <= set(passed)
    assert (
        sum(check.seconds for check in device.checks if check.name != "import")
        < 5 * slowness()
    )


@pytest.mark.heavy
def test_deep_checks_pass_without_a_compiler(real_torch, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    verdict = verify(real_torch, deep=True)
    checks = {check.name: check for check in verdict.devices[0].checks}
    assert verdict.status == "passed"
    for name in ("fft", "linear-algebra"):
        assert checks[name].status == "passed"
    assert (
        checks["compile"].message
        == "torch.compile requires a C++ compiler; none found (c++, g++, clang++)"
    )


@pytest.mark.heavy
def test_verify_bench_reports_every_cpu_measurement(real_torch):
    argv = [
        sys.executable,
        "-m",
        "gpuinstall",
        "verify",
        "--venv",
        str(real_torch),
        "--bench",
        "--json",
    ]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    (device,) = json.loads(process.run(argv, env=alone).out)["data"]["bench"]
    measured = {
        check["name"]: check["message"].split() for check in device["checks"][1:]
    }

    assert measured.pop("resnet50") == ["torchvision", "is", "not", "installed"]
    assert {name: unit for name, (_, unit) in measured.items()} == {
        "product-float32": "TFLOP/s",
        "product-bfloat16": "TFLOP/s",
        "memory": "GB/s",
    }
    assert all(float(value) > 0 for value, _ in measured.values())


@pytest.mark.heavy
def test_distributed_processes_compute_the_same_sum(real_torch):
    program = (
        f"import sys, torch; sys.path.insert(0, {str(KERNELS.parent)!r})\n"
        "from kernels.context import CheckContext\n"
        "from kernels.all_gpus import check_sum\n"
        "check_sum(CheckContext(torch, 'cpu'), 'gloo', 3)\n"
    )
    succeed([real_torch / "bin" / "python", "-c", program], seconds=120)


def test_missing_torch_file_is_reported(linked_torch):
    (packages(linked_torch) / "torch" / "lib" / "libc10.so").unlink()
    fault = the_fault(verify(linked_torch))
    assert fault.name == "import"
    assert fault.message.endswith("files is missing: torch/lib/libc10.so")
    assert fault.id == "F167"


@pytest.mark.heavy
def test_truncated_requirement_of_torch_is_reinstalled(torch_copy):
    rewrite(packages(torch_copy) / "typing_extensions.py", "")
    fault = the_fault(verify(torch_copy))
    assert fault.message.endswith("1 of 5 files is truncated: typing_extensions.py")
    (fix,) = map(str, fault.fixes)
    assert "--reinstall-package typing-extensions" in fix


def test_truncated_torch_file_is_reported(linked_torch):
    rewrite(packages(linked_torch) / "torch" / "version.py", "__version__ = (")
    fault = the_fault(verify(linked_torch))
    assert fault.name == "import"
    assert fault.message.endswith("1 of 8 files is truncated: torch/version.py")


@pytest.mark.heavy
def test_missing_standard_library_is_reported_with_its_variable(
    real_torch, monkeypatch
):
    monkeypatch.setenv("PYTHONHOME", "/nonexistent")
    fault = the_fault(verify(real_torch))
    assert "exited with status 1: Fatal Python error" in str(fault.message)
    assert [*map(str, fault.fixes)] == ["unset PYTHONHOME"]
    assert fault.id == "F46"


@pytest.mark.heavy
def test_incorrect_kernel_result_exceeds_its_tolerance(torch_copy):
    init = packages(torch_copy) / "torch" / "__init__.py"
    rewrite(
        init,
        init.read_text()
        + "\nTensor.__matmul__ = lambda a, b, exact=Tensor.__matmul__: (\n"
        + "    exact(a, b) * (1 + 0.001 * (a.dtype != float64))\n)\n",
    )
    fault = the_fault(verify(torch_copy))
    assert fault.name == "matmul-float32"
    assert str(fault.message).startswith("the result is off by ")


BROKEN_KERNELS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from kernels import quick
from kernels.context import CheckContext, Wrong

exact = torch.nn.functional.conv2d


class LostTerm:
    def __init__(self, x):
        self.x = x

    def __matmul__(self, other):
        product = self.x @ other.x
        product[:16, :16] -= self.x[:16, 100:101] @ other.x[100:101, :16]
        return product


class Losing(CheckContext):
    def to_device(self, tensor):
        return LostTerm(tensor)


def wrong_gradient(of_weights):
    def convolve(x, w, padding):
        if x.dtype != torch.float64:
            (w if of_weights else x).register_hook(lambda gradient: gradient * 0 - 12345)
        return exact(x, w, padding=padding)
    return convolve


def is_seen(name, context=CheckContext, conv2d=exact):
    torch.nn.functional.conv2d = conv2d
    (check,) = [check for check in quick.CHECKS if check.name == name]
    try:
        check.run(context(torch, "cpu", limit=check.limit))
    except Wrong:
        return True
    return False


print(is_seen("convolution", conv2d=wrong_gradient(False)))
print(is_seen("convolution", conv2d=wrong_gradient(True)))
print(is_seen("convolution-bfloat16", conv2d=wrong_gradient(True)))
print(is_seen("matmul-float32", Losing), is_seen("matmul-float16", Losing))
print(is_seen("matmul-bfloat16", Losing))
"""


@pytest.mark.heavy
def test_kernel_checks_detect_wrong_gradient_and_missing_term(real_torch):
    python = real_torch / "bin" / "python"
    done = process.run([python, "-c", BROKEN_KERNELS, KERNELS.parent], seconds=120)
    assert done.out == "True\nTrue\nTrue\nTrue True\nTrue\n", done.err


WRONG_RESULTS = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from kernels.context import CheckContext, Wrong
from kernels.deep import CHECKS


def distort(function):
    return lambda x, *rest: function(x, *rest) * (1 if x.dtype == torch.float64 else 1.01)


torch.compile = distort
torch.fft.rfft = distort(torch.fft.rfft)
torch.linalg.solve = distort(torch.linalg.solve)
for check in CHECKS:
    if "cpu" in check.where:
        try:
            check.run(CheckContext(torch, "cpu", limit=check.limit))
        except Wrong:
            print(check.name)
"""


def test_deep_checks_detect_wrong_results(real_torch, tmp_path, monkeypatch):
    (tmp_path / "c++").touch(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    python = real_torch / "bin" / "python"
    done = process.run([python, "-c", WRONG_RESULTS, KERNELS.parent], seconds=120)
    assert done.out.split() == ["fft", "linear-algebra", "compile"], done.err


@pytest.mark.heavy
def test_numpy_with_incompatible_abi_is_reported(torch_copy):
    numpy = packages(torch_copy) / "numpy"
    for module in (
        "__init__.py",
        "_core/__init__.py",
        "_core/_multiarray_umath.py",
        "_core/multiarray.py",
    ):
        (numpy / module).parent.mkdir(parents=True, exist_ok=True)
        (numpy / module).write_text(
            "class ndarray: ...\nclass bool_: ...\nclass number: ...\nclass object_: ...\n"
        )
    fault = the_fault(verify(torch_copy))
    assert (fault.name, fault.message, fault.id) == (
        "numpy",
        "RuntimeError: Numpy is not available",
        "F66",
    )


@pytest.mark.network
def test_damaged_numpy_is_reported(torch_copy):
    python = torch_copy / "bin" / "python"
    succeed(
        [uv.find_uv_bin(), "pip", "install", "-q", "--python", python, "numpy==2.3.*"]
    )
    next(
        (packages(torch_copy) / "numpy" / "_core").glob("_multiarray_umath*.so")
    ).unlink()
    fault = the_fault(verify(torch_copy))
    assert (fault.name, fault.id) == ("import", "F167")
    assert " is damaged: 1 of 1011 files is missing: numpy/_core/_mul" in fault.message
    assert "--reinstall-package numpy" in str(fault.fixes[0])


def test_killed_interpreter_is_reported(linked_torch):
    init = packages(linked_torch) / "torch" / "__init__.py"
    rewrite(init, "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    fault = the_fault(verify(linked_torch))
    assert (fault.name, str(fault.message).split(":")[0]) == (
        "import",
        "killed by SIGKILL",
    )


@pytest.mark.heavy
@pytest.mark.skipif(
    shutil.which("cc") is None, reason="no C compiler (cc) to build an old libstdc++"
)
def test_older_libstdcxx_is_reported_with_ld_library_path(
    real_torch, tmp_path, monkeypatch
):
    (tmp_path / "old.map").write_text(OLD_LIBSTDCXX)
    (tmp_path / "old.c").write_text("int old;")
    library, script = (
        tmp_path / "libstdc++.so.6",
        f"-Wl,--version-script={tmp_path / 'old.map'}",
    )
    succeed(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libstdc++.so.6",
            script,
            "-o",
            library,
            tmp_path / "old.c",
        ]
    )
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    fault = the_fault(verify(real_torch))
    assert (fault.name, fault.id) == ("import", "F59")
    assert str(fault.message).endswith(f"it passes without LD_LIBRARY_PATH={tmp_path}")
