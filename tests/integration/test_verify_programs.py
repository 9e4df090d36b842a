"""Tests of verifying programs with the fake torch."""

import sys

import pytest

from gpuinstall.environments.environment import Origin
from gpuinstall.verify.kernel_run import KERNEL_SECONDS
from gpuinstall.verify.kernels.programs import PROGRAMS
from gpuinstall.verify.runner import verify_environment
from tests.integration.test_verify import NONE, TWO
from tests.lab.environments import small_package, small_torch
from tests.lab.processes import has_ended

OTHER_MINOR = (
    "raise RuntimeError('Detected that PyTorch and TorchAudio were compiled with different CUDA versions. "
    "PyTorch has CUDA version 12.6 whereas TorchAudio has CUDA version 12.8.')"
)
CRASH = "import os, signal\nsignal.signal(signal.SIGSEGV, signal.SIG_DFL)\nos.kill(os.getpid(), signal.SIGSEGV)"
HANG = "import time\ntime.sleep(600)"


@pytest.fixture
def site(tmp_path):
    return small_torch(tmp_path / "env")


@pytest.fixture
def verify(site, tmp_path, play_kernels, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run(machine, packages, verdict=None, **options):
        for name, text in packages.items():
            small_package(site, name, text)
        play_kernels(verdict or {})
        python = tmp_path / "env" / "bin" / "python"
        return verify_environment(python, machine, **options)

    return run


def programs(device):
    """Return the checks of programs by name."""
    known = {
        name
        for row in PROGRAMS
        for name in (row.name, f"{row.module.replace('_', '-')}-import")
    }
    return {check.name: check for check in device.checks if check.name in known}


def statuses(device):
    return {name: check.status for name, check in programs(device).items()}


def test_every_torch_package_is_verified_on_every_gpu(verify):
    verdict = verify(
        TWO,
        {"torchvision": "", "bitsandbytes": "", "flash-attn": "", "requests": CRASH},
    )
    assert verdict.status == "passed"
    for device in verdict.devices:
        assert statuses(device) == {
            "bitsandbytes-quantize": "passed",
            "flash-attn-attention": "passed",
            "torchvision-nms": "passed",
        }


def test_torchaudio_for_another_cuda_fails(verify):
    verdict = verify(TWO, {"torchaudio": OTHER_MINOR, "torchvision": ""})
    assert verdict.status == "failed"
    for device in verdict.devices:
        (fault,) = device.faults
        assert fault.id == "F48"
        assert fault.message.startswith(
            "torchaudio-import: RuntimeError: Detected that PyTorch and TorchAudio were compiled with"
        )
        assert str(fault.fixes[0]).startswith("gpuinstall install --into --venv ")
        assert " torch torchaudio" in str(fault.fixes[0])
        assert programs(device)["torchvision-nms"].status == "passed"


def test_crashing_package_check_does_not_affect_others(verify):
    (device,) = verify(
        NONE,
        {"bitsandbytes": CRASH, "torchvision": "", "xformers": OTHER_MINOR},
        origin=Origin(for_cpu=True),
    ).devices
    assert statuses(device) == {
        "bitsandbytes-quantize": "failed",
        "torchvision-nms": "passed",
        "xformers-import": "failed",
    }
    assert programs(device)["bitsandbytes-quantize"].message == "killed by SIGSEGV"


@pytest.mark.heavy
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups")
def test_hanging_package_check_is_killed_with_its_children(
    verify, tmp_path, monkeypatch
):
    monkeypatch.setitem(KERNEL_SECONDS, "quick", 3.0)
    started = f"import pathlib, subprocess\nchild = subprocess.Popen(['sleep', '600'])\nfile = {str(tmp_path / 'pid')!r}\n"
    hang = f"{started}pathlib.Path(file).write_text(str(child.pid))\n{HANG}"
    (device,) = verify(
        NONE,
        {"xformers": hang, "torchvision": ""},
        origin=Origin(for_cpu=True),
    ).devices
    assert programs(device)["xformers-import"].message == "not finished after 3 s"
    assert programs(device)["torchvision-nms"].status == "passed"
    assert has_ended((tmp_path / "pid").read_text())


def test_torch_packages_are_imported_without_a_gpu(verify):
    wants_a_gpu = "raise ImportError('libcuda.so.1: cannot open shared object file: No such file or directory')"
    verdict = verify(
        NONE, {"torchaudio": OTHER_MINOR, "vllm": "", "flash-attn": wants_a_gpu}
    )
    (device,) = verdict.devices
    found = programs(device)
    assert found["vllm-import"].status == "passed"
    assert found["flash-attn-import"].status == "skipped"
    assert str(found["flash-attn-import"].message).startswith(
        "flash_attn can be imported only on a machine with"
    )
    assert (found["torchaudio-import"].status, found["torchaudio-import"].id) == (
        "failed",
        "F48",
    )
    assert verdict.status == "failed"


def test_package_named_kernels_is_not_shadowed_during_verification(
    verify,
):
    (device,) = verify(
        NONE,
        {
            "kernels": "get_kernel = len",
            "torchvision": "from kernels import get_kernel",
        },
    ).devices
    assert statuses(device) == {"torchvision-import": "passed"}, device.checks


def test_extensions_of_torch_are_imported(verify, site):
    symbol = "raise ImportError('torch_scatter/_scatter_cuda.so: undefined symbol: _ZN3c106detail14torchCheckFail')"
    compiled = ("torch_scatter/_scatter_cuda.so",)
    small_package(site, "torch-scatter", symbol, requires="torch>=2.0", files=compiled)
    verdict = verify(TWO, {})
    (fault,) = verdict.devices[0].faults
    assert (fault.message.partition(":")[0], fault.id) == (
        "torch-scatter-import",
        "F56",
    )
    assert str(fault.fixes[0]).startswith("gpuinstall install --into --venv ")
    assert " torch torch-scatter " in str(fault.fixes[0])


def test_package_checks_are_skipped_if_torch_fails(verify):
    verdict = verify(
        TWO,
        {"torchvision": ""},
        {"GPU-0": {"failed": {"linear": "CUDA error: no kernel image"}}},
    )
    assert statuses(verdict.devices[0]) == {}
    assert statuses(verdict.devices[1]) == {"torchvision-nms": "passed"}


def test_packages_are_imported_if_their_gpu_is_busy(verify):
    busy = {
        "GPU-0": {
            "unproven": "CUDA error: all CUDA-capable devices are busy or unavailable"
        }
    }
    verdict = verify(TWO, {"torchvision": ""}, busy)
    assert [device.status for device in verdict.devices] == ["unproven", "passed"]
    assert statuses(verdict.devices[0]) == {"torchvision-import": "passed"}
