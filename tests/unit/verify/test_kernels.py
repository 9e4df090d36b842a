from types import SimpleNamespace

import pytest

from gpuinstall.verify.kernels import context
from gpuinstall.verify.kernels.context import (
    EPSILON,
    CheckContext,
    Skip,
    available_memory,
    supported,
    tolerance,
)
from gpuinstall.verify.kernels.deep import NO_KERNEL, NOT_HERE
from gpuinstall.verify.kernels.main import table

SIGNS = {"attention": NO_KERNEL, "product": NOT_HERE}


def names(device, work="deep"):
    return {check.name for check in table(device, work)}


def torch_with(hip, *, integrated=False):
    """What of a torch says which card it runs on, with 300 MiB free."""
    gpu = SimpleNamespace(
        get_device_capability=lambda: (7, 0),
        get_device_properties=lambda _index: SimpleNamespace(is_integrated=integrated),
        mem_get_info=lambda: (300 << 20, 8 << 30),
    )
    return SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=gpu, xpu=gpu)


def test_one_term_is_rounding_alone():
    assert tolerance("float16") == pytest.approx(4 * EPSILON["float16"], rel=0.01)


def test_more_terms_allow_more_by_their_root():
    rounding = 4 * EPSILON["float32"]
    assert (tolerance("float32", 400) - rounding) / (
        tolerance("float32", 100) - rounding
    ) == pytest.approx(2)


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


def test_kept_files_count_as_free_only_in_shared_memory(monkeypatch):
    monkeypatch.setattr(context, "available_memory", lambda: 6 << 30)
    free = {
        (hip, integrated): CheckContext(
            torch_with(hip, integrated=integrated), "cuda"
        ).free_bytes()
        >> 20
        for hip, integrated in ((None, True), (None, False), ("6.4.43482", True))
    }
    assert free == {(None, True): 6144, (None, False): 300, ("6.4.43482", True): 300}


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
    assert card.below(8, 0) is (capability is not None)


def test_linux_says_what_memory_it_would_give():
    assert available_memory() > 1 << 20
