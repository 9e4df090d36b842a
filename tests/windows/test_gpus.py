"""Fake GPUs and the driver states that exist on Windows."""

import re

import pytest

from tests.lab.driver import FakeDriver, FakeGpu
from tests.windows.machine import HOME, LAUNCHER

OF_LINUX = re.compile(
    r"kernel module|nvidia_uvm|device node|lib\w+\.so|libcuda|persistence mode|/dev/|/proc/|"
    r"\b(sudo|modprobe|dmesg|chattr|chmod|chown|docker|export|systemctl|fabric)\b|rm -r",
    re.IGNORECASE,
)
RTX_4090 = FakeGpu()
GTX_1080 = FakeGpu(
    "NVIDIA GeForce GTX 1080", cc="6.1", memory_mib=8192, pci="10de:1b80"
)
RTX_5090 = FakeGpu("NVIDIA GeForce RTX 5090", cc="12.0", pci="10de:2b85")


def of(**faults):
    """Return an RTX 4090 with a fault."""
    return FakeDriver((FakeGpu(**faults),), driver="580.88")


def with_fault(**faults):
    """Return a healthy RTX 4090 whose driver has a fault."""
    return FakeDriver((RTX_4090,), driver="580.88", **faults)


@pytest.fixture(scope="session")
def command(gpu):
    """Run the launcher on a machine with other GPUs each time."""
    done = gpu.run("python", r"C:\gpuinstall\bootstrap.py", "--version")
    assert done.status == 0, done.text

    def run(driver, *arguments, status=0, **env):
        done = gpu.run(
            *(LAUNCHER, *arguments), cwd=f"{HOME}\\x", env={**gpu.gpus(driver), **env}
        )
        assert done.status == status, done.text
        assert not OF_LINUX.search(done.text), done.text
        return done.text

    return run


@pytest.mark.parametrize(
    ("gpus", "driver", "cuda", "build"),
    [
        ((RTX_4090,), "528.33", 12000, "torch 2.14.1+cu126"),
        ((RTX_4090,), "551.61", 12040, "torch 2.14.1+cu126"),
        ((RTX_4090,), "580.88", 13000, "torch 2.15.0+cu130"),
        ((GTX_1080,), "580.88", 13000, "torch 2.14.1+cu126"),
        ((RTX_5090,), "580.88", 13000, "torch 2.15.0+cu130"),
        ((GTX_1080, RTX_5090), "580.88", 13000, "torch 2.8.0+cu128"),
    ],
)
def test_newest_build_of_gpus_is_selected(command, gpus, driver, cuda, build):
    assert build in command(FakeDriver(gpus, driver=driver, cuda=cuda), "plan")


def test_kernel_runs_on_each_gpu(command):
    driver = FakeDriver((GTX_1080, RTX_5090), driver="580.88")
    assert "a kernel ran on both GPUs" in command(driver, "doctor")


def test_driver_without_support_of_gpu_is_refused(command):
    old = FakeDriver((RTX_5090,), driver="551.61", cuda=12040)
    assert "requires driver 570" in command(old, "doctor", status=8)


@pytest.mark.parametrize(
    ("driver", "status", "expected"),
    [
        (with_fault(cu_init=100), 8, "[F15]"),
        (of(hidden_from_cuda=True), 8, "install --backend cpu"),
        (with_fault(cu_init=999), 8, "Restart Windows"),
        (with_fault(cu_init=803), 8, "from different releases"),
        (with_fault(cu_init=802), 8, "CUDA fails"),
        (with_fault(cu_init=3), 8, "[F14]"),
        (with_fault(cu_crash=True), 8, "nvcuda.dll: terminated by Windows exception"),
        (with_fault(more=(("cu_abort", 1),)), 8, "[F08]"),
        (with_fault(nvml_crash=True), 0, "NVML could not be queried"),
        (with_fault(more=(("nvml_crash_at", 0),)), 0, "NVML could not be queried"),
        (with_fault(nvml_init=999), 8, "NVML cannot be initialized (error 999)"),
        (with_fault(nvml_init=18), 8, "from different releases"),
        (with_fault(nvml_init=9, cu_init=100), 0, "no GPU"),
        (of(nvml_error=15), 8, "GPU 0 is lost"),
        (of(nvml_error=16), 8, "GPU 0 requires a reset"),
        (of(cuda_error=46), 0, "another process uses it exclusively"),
        (of(cuda_error=2), 0, "it has no memory free"),
        (of(cuda_error=101), 8, "install --backend cpu"),
        (of(cuda_error=214), 8, "[F09]"),
        (of(cuda_error=999), 8, "[F12]"),
        (of(cuda_crash=True), 8, "the driver crashes on GPU 0"),
        (of(ptx_error=222), 0, "[F67]"),
        (of(launch_error=719), 8, "a small kernel failed on GPU 0"),
        (of(wrong_result=True), 8, "a small kernel failed on GPU 0"),
    ],
)
def test_driver_state_is_explained(command, driver, status, expected):
    assert expected in command(driver, "doctor", status=status)


@pytest.mark.parametrize(
    ("missing", "status", "expected"),
    [
        ("nvml", 0, "a kernel ran on GPU 0"),
        ("nvcuda", 8, "[F01]"),
        ("nvml,nvcuda", 0, "no GPU"),
    ],
)
def test_missing_library_is_reported(command, missing, status, expected):
    text = command(
        with_fault(), "doctor", status=status, WINEDLLOVERRIDES=f"{missing}=d"
    )
    assert expected in text
