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
    supported,
    tolerance,
)
from gpuinstall.verify.kernels.deep import NOT_HERE, _fp8_type
from gpuinstall.verify.kernels.main import _outcome, table
from gpuinstall.verify.kernels.quick import NO_KERNEL

SIGNS = {"attention": NO_KERNEL, "product": NOT_HERE}


def names(device, work="deep"):
    return {check.name for check in table(device, work)}


def torch_with(hip, *, integrated=False, capability=(7, 0), name="", refusal=None):
    """What of a torch says which card it runs on, with 300 MiB free, or a refusal to tell."""

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


def test_more_terms_allow_more_by_their_root_and_one_is_rounding_alone():
    rounding = 4 * EPSILON["float32"]
    above = [tolerance("float32", terms) - rounding for terms in (100, 400)]
    assert above[1] / above[0] == pytest.approx(2)
    assert tolerance("float16") == pytest.approx(4 * EPSILON["float16"], rel=0.01)


def test_every_makers_gpu_has_the_checks_of_gpus_and_not_those_of_one_maker():
    assert names("cuda") - names("acme") >= {"cuda-graph", "attention", "matmul-fp8"}
    assert names("acme") - names("cpu") >= {"copies"}
    assert names("mps") < names("cpu")
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


def test_what_a_library_does_not_have_is_skipped():
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
        supported(refuse, *signs)
    except (RuntimeError, Skip) as end:
        return isinstance(end, Skip)
    return False


@pytest.mark.parametrize(
    ("torch", "device", "mib"),
    [
        (torch_with(None), "cuda", 300),
        # CUDA counts the files that Linux keeps in a shared memory as used.
        (torch_with(None, integrated=True), "cuda", 6144),
        (torch_with("6.4.43482", integrated=True), "cuda", 300),
        # An integrated one of Intel's (pytorch/pytorch#164429), and older torches.
        (
            torch_with(None, refusal=RuntimeError("The device doesn't support")),
            "xpu",
            None,
        ),
        (torch_with(None, refusal=NotImplementedError()), "xpu", None),
        (torch_with(None, refusal=AttributeError("mem_get_info")), "xpu", None),
    ],
)
def test_a_gpu_tells_how_much_memory_it_has_free(monkeypatch, torch, device, mib):
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


def test_a_gpu_without_memory_is_unproven_in_every_makers_words():
    texts = dict.fromkeys(OUT_OF_MEMORY, "unproven")
    texts["CUDA error: an illegal memory access was encountered"] = "failed"
    assert {text: outcome_of(RuntimeError(text)) for text in texts} == texts


def outcome_of(error):
    def fail():
        raise error

    return _outcome(fail)["status"]


def test_what_a_card_is_too_old_for_is_skipped():
    pascal = CheckContext(torch_with(None, capability=(6, 1)), "cuda")
    for check in (deep.compiled, partial(quick.convolution, "bfloat16"), deep.fp8):
        with pytest.raises(Skip, match=r"needs compute capability \d\.\d"):
            check(pascal)


def test_a_torch_without_attention_is_no_fault():
    old = torch_with(None)
    old.nn = SimpleNamespace(functional=SimpleNamespace())
    with pytest.raises(Skip, match=r"torch 2\.0 brought"):
        quick.attention(CheckContext(old, "cuda"))


def test_amds_mi300_has_an_fp8_of_its_own():
    kinds = {
        (None, ""): "float8_e4m3fn",
        ("7.0", "gfx942:sramecc+:xnack-"): "float8_e4m3fnuz",
        ("7.0", "gfx950:sramecc+:xnack-"): "float8_e4m3fn",
    }
    assert {
        (hip, name): _fp8_type(CheckContext(torch_with(hip, name=name), "cuda"))
        for hip, name in kinds
    } == kinds


def test_cards_that_torchs_cuda_does_not_count_have_no_peers():
    with pytest.raises(Skip, match="counts 0 of its own GPUs"):
        all_gpus.peers(CheckContext(torch_with(None), "all", gpus=2))


def test_nccl_that_fails_for_one_process_fails_no_card(monkeypatch):
    def no_interface(*_):
        raise Wrong("Bootstrap : no socket interface found")

    monkeypatch.setattr(all_gpus, "sum_over", no_interface)
    torch = torch_with(None)
    torch.distributed = SimpleNamespace(
        is_available=lambda: True, is_nccl_available=lambda: True
    )
    with pytest.raises(Skip, match="no socket interface"):
        all_gpus.all_reduce(CheckContext(torch, "all", gpus=1))
    with pytest.raises(Wrong):
        all_gpus.all_reduce(CheckContext(torch, "all", gpus=2))


@pytest.mark.parametrize(
    ("device", "hip", "capability"),
    [
        ("cuda", None, (7, 0)),
        ("cuda", "6.4.43482", None),
        ("xpu", None, None),
        ("cpu", None, None),
    ],
)
def test_only_a_cuda_card_has_a_compute_capability(device, hip, capability):
    card = CheckContext(torch_with(hip), device)
    assert card.capability == capability
    with pytest.raises(Skip) if capability else nullcontext():
        card.demand(8, 0, "it")


def test_linux_says_what_memory_it_would_give():
    assert available_memory() > 1 << 20
