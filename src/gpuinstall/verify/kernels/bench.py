"""Measurements of products, copies, and a ResNet-50 with torch's timer."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from .context import Check, CheckContext, Skip, allow_tf32

BATCH = 16
MIB = 1 << 20


def measure_seconds(context: CheckContext, call: Callable[[], Any]) -> float:
    """Return the median time of a repeated call in seconds."""
    timer = import_module("torch.utils.benchmark").Timer(
        "call()",
        timer=partial(_read_time, context),
        globals={"call": call},
        # By default, Timer uses one thread.
        num_threads=context.torch.get_num_threads(),
    )
    call()
    return float(timer.blocked_autorange(min_run_time=0.5).median)


def _read_time(context: CheckContext) -> float:
    context.synchronize()
    return time.perf_counter()


def measure_product(dtype: str, context: CheckContext) -> str:
    """Return the TFLOP/s of a square matrix product."""
    if dtype == "bfloat16":
        context.require_capability(8, 0, dtype)
    torch = context.torch
    side = 8192 if context.on_gpu else 1024
    a = torch.randn(side, side, device=context.device).to(getattr(torch, dtype))
    seconds = measure_seconds(context, lambda: a @ a)
    return f"{2 * side**3 / seconds / 1e12:.4g} TFLOP/s"


def measure_copy(
    source: str,
    target: str,
    context: CheckContext,
) -> str:
    """Return the GB/s of a copy, which counts twice within one memory."""
    torch = context.torch
    size = (256 if context.on_gpu else 64) * MIB
    places: dict[str, dict[str, Any]] = {
        "device": {"device": context.device},
        "host": {"pin_memory": context.on_gpu},
    }
    from_block = torch.ones(size, dtype=torch.uint8, **places[source])
    to_block = torch.empty(size, dtype=torch.uint8, **places[target])
    seconds = measure_seconds(
        context, partial(to_block.copy_, from_block, non_blocking=True)
    )
    moved = 2 * size if source == target else size
    return f"{moved / seconds / 1e9:.4g} GB/s"


def measure_resnet50(context: CheckContext) -> str:
    """Return images per second of a ResNet-50 forward and backward pass."""
    try:
        models = import_module("torchvision.models")
    except ImportError as error:
        raise Skip("torchvision is not installed") from error
    allow_tf32(context.torch, True)
    model = models.resnet50().to(context.device)
    images = context.torch.randn(BATCH, 3, 224, 224, device=context.device)
    seconds = measure_seconds(context, lambda: model(images).sum().backward())
    return f"{BATCH / seconds:.4g} img/s"


CHECKS = (
    Check("product-float32", partial(measure_product, "float32"), where="gpu cpu"),
    Check("product-float16", partial(measure_product, "float16"), where="gpu"),
    Check("product-bfloat16", partial(measure_product, "bfloat16"), where="gpu cpu"),
    Check("memory", partial(measure_copy, "device", "device"), where="gpu cpu"),
    Check("host-to-device", partial(measure_copy, "host", "device"), where="gpu"),
    Check("device-to-host", partial(measure_copy, "device", "host"), where="gpu"),
    Check("resnet50", measure_resnet50, where="gpu cpu"),
)
