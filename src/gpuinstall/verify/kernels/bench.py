"""The measurements: how fast products, memory, copies, launches, a training step and data loading are."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from .context import CheckContext, Skip, allow_tf32
from .deep import toolchain
from .loading import loading


class Sizes(NamedTuple):
    """How much is worked on: a matrix's side, bytes to move, images in a batch and their side; and how long.

    Each of ``windows`` takes ``seconds``, after ``warm`` calls that do not count.
    """

    side: int
    block: int
    batch: int
    image: int
    warm: int = 3
    windows: int = 5
    seconds: float = 0.2


LARGE = Sizes(side=8192, block=1 << 29, batch=64, image=224)
MIDDLE = Sizes(side=4096, block=1 << 27, batch=16, image=224)
SMALL = Sizes(side=512, block=1 << 26, batch=2, image=32, warm=1, windows=1, seconds=0.05)
LARGE_FROM_MIB = 14000

STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


def sizes(context: CheckContext) -> Sizes:
    """Choose the sizes that a device's memory allows: all of it, as what is free differs from run to run."""
    if not context.on_gpu:
        return SMALL
    _free, total = context.gpu.mem_get_info()
    return LARGE if total >> 20 >= LARGE_FROM_MIB else MIDDLE


def seconds_per_call(context: CheckContext, call: Callable[[], Any]) -> float:
    """Time a call: warm it up, find how many fill a window, and take the best window."""
    size = sizes(context)
    _timed(context, call, size.warm)
    count = 1
    while (elapsed := _timed(context, call, count)) < size.seconds:
        count = max(2 * count, int(count * size.seconds / elapsed))
    return min(_timed(context, call, count) for _ in range(size.windows)) / count


def _timed(context: CheckContext, call: Callable[[], Any], count: int) -> float:
    context.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    context.synchronize()
    return time.perf_counter() - start


def product(dtype: str, context: CheckContext) -> float:
    """TFLOP/s of a square matrix product."""
    if dtype in {"bfloat16", "tf32"} and context.below(8, 0):
        raise Skip("needs compute capability 8.0")
    side = sizes(context).side
    kind = getattr(context.torch, "float32" if dtype == "tf32" else dtype)
    a, b = (context.torch.randn(side, side, device=context.device).to(kind) for _ in range(2))
    allow_tf32(context.torch, dtype == "tf32")
    return 2 * side**3 / seconds_per_call(context, lambda: a @ b) / 1e12


def product_fp8(context: CheckContext) -> float:
    """TFLOP/s of a square matrix product in FP8 (e4m3)."""
    if context.below(8, 9) or not hasattr(context.torch, "_scaled_mm"):
        raise Skip("FP8 needs torch 2.1 and compute capability 8.9")
    side = sizes(context).side
    a, b = (
        context.torch.randn(side, side, device=context.device).to(context.torch.float8_e4m3fn)
        for _ in range(2)
    )
    scale = context.torch.ones((), device=context.device)
    multiply = context.torch._scaled_mm  # noqa: SLF001  torch has no public name for it
    options = {
        "scale_a": scale,
        "scale_b": scale,
        "out_dtype": context.torch.bfloat16,
        "use_fast_accum": True,
    }
    call = partial(multiply, a, b.t(), **options)
    return 2 * side**3 / seconds_per_call(context, call) / 1e12


def memory(context: CheckContext) -> float:
    """GB/s of a copy within the device's memory, read and written bytes together."""
    block = sizes(context).block
    x = context.torch.ones(block, dtype=context.torch.uint8, device=context.device)
    y = context.torch.empty_like(x)
    return 2 * block / seconds_per_call(context, lambda: y.copy_(x)) / 1e9


def copy(direction: str, pinned: bool, context: CheckContext) -> float:
    """GB/s between the host's memory and the device's."""
    block = sizes(context).block // 2
    host = context.torch.ones(block, dtype=context.torch.uint8, pin_memory=pinned)
    device = context.torch.empty(block, dtype=context.torch.uint8, device=context.device)
    target, source = (device, host) if direction == "up" else (host, device)
    return (
        block / seconds_per_call(context, lambda: target.copy_(source, non_blocking=pinned)) / 1e9
    )


def launch(context: CheckContext) -> float:
    """Microseconds for which one call of the smallest kernel keeps the processor."""
    x = context.torch.zeros(1, device=context.device)
    return 1e6 * seconds_per_call(context, lambda: x.add_(1))


def training(mode: str, context: CheckContext) -> float:
    """Images a second through a training step of ResNet-50."""
    if mode == "compiled":
        toolchain(context)
    size = sizes(context)
    layout = (
        context.torch.channels_last
        if mode in {"channels-last", "compiled"}
        else context.torch.contiguous_format
    )
    model = resnet50(context.torch).to(context.device, memory_format=layout)
    images = context.torch.randn(size.batch, 3, size.image, size.image, device=context.device)
    trained = context.torch.compile(model) if mode == "compiled" else model
    step = _step(context, trained, images.to(memory_format=layout), mode)
    allow_tf32(context.torch, mode != "float32")
    return size.batch / seconds_per_call(context, step)


def _step(context: CheckContext, model: Any, images: Any, mode: str) -> Callable[[], None]:
    torch = context.torch
    labels = torch.zeros(len(images), dtype=torch.long, device=context.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    half = torch.float16 if context.below(8, 0) else torch.bfloat16
    mixed = mode not in {"float32", "tf32"}

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(context.device, dtype=half) if mixed else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def resnet50(torch: Any) -> Any:
    """Make ResNet-50 (He and others, 2015), for 1000 classes: nothing is downloaded and nothing is learned."""
    nn = torch.nn
    stem = (
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    )
    blocks, width_in = [], 64
    for stage, (width, count) in enumerate(STAGES):
        for block in range(count):
            stride = 2 if stage > 0 and block == 0 else 1
            blocks.append(_bottleneck(nn, width_in, width, stride))
            width_in = width * EXPANSION
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width_in, 1000))
    return nn.Sequential(*stem, *blocks, *head)


def _bottleneck(nn: Any, width_in: int, width: int, stride: int) -> Any:
    class Bottleneck(nn.Module):  # type: ignore[misc]
        """Three convolutions and the way around them."""

        def __init__(self) -> None:
            super().__init__()
            self.way = nn.Sequential(
                *_convolution(nn, width_in, width, 1, 1),
                nn.ReLU(),
                *_convolution(nn, width, width, 3, stride),
                nn.ReLU(),
                *_convolution(nn, width, width * EXPANSION, 1, 1),
            )
            same = stride == 1 and width_in == width * EXPANSION
            around = nn.Sequential(*_convolution(nn, width_in, width * EXPANSION, 1, stride))
            self.around = nn.Identity() if same else around
            self.end = nn.ReLU()

        def forward(self, x: Any) -> Any:
            """Add both ways."""
            return self.end(self.way(x) + self.around(x))

    return Bottleneck()


def _convolution(nn: Any, width_in: int, width: int, size: int, stride: int) -> tuple[Any, Any]:
    return nn.Conv2d(width_in, width, size, stride, size // 2, bias=False), nn.BatchNorm2d(width)


class Measure(NamedTuple):
    """One row of the table: what ``run`` gives, in ``unit``, and the kinds of device that it is measured on."""

    name: str
    run: Callable[[CheckContext], Any]
    unit: str
    where: str = "gpu cpu"


MEASURES = (
    Measure("product-float32", partial(product, "float32"), "TFLOP/s"),
    Measure("product-tf32", partial(product, "tf32"), "TFLOP/s", "cuda"),
    Measure("product-float16", partial(product, "float16"), "TFLOP/s", "gpu"),
    Measure("product-bfloat16", partial(product, "bfloat16"), "TFLOP/s"),
    Measure("product-fp8", product_fp8, "TFLOP/s", "cuda"),
    Measure("memory", memory, "GB/s"),
    Measure("host-to-device-pinned", partial(copy, "up", True), "GB/s", "gpu"),
    Measure("host-to-device-pageable", partial(copy, "up", False), "GB/s", "gpu"),
    Measure("device-to-host-pinned", partial(copy, "down", True), "GB/s", "gpu"),
    Measure("device-to-host-pageable", partial(copy, "down", False), "GB/s", "gpu"),
    Measure("launch", launch, "µs"),
    Measure("resnet50-float32", partial(training, "float32"), "img/s"),
    Measure("resnet50-tf32", partial(training, "tf32"), "img/s", "cuda"),
    Measure("resnet50-mixed", partial(training, "mixed"), "img/s"),
    Measure("resnet50-channels-last", partial(training, "channels-last"), "img/s"),
    Measure("resnet50-compiled", partial(training, "compiled"), "img/s", "gpu"),
    Measure("data-loading", loading, "img/s"),
)
