"""Certain and possible causes. A wrong cause is worse than none."""

import pytest

from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.table import load_failures
from tests.unit.catalog.failures.held_out import answers


@pytest.mark.parametrize("number", ["line 493", "line 593", "590 steps", "525 steps"])
def test_number_in_traceback_is_not_a_driver_version(number):
    text = "{}\nNo devices were found"
    said = classify(text.format(f'  File "train.py", {number}, in main'))
    assert said == classify(text.format('  File "train.py", line 7, in main'))


@pytest.mark.parametrize(
    ("text", "right", "wrong"),
    [
        (
            '[WinError 1455] The paging file is too small. Error loading "C:\\\\torch\\\\lib\\\\shm.dll"',
            "F76",
            "F64",
        ),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_89'", "F81", "F38"),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_121'", "F81", "F30"),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", "F85", "F30"),
        (
            "Could not load library libcudnn_ops_infer.so.8. Error: cannot open shared object file",
            "F102",
            "F51",
        ),
        (
            "Found no NVIDIA driver on your system.\nAMD Radeon RX 7900 XTX",
            "F99",
            "F01",
        ),
        ("No matching distribution found for torch==2.7.1+cu128", "F98", "F41"),
        (
            "Getting requirements to build wheel\nModuleNotFoundError: No module named 'torch'",
            "F73",
            "F105",
        ),
    ],
)
def test_similar_error_texts_have_different_causes(text, right, wrong):
    causes = [cause.id for cause in classify(text)]
    assert causes[0] == right
    assert wrong not in causes


@pytest.mark.parametrize(
    ("text", "symptom", "cause"),
    [
        (
            "RuntimeError: Failed to infer device type",
            "F104",
            "NVML: Driver/library version mismatch",
        ),
        (
            "ModuleNotFoundError: No module named 'torch'",
            "F105",
            "error: externally-managed-environment",
        ),
        (
            "RuntimeError: Torch is not able to use GPU",
            "F103",
            "OSError: [WinError 1455] The paging file is too small",
        ),
    ],
)
def test_symptom_is_reported_only_without_specific_cause(text, symptom, cause):
    (alone,) = classify(text)
    assert alone.id == symptom
    assert any("gpuinstall doctor" in str(line) for line in alone.fix)
    assert load_failures()[symptom].narrows
    assert symptom not in [each.id for each in classify(f"{cause}\n{text}")]


@pytest.mark.parametrize(
    "text",
    [
        "nvidia-container-cli: requirement error: invalid expression",
        "docker: Unable to find group render: no matching entries in group file.",
        "dlopen(/e/_C.so): mach-o file, but is an incompatible architecture (have 'x86_64', need 'arm64')",
        "NCCL WARN Bootstrap : no socket interface found",
        "ERROR: Could not install packages due to an OSError: [WinError 5] Access is denied: 'C:\\x'",
        "ImportError: DLL load failed while importing cuda_utils: The module could not be found.",
        "nvidia-gridd: Valid GRID license not found",
        "fatal error: CUDA compiler and CUDA toolkit headers are incompatible",
        "uv pip install x\n - torch==2.9.1+cu126\n + torch==2.10.0",
        "libnvpl_lapack_lp64_gomp.so.0: cannot open shared object file",
        "tokenizers>=0.14 is required for a normal functioning of this module, but found tokenizers==0.13.",
        "./llama-server: /lib/libm.so.6: version `GLIBC_2.38' not found (required by /opt/llama/libggml.so)",
    ],
)
def test_possibly_wrong_title_is_not_certain(text):
    assert [cause.certainty for cause in classify(text)][:1] == ["possible"]


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("torch._inductor.exc.TritonMissing: no Triton", "Triton"),
        (
            "triton\nptxas /tmp/x.ptx, line 5; fatal   : Unsupported .version 8.6; current version is '8.5'",
            "for each other",
        ),
        (
            "ImportError: libstdc++.so.6: version `GLIBCXX_3.4.30' not found",
            "the libstdc",
        ),
        ("OSError: [Errno 122] Disk quota exceeded", "quota"),
        ("Download failed because not enough bytes were received", "incomplete"),
    ],
)
def test_title_names_what_the_text_reports(text, title):
    assert title in classify(text)[0].title


def test_certain_causes_are_right():
    """No first cause for unseen texts is certain and wrong."""
    certain = [answer for answer in answers() if answer.is_certain]
    assert len(certain) >= 65
    assert all(answer.is_right for answer in certain)


@pytest.mark.parametrize(
    "text",
    [
        "NVIDIA Jetson\nDriver/library version mismatch on an AMD Radeon RX 7900 XTX",
        "AssertionError: Torch not compiled with CUDA enabled",
        "CUDA error: forward compatibility was attempted on non supported HW",
        "Error 802: system not yet initialized",
        "/Users/anna/run.py\nRuntimeError: Found no NVIDIA driver on your system",
        "libGL.so.1: cannot open shared object file\nValueError: unknown option",
        "torch-2.9.0-cp313-cp313-manylinux_2_28_x86_64.whl is not compatible\nldd (Ubuntu GLIBC 2.39)",
        'OSError: [WinError 126] Error loading "C:\\torch\\lib\\fbgemm.dll" or one of its dependencies.',
        # The lines with the sign name another library or package than the cause.
        "site-packages/onnxruntime/capi/onnx.so: undefined symbol: cublasLtGetVersion",
        "site-packages/x/libtensorflow_cc.so.2: undefined symbol: cudnnGetVersion",
        "site-packages/cupy/core.so: undefined symbol: __nvJitLinkComplete_12_4",
        "site-packages/torchaudio/lib/libtorchaudio.so: undefined symbol: ncclCommRegister",
    ],
)
def test_symptom_or_contradicted_message_is_not_certain(text):
    assert all(cause.certainty == "possible" for cause in classify(text))
