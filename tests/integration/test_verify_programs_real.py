"""Tests of verifying programs with the real torch on the CPU."""

import shutil

import pytest
import uv

from gpuinstall.base.machine import Machine
from gpuinstall.verify.kernel_run import KERNELS
from gpuinstall.verify.runner import verify_environment
from tests.lab.environments import small_package
from tests.lab.processes import succeed

HERE = Machine("linux", "x86_64")
ALL_BOXES = "import torch\nclass ops:\n    nms = staticmethod(lambda boxes, scores, most: torch.arange(len(boxes)))\n"
SHIFTED = """
class functional:
    quantize_blockwise = staticmethod(lambda x: (x, 0.1 * x.abs().max()))
    dequantize_blockwise = staticmethod(lambda x, shift: x + shift)
"""
ON_THE_CPU = """
class SessionOptions:
    def add_session_config_entry(self, *entry):
        pass

class InferenceSession:
    def __init__(self, *model, providers):
        pass

    def get_providers(self):
        return ["CPUExecutionProvider"]
"""
PROVE = """
import sys
import torch
device, folder, site, *modules = sys.argv[1:]
sys.path[:0] = folder, site
from kernels.context import CheckContext
from kernels.programs import create_program_check

for module in modules:
    check = create_program_check(module, device)
    try:
        check.run(CheckContext(torch, device, check.limit or 0.0))
        print("passed")
    except Exception as error:
        print(repr(error))
"""
COMPILE = """
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile
from kernels.triton_kernel import kernel

source = ASTSource(fn=kernel, signature={"numbers": "*fp32", "results": "*fp32"}, constexprs={})
print(len(compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]))
"""


def checks(environment):
    (device,) = verify_environment(environment / "bin" / "python", HERE).devices
    return {check.name: check for check in device.checks}


def tried(environment, site, device, *modules):
    """Return the results of checking programs in an environment."""
    words = ["-c", PROVE, device, KERNELS.parent, site, *modules]
    done = succeed([environment / "bin" / "python", *words], seconds=120)
    return done.out.splitlines()


@pytest.mark.heavy
def test_wrong_result_of_a_package_is_detected(real_torch, tmp_path):
    small_package(tmp_path, "torchvision", ALL_BOXES)
    small_package(tmp_path, "bitsandbytes", SHIFTED)
    assert tried(real_torch, tmp_path, "cpu", "torchvision", "bitsandbytes") == [
        "Wrong('the result is not equal to the expected one')",
        "Wrong('the result is off by 0.1; at most 0.016 is allowed')",
    ]


@pytest.mark.heavy
def test_package_using_cpu_instead_of_gpu_fails(real_torch, tmp_path):
    small_package(tmp_path, "onnxruntime", ON_THE_CPU)
    small_package(
        tmp_path,
        "tensorflow",
        "class config:\n    list_physical_devices = staticmethod(lambda kind: [])",
    )
    small_package(tmp_path, "ctranslate2", "get_cuda_device_count = int")
    modules = ("onnxruntime", "tensorflow", "ctranslate2")
    answers = tried(real_torch, tmp_path, "cuda", *modules)
    assert [answer.partition("(")[0] for answer in answers] == ["Wrong"] * 3, answers


@pytest.mark.network
@pytest.mark.heavy
def test_published_packages_have_expected_verification_results(
    torch_copy,
):
    install(
        torch_copy,
        "bitsandbytes",
        "torchao",
        "triton",
        "torchvision",
        "torchaudio",
        "torchcodec",
        "numpy",
    )
    found = checks(torch_copy)
    passed = {name for name, check in found.items() if check.status == "passed"}
    assert {"bitsandbytes-quantize", "torchao-import", "triton-import"} <= passed
    assert {
        name: check.id for name, check in found.items() if check.status == "failed"
    } == {
        "torchvision-nms": "F47",
        "torchaudio-import": "F48",
        "torchcodec-import": "F56",
    }


@pytest.mark.network
@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler (cc) for Triton")
def test_triton_kernel_compiles_for_another_gpu(
    torch_copy,
):
    install(torch_copy, "triton")
    program = f"import sys; sys.path.insert(0, {str(KERNELS.parent)!r})\n{COMPILE}"
    done = succeed([torch_copy / "bin" / "python", "-c", program], seconds=120)
    assert int(done.out) > 0


def install(environment, *names):
    """Install packages without dependencies that replace torch."""
    into = ["--no-deps", "--python", str(environment / "bin" / "python")]
    succeed(
        [
            uv.find_uv_bin(),
            "pip",
            "install",
            "-q",
            *into,
            *names,
            "pillow",
            "packaging",
        ],
        seconds=600,
    )
