"""The quick checks: each kind of library that training and inference start from, in a few milliseconds each."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from .context import (
    WINOGRAD,
    Check,
    CheckContext,
    Skip,
    Unproven,
    Wrong,
    supported,
    tolerance,
)

if TYPE_CHECKING:
    from typing import Any

SIDE = 256
LEAST_FREE_MIB = 600


def device(context: CheckContext) -> str | None:
    """torch sees the device, can open it, and it has memory to work in."""
    if context.on_gpu:
        context.gpu.init()
        free = context.free_bytes() >> 20
        if free < LEAST_FREE_MIB:
            raise Unproven(
                f"no free memory: {free} MiB, where the checks need {LEAST_FREE_MIB}"
            )
    # To see a device opens no context on it: the first tensor does, and a card that others hold refuses that.
    context.torch.zeros(1, device=context.device)
    return str(context.gpu.get_device_name()) if context.on_gpu else None


def elementwise(context: CheckContext) -> None:
    """Elementwise kernels, the build's own code, against float64."""
    x = context.random(1 << 16)
    context.compare(_bell(context.to_device(x)), _bell(x.double()))


def _bell(x: Any) -> Any:
    return (-x * x).exp() + x.sigmoid()


def matmul(dtype: str, context: CheckContext) -> None:
    """A matrix product (cuBLAS) against float64."""
    if dtype == "bfloat16" and context.below(8, 0):
        raise Skip("bfloat16 needs compute capability 8.0")
    a = context.random(SIDE, SIDE, dtype=dtype)
    b = context.random(SIDE, SIDE, dtype=dtype, seed=1)
    product = supported(
        lambda: context.to_device(a) @ context.to_device(b),
        "not implemented for",
    )
    context.compare_product(product, a, b)


def convolution(context: CheckContext) -> None:
    """A convolution and its gradient (cuDNN) against float64."""
    x = context.random(4, 16, 32, 32)
    w = context.random(32, 16, 3, 3, seed=1)
    weights = context.to_device(w).clone().requires_grad_()
    convolve = partial(context.torch.nn.functional.conv2d, padding=1)
    result = convolve(context.to_device(x), weights)
    result.sum().backward()
    x = x.double()
    w = w.double()
    context.compare(
        result.detach(),
        convolve(x, w),
        convolve(x.abs(), w.abs()),
    )
    if not bool(weights.grad.isfinite().all()):
        raise Wrong("the gradient is not finite")


def batched(context: CheckContext) -> None:
    """A batched product of strided matrices (cuBLAS) against float64."""
    a = context.random(8, 64, 96)
    b = context.random(8, 80, 96, seed=1)
    strided = context.to_device(b).transpose(1, 2)
    product = context.torch.bmm(context.to_device(a), strided)
    context.compare_product(product, a, b.transpose(1, 2))


def linear(context: CheckContext) -> None:
    """A product with a bias in one call (cuBLASLt) against float64."""
    x = context.random(64, SIDE)
    w = context.random(128, SIDE, seed=1)
    bias = context.random(128, seed=2)
    inputs = map(context.to_device, (x, w, bias))
    result = context.torch.nn.functional.linear(*inputs)
    x = x.double()
    w = w.double().t()
    bias = bias.double()
    context.compare(
        result,
        x @ w + bias,
        x.abs() @ w.abs() + bias.abs(),
    )


def optimizer(context: CheckContext) -> None:
    """A step of an optimizer over 96 tensors at once: kernels with long parameter lists, as training uses them.

    Its operations are called by themselves: making an optimizer imports torch's compiler, which takes longer than torch.
    """
    torch = context.torch
    gradients = [context.random(16, seed=seed) for seed in range(96)]
    on_device = list(map(context.to_device, gradients))
    scales = torch._foreach_add(torch._foreach_mul(on_device, on_device), 1.0)  # noqa: SLF001
    steps = torch._foreach_addcdiv(on_device, on_device, scales, value=-0.1)  # noqa: SLF001
    exact = torch.stack(gradients).double()
    context.compare(
        torch.stack(steps), exact - 0.1 * exact / (exact * exact + 1), exact.abs() + 1
    )


def numpy(context: CheckContext) -> None:
    """torch and the installed NumPy understand each other."""
    try:
        import_module("numpy")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise Skip("NumPy is not installed") from None
    if context.torch.ones(3).numpy().sum() != 3:
        raise Wrong("an array made from a tensor has different values")


def copies(context: CheckContext) -> None:
    """Bytes to the device and back, from pageable and from pinned memory, unchanged."""
    x = context.torch.randint(
        0,
        256,
        (1 << 20,),
        dtype=context.torch.uint8,
    )
    context.same(context.to_device(x), x)
    copy = x.pin_memory().to(context.device, non_blocking=True)
    context.synchronize()
    context.same(copy, x)


EVERYWHERE = "gpu cpu mps"

CHECKS = (
    Check("device", device, where=EVERYWHERE),
    Check(
        "elementwise",
        elementwise,
        tolerance("float32"),
        where=EVERYWHERE,
    ),
    Check(
        "matmul-float32",
        partial(matmul, "float32"),
        tolerance("float32", SIDE),
        where=EVERYWHERE,
    ),
    Check(
        "matmul-float16",
        partial(matmul, "float16"),
        tolerance("float16", SIDE),
        where=EVERYWHERE,
    ),
    Check("matmul-bfloat16", partial(matmul, "bfloat16"), tolerance("bfloat16", SIDE)),
    Check(
        "convolution",
        convolution,
        tolerance("float32", 16 * 9, WINOGRAD),
        where=EVERYWHERE,
        cause="F51",
    ),
    Check(
        "batched-product",
        batched,
        tolerance("float32", 96),
        where=EVERYWHERE,
        cause="F50",
    ),
    Check(
        "linear",
        linear,
        tolerance("float32", SIDE),
        where=EVERYWHERE,
        cause="F50",
    ),
    Check(
        "optimizer-step",
        optimizer,
        tolerance("float32", SIDE),
        where=EVERYWHERE,
    ),
    Check("copies", copies, where="gpu"),
    Check("numpy", numpy, where="gpu cpu none", cause="F66"),
)
