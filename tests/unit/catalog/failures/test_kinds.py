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
        (f"Windows 11, RX 7800XT\n{NO_CUDA}", "F99", "AMD's own for this card", "CUDA build"),
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


DXG = "[    1.519442] misc dxg: dxgk: dxgkio_query_adapter_info: Ioctl failed: -22"
ONE_PROVIDER = "['AzureExecutionProvider', 'CPUExecutionProvider']"
COMMON_OPS = "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!"
FROM_CHECKOUT = """\
  File "/home/me/vllm/vllm/_custom_ops.py", line 9, in <module>
ModuleNotFoundError: No module named 'vllm._C'"""
TF_PTX = "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'"
FIRST_INDEX = """\
Because there is no version of torch==2.7.1+cu128 and you require torch==2.7.1+cu128, we can conclude that your
requirements are unsatisfiable.
hint: `torch` was found on https://index.example/simple, but not at the requested version (torch==2.7.1+cu128).
A compatible version may be available on a subsequent index"""
ONLY_ARM_MAC = (
    "error: Distribution `torch==2.7.0 @ registry+https://index.example/simple` can't be installed\n"
    "hint: You're on macOS (`macosx_15_0_x86_64`), but `torch` (v2.7.0) only has wheels for the following platforms: "
    "`manylinux_2_28_aarch64`, `manylinux_2_28_x86_64`, `macosx_11_0_arm64`, `win_amd64`"
)
THOR = "NVIDIA Thor with CUDA capability sm_110 is not compatible with the current PyTorch installation."
NO_NVRTC = "CuPy failed to load libnvrtc.so.12: cannot open shared object file"
ENDS_WITH_INTEL_MACS = (
    "ERROR: Could not find a version that satisfies the requirement torch==2.6.0 "
    "(from versions: 2.2.0, 2.2.1, 2.2.2)"
)
JAX_PLUGIN = "JAX plugin jax_cuda12_plugin version 0.9.2 is installed, but it is not compatible with the installed jaxlib"
NO_ML = "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object file"
PTXAS = "ptxas C:\\Temp\\tmpafhfmeeh.ptx, line 5; fatal   : Unsupported .version 8.6; current version is '8.5'"
PTXAS_120 = "ptxas fatal   : Value 'sm_120' is not defined for option 'gpu-name'"
KFD = "Unable to open /dev/kfd read-write: Permission denied"


def no_dll(name):
    return f'OSError: [WinError 126] Error loading "C:\\v\\Lib\\site-packages\\torch\\lib\\{name}" or one of its dependencies.'


@pytest.mark.parametrize(
    ("text", "cause", "command", "never"),
    [
        # WSL's bridge to Windows' driver
        (f"{DXG}\ntorch.cuda.is_available() hangs", "F23", "wsl.exe --update", "apt-get"),
        (f"Radeon RX 7600, WSL2\n{DXG}\nrocminfo: no GPU", "F23", "HSA_ENABLE_DXG_DETECTION", "nvidia.com"),
        # Apple: what torch.compile writes, and what this macOS lacks
        ("runtime_utils.py in compile_mps_shader\ntorch._inductor.exc.InductorError", "F120", "TORCHDYNAMO_DISABLE=1", "Float64"),
        ("RuntimeError: The MPS backend is supported on MacOS 13.0+", "F120", "'torch<2.9'", "Float64"),
        ("macOS 12.2\n>>> torch.backends.mps.is_available()\nFalse", "F120", "macOS 14", "Float64"),
        # ONNX Runtime's two packages share a folder
        (f"onnxruntime 1.23.2\nonnxruntime-gpu 1.23.2\n{ONE_PROVIDER}", "F84", "onnxruntime onnxruntime-gpu &&", "llama"),
        ("AttributeError: module 'onnxruntime' has no attribute 'InferenceSession'", "F84", "onnxruntime-gpu", "llama"),
        # a kernel package without this card's code, of another torch, and of another CUDA
        (f"{COMMON_OPS}\nExpected variant: SM121", "F134", "--upgrade torch sgl_kernel", "built for"),
        (f"{COMMON_OPS}\nundefined symbol: _ZN3c1013MessageLoggerC1EPKciib", "F56", "install torch sgl_kernel", "capability"),
        (f"{COMMON_OPS}\nlibnvrtc.so.12: cannot open shared object file\ntorch 2.9.1+cu130", "F56", "sgl_kernel", "find"),
        # a checkout whose compiled part was never built
        (FROM_CHECKOUT, "F56", "another folder than the checkout", "plan --live"),
        ("git clone https://x/vllm && cd vllm\nNo module named 'vllm._C'", "F56", "below site-packages", "plan --live"),
        # oneDNN on Intel's cards
        ("torch 2.13.0+xpu\nRuntimeError: could not create a primitive", "F115", "compute-runtime", "usermod"),
        # TensorFlow without code for the card
        (f"tensorflow 2.20, RTX 5080\n{TF_PTX}", "F134", "tensorflow[and-cuda]", "gpuinstall install"),
        # the first index that has a name decides
        (FIRST_INDEX, "F161", "explicit = true", "cuNNN"),
        # Jetson Thor
        (THOR, "F38", "cu130", "cu128"),
        (f"Jetson AGX Thor, torch 2.5.0\n{NO_CUDA}", "F33", "cu130", "JetPack 6"),
        # NumPy in both directions
        ("numpy.dtype size changed. Expected 96 from C header, got 88 from PyObject", "F66", "'numpy<2'", "not 'numpy<2'"),
        ("ImportError: Numba needs NumPy 2.1 or less. Got NumPy 2.2.", "F66", "'numpy==2.1.*'", "numpy<2'"),
        ("ImportError: numpy._core.multiarray failed to import", "F138", "--upgrade numpy", "'numpy==2"),
        # CuPy beside CUDA 13, Julia's own libraries
        (f"torch 2.10.0+cu130\n{NO_NVRTC}", "F102", "cupy-cuda13x[ctk]", "cuda12x[ctk]"),
        ("julia> using cuDNN\nCUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH", "F51", "Pkg.update()", "uv pip"),
        # ROCm in a container
        (f"docker run --group-add video rocm/pytorch\n{KFD}", "F106", "stat -c %g /dev/kfd", "--group-add render"),
        # Intel Macs
        (ONLY_ARM_MAC, "F41", "torch==2.2.2", "aarch64"),
        (ENDS_WITH_INTEL_MACS, "F41", "torch==2.2.2", "3.12 "),
        # which DLL
        (no_dll("c10_cuda.dll"), "F64", "nvcuda.dll", "193"),
        (no_dll("fbgemm.dll"), "F64", "open fbgemm.dll in", "nvcuda.dll"),
        # JAX's plugins
        (JAX_PLUGIN, "F74", "jax[cuda12]", "<the"),
        # an engine that does not see the host's driver
        (f"NixOS 24.05\n{NO_ML}", "F25", "hardware.nvidia-container-toolkit.enable", "apt-get"),
        (f"snap install docker\n{NO_ML}", "F25", "snap remove docker", "toolkit.enable"),
        (f"Docker Desktop, Ubuntu 24.04\n{NO_ML}", "F25", "docker context use default", "snap"),
        # an assembler that is older than what it is given
        (f"triton\n{PTXAS}", "F30", "triton-windows", "export"),
        (f"jax: {PTXAS_120}", "F30", "nvidia-cuda-nvcc-cu12", "gpuinstall"),
        # the toolkit of the torch in the text
        ("torch 2.9.0+cu128\nOSError: CUDA_HOME environment variable is not set.", "F57", "cuda-toolkit-12-8", "X-Y"),
        # what the driver 570 still runs, by the system
        ("RTX 5090, Windows 11\nThe NVIDIA driver on your system is too old (found version 12080).", "F39", "2.11.*", "2.13"),
    ],
)  # fmt: skip
def test_later_kinds_have_their_cause_and_fix(text, cause, command, never):
    first = classify(text, here=UBUNTU)[0]
    fix = "\n".join(first.fix)
    assert first.id == cause
    assert command in fix
    assert never not in fix


@pytest.mark.parametrize(
    "text",
    [
        f"{DXG}\nIt does no harm: torch.cuda.is_available() returns True",
        "AMD Ryzen, CPU\nRuntimeError: could not create a primitive",
        f"onnxruntime 1.23.2\n{ONE_PROVIDER}",
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
