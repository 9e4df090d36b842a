"""Quick checks of the libraries for training and inference."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from .context import (
    WINOGRAD,
    Check,
    CheckContext,
    Skip,
    Unproven,
    Wrong,
    call_if_supported,
    compute_tolerance,
)

SIDE = 256
HEADS, LENGTH, WIDTH = 4, 128, 64
NO_KERNEL = (
    "no available kernel",
    "no execution plans support",
    "no valid engine configs",
)
"""Errors if torch has no attention kernel: pytorch/pytorch#140930."""
HALF_WINOGRAD = 2
"""The error margin for 16-bit convolutions, which add in 32 bits."""
LEAST_FREE_MIB = 600


def check_device(context: CheckContext) -> str | None:
    """Check that torch opens the device and that it has enough free memory."""
    if context.on_gpu:
        context.gpu.init()
        free = context.free_bytes()
        if free is not None and free >> 20 < LEAST_FREE_MIB:
            raise Unproven(
                f"not enough free memory: {free >> 20} MiB, but the checks require {LEAST_FREE_MIB} MiB"
            )
    # The first tensor opens a context, which fails if another process uses the GPU exclusively.
    context.torch.zeros(1, device=context.device)
    return str(context.gpu.get_device_name()) if context.on_gpu else None


def check_elementwise(context: CheckContext) -> None:
    """Check elementwise kernels, the build's own code, against float64."""
    x = context.random(1 << 16)
    context.compare(_compute_bell(context.to_device(x)), _compute_bell(x.double()))


def _compute_bell(x: Any) -> Any:
    return (-x * x).exp() + x.sigmoid()


def check_matmul(dtype: str, context: CheckContext) -> None:
    """Check a matrix product (cuBLAS) against float64."""
    if dtype == "bfloat16":
        context.require_capability(8, 0, dtype)
    a = context.random(SIDE, SIDE, dtype=dtype)
    b = context.random(SIDE, SIDE, dtype=dtype, seed=1)
    call_if_supported(
        partial(context.compare_sums, operator.matmul, a, b),
        "not implemented for",
    )


def check_convolution(dtype: str, context: CheckContext) -> str | None:
    """Check a convolution and both gradients (cuDNN) against float64."""
    if dtype == "bfloat16":
        context.require_capability(8, 0, dtype)
    count, inner, outer, side = 4, 16, 32, 32
    if context.device == "cpu":
        # A larger convolution takes a second on some processors.
        count, inner, outer, side = 1, 1, 1, 8
    x = context.random(count, inner, side, side, dtype=dtype)
    w = context.random(outer, inner, 3, 3, dtype=dtype, seed=1)
    weights = context.random(count, outer, side, side, dtype=dtype, seed=2)
    call_if_supported(
        partial(context.compare_sums, partial(_convolve, context), x, w, weights),
        "not implemented for",
    )
    return _describe_cudnn(context, x) if context.capability else None


def _convolve(
    context: CheckContext,
    x: Any,
    w: Any,
    weights: Any,
) -> Any:
    """Return a convolution and its gradients in one tensor.

    Args:
        context: The context of the check.
        x: The images.
        w: The filters.
        weights: The weights of the results, which make the gradients differ.
    """
    x = x.clone().requires_grad_()
    w = w.clone().requires_grad_()
    result = context.torch.nn.functional.conv2d(x, w, padding=1)
    (result * weights).sum().backward()
    parts = (result.detach(), x.grad, w.grad)
    return context.torch.cat([part.flatten() for part in parts])


def _describe_cudnn(context: CheckContext, x: Any) -> str:
    cudnn = context.torch.backends.cudnn
    # cuDNN supports bfloat16, although torch's list of types for cuDNN does not include it.
    if cudnn.is_acceptable(context.to_device(x).half()):
        return f"cuDNN {cudnn.version()}"
    return "without cuDNN"


def check_attention(context: CheckContext) -> None:
    """Check scaled_dot_product_attention with torch's default backend."""
    attend = getattr(context.torch.nn.functional, "scaled_dot_product_attention", None)
    if attend is None:
        raise Skip("scaled_dot_product_attention requires torch 2.0")
    call_if_supported(partial(compare_attention, context, attend), *NO_KERNEL)


def compare_attention(
    context: CheckContext,
    attend: Callable[..., Any],
    *,
    heads_first: bool = True,
) -> None:
    """Compare the result of attention with the result in float64.

    Args:
        context: The context of the check.
        attend: The attention function, which receives queries, keys, and values on the device.
        heads_first: Whether the dimension of the heads precedes the length.
    """
    places = (HEADS, LENGTH) if heads_first else (LENGTH, HEADS)
    inputs = [
        context.random(2, *places, WIDTH, dtype="float16", seed=seed)
        for seed in range(3)
    ]
    result = attend(*map(context.to_device, inputs))
    if not heads_first:
        result, *inputs = (tensor.transpose(1, 2) for tensor in (result, *inputs))
    q, k, v = (tensor.double() for tensor in inputs)
    scores = q @ k.transpose(-2, -1) / WIDTH**0.5
    exact = context.torch.softmax(scores, dim=-1) @ v
    context.compare(result, exact, v.abs().max())


def check_batched_product(context: CheckContext) -> None:
    """Check a batched product of strided matrices (cuBLAS) against float64."""
    a = context.random(8, 64, 96)
    b = context.random(8, 80, 96, seed=1)
    torch = context.torch
    context.compare_sums(lambda a, b: torch.bmm(a, b.transpose(1, 2)), a, b)


def check_linear(context: CheckContext) -> None:
    """Check a matrix product with a bias (cuBLASLt) against float64."""
    x = context.random(64, SIDE)
    w = context.random(128, SIDE, seed=1)
    bias = context.random(128, seed=2)
    context.compare_sums(context.torch.nn.functional.linear, x, w, bias)


def check_optimizer(context: CheckContext) -> None:
    """Check an optimizer step over 96 tensors with long parameter lists.

    The check calls the operations directly, because creating an optimizer imports
    torch's compiler, which is slow.
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


def check_numpy(context: CheckContext) -> None:
    """Check the conversion of a tensor to NumPy."""
    try:
        import_module("numpy")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise Skip("NumPy is not installed") from None
    if context.torch.ones(3).numpy().sum() != 3:
        raise Wrong("a NumPy array created from a tensor has different values")


def check_copies(context: CheckContext) -> None:
    """Check copies to the device and back, from pageable and pinned memory."""
    x = context.torch.randint(0, 256, (1 << 20,), dtype=context.torch.uint8)
    context.compare_exactly(context.to_device(x), x)
    copy = x.pin_memory().to(context.device, non_blocking=True)
    context.synchronize()
    context.compare_exactly(copy, x)


CHECKS = (
    Check("device", check_device),
    Check(
        "elementwise",
        check_elementwise,
        compute_tolerance("float32"),
        where="gpu mps",
    ),
    Check(
        "matmul-float32",
        partial(check_matmul, "float32"),
        compute_tolerance("float32", SIDE),
    ),
    Check(
        "matmul-float16",
        partial(check_matmul, "float16"),
        compute_tolerance("float16", SIDE),
        where="gpu mps",
    ),
    Check(
        "matmul-bfloat16",
        partial(check_matmul, "bfloat16"),
        compute_tolerance("bfloat16", SIDE),
        where="gpu",
    ),
    Check(
        "convolution",
        partial(check_convolution, "float32"),
        compute_tolerance("float32", 16 * 9, WINOGRAD),
        cause="F51",
    ),
    Check(
        "convolution-float16",
        partial(check_convolution, "float16"),
        compute_tolerance("float16", 16 * 9, HALF_WINOGRAD),
        where="cuda",
        cause="F51",
    ),
    Check(
        "convolution-bfloat16",
        partial(check_convolution, "bfloat16"),
        compute_tolerance("bfloat16", 16 * 9, HALF_WINOGRAD),
        where="cuda",
        cause="F51",
    ),
    Check(
        "attention",
        check_attention,
        compute_tolerance("float16", LENGTH),
        where="cuda",
    ),
    Check(
        "batched-product",
        check_batched_product,
        compute_tolerance("float32", 96),
        cause="F50",
        where="gpu mps",
    ),
    Check(
        "linear",
        check_linear,
        compute_tolerance("float32", SIDE),
        cause="F50",
        where="gpu mps",
    ),
    Check(
        "optimizer-step",
        check_optimizer,
        compute_tolerance("float32", SIDE),
        where="gpu mps",
    ),
    Check(
        "copies",
        check_copies,
        where="gpu",
    ),
    Check(
        "numpy",
        check_numpy,
        where="gpu cpu none",
        cause="F66",
    ),
)
