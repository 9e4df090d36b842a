"""Tests of verification with the fake torch in real processes."""

import signal

import pytest

from gpuinstall.base.finding import Finding
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import ComputeCapability, CudaVersion, DriverVersion
from gpuinstall.environments.environment import Origin
from gpuinstall.verify.kernel_run import KERNEL_SECONDS
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import packages, small_torch

ADA = ComputeCapability(8, 9)
CARDS = tuple(
    Gpu(i, "NVIDIA GeForce RTX 4090", f"GPU-{i}", compute_capability=ADA)
    for i in range(2)
)
DRIVER = Driver(DriverVersion.parse("535.183.01"), CudaVersion(12, 2))
TWO = Machine("linux", "x86_64", driver=DRIVER, gpus=CARDS)
NONE = Machine("linux", "x86_64")


def environment(folder, backend):
    """Create an environment with the fake torch; return its interpreter."""
    small_torch(folder, backend)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Create an environment for each build of torch."""
    folder = tmp_path_factory.mktemp("builds")
    names = ("cu126", "cpu", "rocm6.4")
    return {name: environment(folder / name, name) for name in names}


@pytest.fixture
def verify(builds, play_kernels, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def run(verdict, machine=TWO, *, backend="cu126", python=None, **options):
        play_kernels(verdict)
        return verify_environment(python or builds[backend], machine, **options)

    return run


def statuses(verdict):
    return [device.status for device in verdict.devices]


def the_fault(device):
    faults = [check for check in device.checks if check.status == "failed"]
    assert len(faults) == 1, faults
    return faults[0].name, faults[0].message, faults[0].id


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (signal.SIGSEGV, "killed by SIGSEGV"),
        (signal.SIGKILL, "killed by SIGKILL: the system does this when the"),
    ],
)
def test_crash_in_check_fails_only_its_gpu(verify, number, message):
    verdict = verify({"GPU-0": {"crash": int(number), "at": "convolution"}})
    assert statuses(verdict) == ["failed", "passed"]
    name, said, _ = the_fault(verdict.devices[0])
    assert name == "convolution"
    assert said is not None
    assert said.startswith(message)


def test_hanging_check_is_stopped(verify, monkeypatch):
    monkeypatch.setitem(KERNEL_SECONDS, "quick", 2.0)
    verdict = verify({"GPU-1": {"hang": True, "at": "linear"}})
    assert statuses(verdict) == ["passed", "failed"]
    assert the_fault(verdict.devices[1])[:2] == ("linear", "not finished after 2 s")


def test_cuda_build_is_verified_on_cpu_target(verify):
    verdict = verify({}, NONE, origin=Origin(for_cpu=True))
    assert [(device.name, device.status) for device in verdict.devices] == [
        ("CPU", "passed")
    ]


AMD = Gpu(0, "AMD Radeon RX 7900 XTX", vendor="amd", architecture="gfx1100")
INTEL = Gpu(0, "Intel Arc B580", vendor="intel", architecture="xe 20.1.4")


@pytest.mark.parametrize(
    ("backend", "kind", "gpus", "entry"),
    [
        ("cpu", "CPU", CARDS, "F33"),
        ("rocm6.4", "rocm6.4", CARDS, "F24"),
        ("cpu", "CPU", (AMD,), "F99"),
        ("cu126", "cu126", (AMD,), "F99"),
        ("cpu", "CPU", (INTEL,), "F116"),
        ("cu126", "cu126", (INTEL,), "F116"),
    ],
)
def test_torch_build_without_gpu_support_fails_verification(
    verify, backend, kind, gpus, entry
):
    machine = Machine("linux", "x86_64", gpus=gpus)
    verdict = verify({}, machine, backend=backend)
    assert [the_fault(device) for device in verdict.devices] == [
        ("build", f"this is the {kind} build of torch: {gpu.name} is not used", entry)
        for gpu in gpus
    ]


def test_cpu_build_fails_if_a_gpu_is_hidden(verify):
    hidden = replace(
        NONE,
        problems=(
            Finding("driver-mismatch", "kernel module and libraries differ", id="F03"),
        ),
    )
    verdict = verify({}, hidden, backend="cpu")
    assert verdict.refused
    assert [(check.name, check.id) for check in verdict.devices[0].checks] == [
        ("machine", "F03"),
        ("build", "F33"),
    ]
    assert (
        verify({}, hidden, backend="cpu", origin=Origin(for_cpu=True)).status
        == "passed"
    )


def test_build_for_other_vendor_is_unverified_without_gpu(verify):
    assert verify({}, NONE, backend="rocm6.4").status == "unproven"


@pytest.mark.parametrize(
    "line", ["print('{hello}')", "import atexit; atexit.register(print, [1])"]
)
def test_output_of_startup_files_is_ignored(verify, tmp_path, line):
    python = environment(tmp_path / "env", "cu126")
    (packages(tmp_path / "env") / "sitecustomize.py").write_text(line)
    assert verify({}, python=python).status == "passed"
