from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpuinstall.verify.kernels.context import EPSILON, CheckContext, tolerance
from gpuinstall.verify.kernels.main import table


def names(device: str, work: str = "deep") -> set[str]:
    return {check.name for check in table(device, work)}


def torch_with(hip: str | None) -> SimpleNamespace:
    """What of a torch says which card it runs on."""
    gpu = SimpleNamespace(get_device_capability=lambda: (7, 0))
    return SimpleNamespace(version=SimpleNamespace(hip=hip), cuda=gpu, xpu=gpu)


def test_one_term_is_rounding_alone() -> None:
    assert tolerance("float16") == pytest.approx(4 * EPSILON["float16"], rel=0.01)


def test_more_terms_allow_more_by_their_root() -> None:
    rounding = 4 * EPSILON["float32"]
    assert (tolerance("float32", 400) - rounding) / (tolerance("float32", 100) - rounding) == pytest.approx(2)


def test_a_margin_multiplies_all_of_it() -> None:
    assert tolerance("float32", 144, 16) == 16 * tolerance("float32", 144)


def test_every_makers_gpu_has_the_checks_of_gpus_and_not_those_of_one_maker() -> None:
    assert names("cuda") - names("acme") >= {"cuda-graph", "attention-flash", "matmul-fp8"}
    assert names("acme") - names("cpu") >= {"copies", "streams", "allocator"}
    assert names("mps") < names("cpu")
    assert {"device", "elementwise", "matmul-float32", "matmul-float16", "convolution", "optimizer-step"} <= names(
        "mps"
    )
    assert names("all", "quick") == {"all-reduce", "peer-to-peer"}
    assert names("none") == set()


@pytest.mark.parametrize(
    ("device", "hip", "capability"),
    [("cuda", None, (7, 0)), ("cuda", "6.4.43482", None), ("xpu", None, None), ("cpu", None, None)],
)
def test_only_a_cuda_card_has_a_compute_capability(
    device: str, hip: str | None, capability: tuple[int, int] | None
) -> None:
    context = CheckContext(torch_with(hip), device)
    assert context.capability == capability
    assert context.below(8, 0) is (capability is not None)
