"""Kinds of text that were once answered wrongly: the cause, and a fix that works where the text comes from."""

import pytest

from gpuinstall.base.machine import Machine
from gpuinstall.catalog.failures.classify import classify

UBUNTU = Machine("linux", "x86_64", distribution="Ubuntu 22.04")
NO_CUDA = "AssertionError: Torch not compiled with CUDA enabled"
BLOCKED = "Failed to initialize NVML: GPU access blocked by the operating system"
TORCH_DLL = 'Error loading "D:\\\\env\\\\Lib\\\\site-packages\\\\torch\\\\lib\\\\c10_cuda.dll" or one of its dependencies.'
UV_ONLY_X86 = (
    "error: Distribution `torch==2.4.1+cu121 @ registry+https://download.pytorch.org/whl/cu121` can't be installed "
    "because it doesn't have a source distribution or wheel for the current platform\n\n"
    "hint: You're on Linux (`manylinux_2_38_aarch64`), but `torch` (v2.4.1+cu121) only has wheels for the following "
    "platforms: `manylinux_2_17_x86_64`, `win_amd64`"
)
UV_NO_ARM = "Because vllm==0.6.3 has no wheels with a matching platform tag (e.g., `manylinux_2_39_aarch64`)"
PIP_NO_ARM = "aarch64\nERROR: Could not find a version that satisfies the requirement xformers==0.0.27 (from versions: none)"
JAX = "RuntimeError: Found cuDNN version 90100, but JAX was built against version 90800"
FROM_SOURCES = (
    "FileNotFoundError: /src/bitsandbytes/bitsandbytes/libbitsandbytes_cuda124.so not found"
)
OTHERS_MODULE = (
    "Consult /var/lib/dkms/virtualbox/7.0.16/build/make.log\n"
    "Error! Bad return status for module build on kernel: 6.8.0-45-generic (x86_64)"
)
VLLM = "lib/python3.11/site-packages/vllm/_C.abi3.so"
UV_CONFLICT = """\
  × No solution found when resolving dependencies:
  ╰─▶ Because transformers==4.40.0 depends on tokenizers>=0.19,<0.20 and you
      require tokenizers==0.21.0, we can conclude that transformers and your
      requirements are incompatible."""
PIP_CONFLICT = """\
The conflict is caused by:
    The user requested numpy==2.0.0
    vllm 0.6.0 depends on numpy<2.0.0"""
OLD_SOURCES = """\
/var/lib/dkms/nvidia/535.54.03/build/nvidia-drm/nvidia-drm-drv.c:194:6: error: has no member named 'output_poll_changed'
Error! Bad return status for module build on kernel: 6.8.0-45-generic (x86_64)"""


TORCH_FRAME = """\
  File "/v/lib/python3.11/site-packages/torch/__init__.py", line 40, in <module>
    from torch._C import *
"""


def missing_requirement(module):
    return f"{TORCH_FRAME}ModuleNotFoundError: No module named '{module}'"


def cut_library(path):
    return f"ImportError: /v/lib/python3.11/site-packages/{path}: file too short"


def missing(library):
    return f"ImportError: {library}: cannot open shared object file: No such file or directory"


def old_libstdc(path, asks):
    return f"ImportError: {path}/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by {asks})"


@pytest.mark.parametrize(
    ("text", "cause", "command", "never"),
    [
        # whose GPU it is decides before what torch says of CUDA
        (f"Windows 11, RX 7800XT\n{NO_CUDA}", "F99", "build for the AMD card", "CUDA build"),
        (f"{NO_CUDA}\nAMD Radeon RX 6700 XT, Ubuntu", "F99", "ROCm build", "CUDA build"),
        (f"gfx1151\n{NO_CUDA}", "F99", "ROCm build", "CUDA build"),
        (f"Intel Arc A770, Windows\n{NO_CUDA}", "F116", "device 'xpu'", "CUDA build"),
        (f"torch 2.7.0+xpu\n{NO_CUDA}", "F116", "device 'xpu'", "CUDA build"),
        (f"MacBook Pro M3\n{NO_CUDA}", "F141", "device 'mps'", "Colab"),
        (f"AMD Radeon Graphics and an RTX 4060\n{NO_CUDA}", "F33", "CUDA build", "AMD"),
        (f"AMD Ryzen 7 5800X, GeForce RTX 3060\n{NO_CUDA}", "F33", "CUDA build", "AMD"),
        # a DLL of another version
        (f"OSError: [WinError 127] The specified procedure could not be found. {TORCH_DLL}", "F65", "VCRedist", "sudo"),
        (f"OSError: [WinError 127] 找不到指定的程序。 {TORCH_DLL}", "F65", "gpuinstall install", "sudo"),
        ("Could not load library cudnn_cnn_infer64_8.dll. Error code 127", "F51", "where.exe cudnn", "sudo"),
        # an architecture that a compiler does not know: too old a compiler, too new a one, Triton's own
        ("RuntimeError: Unsupported CUDA architecture: sm120", "F81", "cuda-toolkit-12-8", "X-Y"),
        ("nvcc fatal   : Value 'sm_103' is not defined for option 'gpu-architecture'", "F81", "cuda-toolkit-13-0", "X-Y"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", "F81", "cuda-toolkit-12-8", "X-Y"),
        ("CUDA 13.0\nnvcc fatal   : Unsupported gpu architecture 'compute_60'", "F81", "cuda-toolkit-12-9", "X-Y"),
        ("triton\nptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'", "F30", "TRITON_PTXAS_PATH", "nvcc"),
        # the owner of a library: a wheel, torch itself, the distribution
        (missing("libcudss.so.0"), "F102", "nvidia-cudss-cu12", "apt"),
        (missing("libcusparseLt.so.0"), "F102", "nvidia-cusparselt-cu12", "apt"),
        (f"torch 2.9.1+cu130\n{missing('libnvshmem_host.so.3')}", "F102", "nvidia-nvshmem-cu13", "apt"),
        (missing("libnvpl_lapack_lp64_gomp.so.0"), "F102", "torch/lib", "Jetson wheels"),
        (missing("libopenblas.so.0"), "F166", "apt-get install libopenblas0", "uv pip"),
        (missing("libmpi.so.40"), "F166", "libopenmpi", "uv pip"),
        # the driver's module is not built
        (OLD_SOURCES, "F04", "nvidia-driver-580-open", "linux-modules"),
        ("dpkg: error processing package nvidia-dkms-535 (--configure):", "F04", "sudo dkms autoinstall", "linux-modules"),
        # no file for ARM
        (UV_ONLY_X86, "F41", "aarch64", "32-bit"),
        (UV_NO_ARM, "F41", "aarch64", "32-bit"),
        (PIP_NO_ARM, "F41", "--no-binary xformers", "32-bit"),
        # whose libstdc++ is too old
        (old_libstdc("/lib/x86_64-linux-gnu", f"/v/{VLLM}"), "F59", "release of vllm", "conda"),
        (old_libstdc("/opt/conda/envs/x/lib", f"/opt/conda/envs/x/{VLLM}"), "F59", "conda install", "apt"),
        # what conflicts is named
        (UV_CONFLICT, "F124", "the pin on tokenizers", "pin on torch"),
        (PIP_CONFLICT, "F124", "the pin on numpy", "pin on torch"),
        (JAX, "F51", "nvidia-cudnn-cu12", "torch again"),
        # what the ten broken environments say
        (missing_requirement("typing_extensions"), "F167", "gpuinstall doctor --fix", "sudo"),
        (cut_library("torch/_C.cpython-311-x86_64-linux-gnu.so"), "F167", "gpuinstall doctor --fix", "sudo"),
        (f"{TORCH_FRAME}{missing('libcudnn.so.9')}", "F102", "gpuinstall doctor --fix", "find "),
        ("AttributeError: module 'torch' has no attribute 'ones'", "F46", "mv <the file>", "unset"),
        ("sh: 1: /home/user/app/.venv/bin/python: not found", "F168", "gpuinstall install", "sudo"),
        (BLOCKED, "F23", "WDDM", "plain Linux"),
        (FROM_SOURCES, "F71", "in another folder", "sudo"),
    ],
)  # fmt: skip
def test_the_cause_and_its_fix_are_those_of_the_place(text, cause, command, never):
    first = classify(text, here=UBUNTU)[0]
    fix = "\n".join(first.fix)
    assert first.id == cause
    assert command in fix
    assert never not in fix


@pytest.mark.parametrize(
    "text",
    [
        OTHERS_MODULE,
        "numba 0.60.0 requires numpy<2.1,>=1.22, but you have numpy 2.2.1 which is incompatible.",
        # another program's module, missing below a frame of its own
        f"{TORCH_FRAME}  File \"/v/app.py\", line 2, in <module>\nModuleNotFoundError: No module named 'jinja2'",
        "Intel Arc A770: torch.xpu.is_available() is True",
        "ROCM used to build PyTorch: N/A\nHIP runtime version: N/A\nIs XPU available: False",
    ],
)
def test_what_concerns_another_is_no_cause(text):
    assert classify(text) == ()
