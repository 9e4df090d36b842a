from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest

from gpuinstall.verify.kernels import all_gpus, context, deep, quick
from gpuinstall.verify.kernels.context import (
    EPSILON,
    CheckContext,
    Skip,
    Wrong,
    available_memory,
    call_if_supported,
    compute_tolerance,
)
from gpuinstall.verify.kernels.deep import UNSUPPORTED, _fp8_type
from gpuinstall.verify.kernels.main import Channel, _run_and_classify, select_checks
from gpuinstall.verify.kernels.quick import NO_KERNEL

SIGNS = {"attention": NO_KERNEL, "product": UNSUPPORTED}


def names(device, work="deep"):
    return {check.name for check in select_checks(device, work)}


def torch_with(hip, *, integrated=False, capability=(7, 0), name="", refusal=None):
    """Return a fake torch on a GPU, with 300 MiB free or an error."""

    def mem_get_info():
        if refusal:
            raise refusal
        return 300 << 20, 8 << 30

    properties = SimpleNamespace(is_integrated=integrated, gcnArchName=name)
    gpu = SimpleNamespace(
        get_device_capability=lambda: capability,
        get_device_properties=lambda _index: properties,
        device_count=lambda: 0,
        mem_get_info=mem_get_info,
    )
    return SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=gpu, xpu=gpu)


def test_tolerance_grows_with_square_root_of_terms():
    rounding = 4 * EPSILON["float32"]
    above = [compute_tolerance("float32", terms) - rounding for terms in (100, 400)]
    assert above[1] / above[0] == pytest.approx(2)
    assert compute_tolerance("float16") == pytest.approx(
        4 * EPSILON["float16"], rel=0.01
    )


def test_every_vendor_has_general_gpu_checks():
    assert names("cuda") - names("acme") >= {"cuda-graph", "attention", "matmul-fp8"}
    assert names("acme") - names("cpu") >= {"copies"}
    assert names("cpu", "quick") == {"device", "matmul-float32", "convolution", "numpy"}
    assert {
        "device",
        "elementwise",
        "matmul-float32",
        "matmul-float16",
        "convolution",
        "optimizer-step",
    } <= names("mps")
    assert names("all", "quick") == {"all-reduce", "peer-to-peer"}
    assert names("none") == {"numpy"}


def test_unsupported_operation_is_skipped():
    texts = {
        "architecture mismatch when calling `cusparseLtInit(&handle)`": "product",
        "_scaled_mm_out_cuda is not compiled for this platform.": "product",
        "Supported only on GPUs with compute capability 8.x": "product",
        "CUDA error: CUSPARSE_STATUS_NOT_SUPPORTED when calling `cusparseLtMatmul`": "product",
        "cuDNN Frontend error: [cudnn_frontend] Error: No execution plans support the graph.": "attention",
        "cuDNN Frontend error: [cudnn_frontend] Error: No valid engine configs for Matmul_": "attention",
        "No available kernel. Aborting execution.": "attention",
        "CUDA error: an illegal memory access was encountered": None,
    }
    outcomes = {
        text: [name for name, signs in SIGNS.items() if is_skipped(text, signs)]
        for text in texts
    }
    assert outcomes == {text: [name] if name else [] for text, name in texts.items()}


def is_skipped(text, signs):
    def refuse():
        raise RuntimeError(text)

    try:
        call_if_supported(refuse, *signs)
    except (RuntimeError, Skip) as end:
        return isinstance(end, Skip)
    return False


@pytest.mark.parametrize(
    ("torch", "device", "mib"),
    [
        (torch_with(None), "cuda", 300),
        # CUDA counts Linux's file cache in shared memory as used.
        (torch_with(None, integrated=True), "cuda", 6144),
        (torch_with("6.4.43482", integrated=True), "cuda", 300),
        # Intel's integrated GPUs (pytorch/pytorch#164429), and older torches.
        (
            torch_with(None, refusal=RuntimeError("The device doesn't support")),
            "xpu",
            None,
        ),
        (torch_with(None, refusal=NotImplementedError()), "xpu", None),
        (torch_with(None, refusal=AttributeError("mem_get_info")), "xpu", None),
    ],
)
def test_free_gpu_memory_is_reported(monkeypatch, torch, device, mib):
    monkeypatch.setattr(context, "available_memory", lambda: 6 << 30)
    assert CheckContext(torch, device).free_bytes() == (mib and mib << 20)


OUT_OF_MEMORY = (
    "CUDA out of memory. Tried to allocate 2.00 MiB.",
    "CUDA error: out of memory",
    "HIP out of memory. Tried to allocate 2.00 MiB.",
    "HIP error: out of memory",
    "XPU out of memory. Tried to allocate 2.00 MiB.",
    "level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)",
    "MPS backend out of memory (MPS allocated: 9.00 GiB)",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
)


def test_full_gpu_of_any_vendor_is_unproven():
    texts = dict.fromkeys(OUT_OF_MEMORY, "unproven")
    texts["CUDA error: an illegal memory access was encountered"] = "failed"
    assert {text: outcome_of(RuntimeError(text)) for text in texts} == texts


def outcome_of(error):
    def fail():
        raise error

    return _run_and_classify(fail)["status"]


class Records(Channel):
    """Channel that stores its records."""

    def __init__(self):
        self.sent = []

    def send(self, **record):
        self.sent.append(record)


def test_unproven_check_sends_its_reason():
    def fail():
        raise RuntimeError("CUDA out of memory.")

    records = Records()
    assert records.attempt("matmul", fail) == "unproven"
    assert records.sent[1]["unproven"] == "RuntimeError: CUDA out of memory."
    assert records.sent[1]["status"] == "skipped"


def test_check_for_newer_gpus_is_skipped():
    pascal = CheckContext(torch_with(None, capability=(6, 1)), "cuda")
    for check in (
        deep.check_torch_compile,
        partial(quick.check_convolution, "bfloat16"),
        deep.check_fp8,
    ):
        with pytest.raises(Skip, match=r"requires compute capability \d\.\d"):
            check(pascal)


def test_torch_without_attention_is_skipped():
    old = torch_with(None)
    old.nn = SimpleNamespace(functional=SimpleNamespace())
    with pytest.raises(Skip, match=r"requires torch 2\.0"):
        quick.check_attention(CheckContext(old, "cuda"))


def test_mi300_uses_fnuz_fp8_type():
    kinds = {
        (None, ""): "float8_e4m3fn",
        ("7.0", "gfx942:sramecc+:xnack-"): "float8_e4m3fnuz",
        ("7.0", "gfx950:sramecc+:xnack-"): "float8_e4m3fn",
    }
    assert {
        (hip, name): _fp8_type(CheckContext(torch_with(hip, name=name), "cuda"))
        for hip, name in kinds
    } == kinds


def test_peer_check_is_skipped_without_cuda_gpus():
    with pytest.raises(Skip, match="torch finds 0 GPUs"):
        all_gpus.check_peer_copies(CheckContext(torch_with(None), "all", gpus=2))


def test_nccl_failure_of_one_process_is_skipped(monkeypatch):
    def no_interface(*_):
        raise Wrong("Bootstrap : no socket interface found")

    monkeypatch.setattr(all_gpus, "check_sum", no_interface)
    torch = torch_with(None)
    torch.distributed = SimpleNamespace(
        is_available=lambda: True, is_nccl_available=lambda: True
    )
    with pytest.raises(Skip, match="no socket interface"):
        all_gpus.check_all_reduce(CheckContext(torch, "all", gpus=1))
    with pytest.raises(Wrong):
        all_gpus.check_all_reduce(CheckContext(torch, "all", gpus=2))


@pytest.mark.parametrize(
    ("device", "hip", "capability"),
    [
        ("cuda", None, (7, 0)),
        ("cuda", "6.4.43482", None),
        ("xpu", None, None),
        ("cpu", None, None),
    ],
)
def test_only_nvidia_gpu_has_compute_capability(device, hip, capability):
    card = CheckContext(torch_with(hip), device)
    assert card.capability == capability
    with pytest.raises(Skip) if capability else nullcontext():
        card.require_capability(8, 0, "it")


def test_available_memory_is_read_from_meminfo():
    assert available_memory() > 1 << 20
