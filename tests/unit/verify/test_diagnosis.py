from pathlib import Path

import pytest

from gpuinstall.base.finding import CheckResult
from gpuinstall.base.machine import Driver, Gpu, Machine
from gpuinstall.base.values import replace
from gpuinstall.base.versions import (
    Backend,
    ComputeCapability,
    CudaVersion,
    DriverVersion,
)
from gpuinstall.verify.devices import DeviceTarget
from gpuinstall.verify.diagnosis import (
    ProofContext,
    check_results,
    diagnose,
    wrong_build,
)
from gpuinstall.verify.interpreter import FoundTorch
from gpuinstall.verify.kernel_run import KernelReport

NO_IMAGE = "CUDA error: no kernel image is available for execution on the device"
PYTHON = Path("/data/envs/it/bin/python")
CPU = DeviceTarget(0, "CPU", "cpu")


def proof(driver="580.95.05", cuda="13.0"):
    found = Driver(DriverVersion.parse(driver), CudaVersion(13, 0))
    machine = Machine("linux", "x86_64", driver=found, distribution="Ubuntu 24.04")
    return ProofContext(
        machine,
        PYTHON,
        FoundTorch(
            "3.12.1", venv=True, version="2.14.1", toolkit=Backend("cuda", cuda)
        ),
    )


def card(capability):
    gpu = Gpu(
        0, "NVIDIA X", "GPU-x", compute_capability=ComputeCapability.parse(capability)
    )
    return DeviceTarget(0, "NVIDIA X", "cuda", ("GPU-x",), gpu, "nvidia")


def failed(
    name,
    text,
    capability="8.9",
    context=None,
    variables=(),
):
    record = CheckResult(name, "failed", 0.1, text.splitlines()[0], evidence=text)
    report = KernelReport(
        (record,),
        architectures=("sm_75", "sm_80", "sm_90a"),
        loader_variables=variables,
    )
    (check,) = diagnose(card(capability), report, context or proof()).checks
    return check


@pytest.mark.parametrize(
    ("capability", "cause"), [("6.1", "F37"), ("12.0", "F38"), ("8.9", "F37")]
)
def test_no_kernel_image_is_a_card_older_or_newer_than_the_build(capability, cause):
    assert failed("elementwise", NO_IMAGE, capability).id == cause


@pytest.mark.parametrize(
    ("name", "text", "capability", "driver", "cause"),
    [
        (
            "import",
            "ImportError: libc10.so: version 'GLIBCXX_3.4.30' not found",
            "8.9",
            "580.95.05",
            "F59",
        ),
        (
            "device",
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "8.9",
            "580.95.05",
            "F09",
        ),
        (
            "linear",
            "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED",
            "8.9",
            "580.95.05",
            "F50",
        ),
        (
            "convolution",
            "RuntimeError: GET was unable to find an engine to execute this computation",
            "6.1",
            "580.95.05",
            "F55",
        ),
        ("convolution", "the result is off by 1", "8.9", "580.95.05", "F51"),
        (
            "optimizer-step",
            "CUDA error: operation not supported",
            "8.9",
            "525.60.13",
            "F19",
        ),
        ("optimizer-step", "RuntimeError: something odd", "8.9", "580.95.05", None),
        ("import", "killed by SIGILL", "8.9", "580.95.05", "F62"),
        ("import", "SyntaxError: invalid syntax", "8.9", "580.95.05", "F167"),
        (
            "sort",
            "the result is not exactly the expected one",
            "8.9",
            "580.95.05",
            None,
        ),
    ],
)
def test_a_failure_has_the_cause_that_its_text_or_its_place_shows(
    name, text, capability, driver, cause
):
    assert failed(name, text, capability, proof(driver)).id == cause


def test_a_torch_that_is_not_there_is_said_to_be_absent():
    absent = CheckResult(
        "import",
        "failed",
        0.0,
        "ModuleNotFoundError",
        evidence="No module named 'torch'",
    )
    nothing = replace(proof(), torch=FoundTorch("3.12.1", venv=True))
    (check,) = diagnose(CPU, KernelReport((absent,)), nothing).checks
    assert (check.status, check.id) == ("failed", None)
    assert check.message == "torch is not installed in this environment"
    assert check.fixes == ("gpuinstall install",)


def test_a_cause_has_its_commands():
    cpu = replace(proof(), torch=FoundTorch("3.12.1", venv=True, version="2.14.1+cpu"))
    (check,) = wrong_build(card("8.9"), cpu).checks
    assert check.id == "F33"
    assert str(check.fixes[0]).startswith("gpuinstall install")


def test_what_was_tried_here_helps_more_than_what_is_known_in_general():
    variables = (("LD_LIBRARY_PATH", "/opt/cuda/lib64"),)
    check = failed(
        "import",
        "ImportError: undefined symbol: __nvJitLinkComplete_12_4",
        variables=variables,
    )
    assert check.id == "F49"
    assert str(check.message).endswith(
        "it passes without LD_LIBRARY_PATH=/opt/cuda/lib64"
    )
    assert check.fixes == ("unset LD_LIBRARY_PATH",)


def test_a_fault_that_nobody_knows_has_no_invented_fix():
    check = failed("sort", "the numbers differ")
    assert (check.id, check.fixes) == (None, ())


def test_a_torch_that_cannot_be_imported_is_installed_again_where_it_lies():
    lost = replace(proof(), altered=("torch/_C.so",))
    (advice,) = failed("import", "ImportError: x", context=lost).fixes
    assert str(advice).startswith("gpuinstall doctor --fix --venv /data/envs/it ")


def test_a_program_that_was_killed_leads_to_the_kernels_log():
    check = failed(
        "import", "killed by SIGKILL: the system does that when memory runs out"
    )
    assert str(check.fixes[0]).startswith("sudo dmesg")


@pytest.mark.parametrize(
    ("program", "text", "cause"),
    [
        ("torchvision", "the result is not exactly the expected one", "F47"),
        (
            "torchaudio",
            "OSError: libc10_cuda.so: cannot open shared object file: No such file or directory",
            "F48",
        ),
        (
            "torchcodec",
            "OSError: libnvrtc.so.13: cannot open shared object file: No such file or directory",
            "F56",
        ),
        ("vllm", NO_IMAGE, "F56"),
        ("bitsandbytes", NO_IMAGE, "F71"),
        ("torchvision", "ModuleNotFoundError: No module named 'PIL'", None),
    ],
)
def test_a_program_that_fails_beside_a_torch_that_works_is_at_fault_itself(
    program, text, cause
):
    report = KernelReport(
        (CheckResult(f"{program}-x", "failed", 0.1, text, text),), program=program
    )
    (check,) = check_results(card("8.9"), report, proof())
    assert check.id == cause


def test_the_fix_of_an_extension_names_it():
    record = CheckResult("torch-scatter-import", "failed", 0.1, "killed by SIGSEGV")
    (check,) = check_results(
        card("8.9"), KernelReport((record,), program="torch_scatter"), proof()
    )
    assert str(check.fixes[0]).startswith("gpuinstall install torch torch-scatter ")
