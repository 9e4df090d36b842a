"""The measurements: how fast products, memory, copies, launches, a training step and data loading are."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

from .context import CheckContext, Skip, allow_tf32
from .deep import fp8_product, toolchain
from .loading import loading


class Sizes(NamedTuple):
    """How much is worked on, and how long."""

    side: int
    """Of a matrix."""

    block: int
    """Bytes to move."""

    batch: int
    """Images in a batch."""

    image: int
    """The side of an image."""

    warm: int = 3
    """Calls that do not count."""

    windows: int = 5
    """How often is measured; the best counts."""

    seconds: float = 0.2
    """How long each of the windows takes."""


LARGE = Sizes(side=8192, block=1 << 29, batch=64, image=224)
MIDDLE = Sizes(side=4096, block=1 << 27, batch=16, image=224)
SMALL = Sizes(
    side=512,
    block=1 << 26,
    batch=2,
    image=32,
    warm=1,
    windows=1,
    seconds=0.05,
)
LARGE_FROM_MIB = 14000

#: The width and the count of blocks of each stage of ResNet-50.
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
EXPANSION = 4


def sizes(context: CheckContext) -> Sizes:
    """Return the sizes that a device's memory allows: all of it, as what is free differs from run to run."""
    if not context.on_gpu:
        return SMALL
    _free, total = context.gpu.mem_get_info()
    return LARGE if total >> 20 >= LARGE_FROM_MIB else MIDDLE


def seconds_per_call(context: CheckContext, call: Callable[[], Any]) -> float:
    """Return what a call takes: it is warmed up, repeated until it fills a window, and the best window counts."""
    size = sizes(context)
    _seconds(context, call, size.warm)
    count = 1
    elapsed = _seconds(context, call, count)
    while elapsed < size.seconds:
        count = max(2 * count, int(count * size.seconds / elapsed))
        elapsed = _seconds(context, call, count)
    windows = [_seconds(context, call, count) for _ in range(size.windows)]
    return min(windows) / count


def _seconds(
    context: CheckContext,
    call: Callable[[], Any],
    count: int,
) -> float:
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
    a, b = _matrices(context, "float32" if dtype == "tf32" else dtype)
    allow_tf32(context.torch, dtype == "tf32")
    return _product_rate(context, lambda: a @ b)


def product_fp8(context: CheckContext) -> float:
    """TFLOP/s of a square matrix product in FP8 (e4m3)."""
    if context.below(8, 9) or not hasattr(context.torch, "_scaled_mm"):
        raise Skip("FP8 needs torch 2.1 and compute capability 8.9")
    a, b = _matrices(context, "float8_e4m3fn")
    return _product_rate(context, fp8_product(context, a, b, use_fast_accum=True))


def _matrices(context: CheckContext, dtype: str) -> tuple[Any, Any]:
    side = sizes(context).side
    kind = getattr(context.torch, dtype)
    a = context.torch.randn(side, side, device=context.device)
    b = context.torch.randn(side, side, device=context.device)
    return a.to(kind), b.to(kind)


def _product_rate(context: CheckContext, multiply: Callable[[], Any]) -> float:
    operations = 2 * sizes(context).side ** 3
    return operations / seconds_per_call(context, multiply) / 1e12


def memory(context: CheckContext) -> float:
    """GB/s of a copy within the device's memory, read and written bytes together."""
    block = sizes(context).block
    source = context.torch.ones(
        block,
        dtype=context.torch.uint8,
        device=context.device,
    )
    target = context.torch.empty_like(source)
    return 2 * block / seconds_per_call(context, lambda: target.copy_(source)) / 1e9


def copy(direction: str, pinned: bool, context: CheckContext) -> float:
    """GB/s between the host's memory and the device's."""
    torch = context.torch
    block = sizes(context).block // 2
    host = torch.ones(block, dtype=torch.uint8, pin_memory=pinned)
    device = torch.empty(block, dtype=torch.uint8, device=context.device)
    call = partial(device.copy_, host, non_blocking=pinned)
    if direction == "down":
        call = partial(host.copy_, device, non_blocking=pinned)
    return block / seconds_per_call(context, call) / 1e9


def launch(context: CheckContext) -> float:
    """Microseconds for which one call of the smallest kernel keeps the processor."""
    x = context.torch.zeros(1, device=context.device)
    return 1e6 * seconds_per_call(context, lambda: x.add_(1))


def training(mode: str, context: CheckContext) -> float:
    """Images a second through a training step of ResNet-50."""
    torch = context.torch
    layout = torch.contiguous_format
    if mode in {"channels-last", "compiled"}:
        layout = torch.channels_last
    if mode == "compiled":
        toolchain(context)
    size = sizes(context)
    model = resnet50(torch).to(context.device, memory_format=layout)
    if mode == "compiled":
        model = torch.compile(model)
    images = torch.randn(
        size.batch,
        3,
        size.image,
        size.image,
        device=context.device,
    )
    step = _training_step(
        context,
        model,
        images.to(memory_format=layout),
        mode,
    )
    allow_tf32(torch, mode != "float32")
    return size.batch / seconds_per_call(context, step)


def _training_step(
    context: CheckContext,
    model: Any,
    images: Any,
    mode: str,
) -> Callable[[], None]:
    torch = context.torch
    labels = torch.zeros(
        len(images),
        dtype=torch.long,
        device=context.device,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    precision: Callable[[], Any] = nullcontext
    if mode not in {"float32", "tf32"}:
        half = torch.float16 if context.below(8, 0) else torch.bfloat16
        precision = partial(torch.autocast, context.device, dtype=half)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with precision():
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def resnet50(torch: Any) -> Any:
    """Return ResNet-50 (He and others, 2015), for 1000 classes: nothing is downloaded and nothing is learned."""
    nn = torch.nn
    layers = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]
    channels = 64
    for stage, (width, count) in enumerate(STAGES):
        for block in range(count):
            # Each stage but the first begins by halving the image.
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_bottleneck(nn, channels, width, stride))
            channels = width * EXPANSION
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


def _bottleneck(
    nn: Any,
    channels: int,
    width: int,
    stride: int,
) -> Any:
    class Bottleneck(nn.Module):  # type: ignore[misc]
        """Three convolutions and the way around them."""

        def __init__(self) -> None:
            super().__init__()
            self.way = nn.Sequential(
                *_convolution(nn, channels, width),
                nn.ReLU(),
                *_convolution(nn, width, width, size=3, stride=stride),
                nn.ReLU(),
                *_convolution(nn, width, width * EXPANSION),
            )
            self.around = nn.Identity()
            if stride != 1 or channels != width * EXPANSION:
                convolution = _convolution(
                    nn,
                    channels,
                    width * EXPANSION,
                    stride=stride,
                )
                self.around = nn.Sequential(*convolution)
            self.end = nn.ReLU()

        def forward(self, x: Any) -> Any:
            """Add both ways."""
            return self.end(self.way(x) + self.around(x))

    return Bottleneck()


def _convolution(
    nn: Any,
    channels: int,
    width: int,
    *,
    size: int = 1,
    stride: int = 1,
) -> tuple[Any, Any]:
    """Return a convolution and its normalization."""
    convolution = nn.Conv2d(
        channels,
        width,
        size,
        stride,
        padding=size // 2,
        bias=False,
    )
    return convolution, nn.BatchNorm2d(width)


class Measure(NamedTuple):
    """One row of the table."""

    name: str
    run: Callable[[CheckContext], Any]
    unit: str
    where: str = "gpu cpu"
    """The kinds of device that it is measured on."""


MEASURES = (
    Measure("product-float32", partial(product, "float32"), "TFLOP/s"),
    Measure(
        "product-tf32",
        partial(product, "tf32"),
        "TFLOP/s",
        where="cuda",
    ),
    Measure(
        "product-float16",
        partial(product, "float16"),
        "TFLOP/s",
        where="gpu",
    ),
    Measure("product-bfloat16", partial(product, "bfloat16"), "TFLOP/s"),
    Measure(
        "product-fp8",
        product_fp8,
        "TFLOP/s",
        where="cuda",
    ),
    Measure("memory", memory, "GB/s"),
    Measure(
        "host-to-device-pinned",
        partial(copy, "up", True),
        "GB/s",
        where="gpu",
    ),
    Measure(
        "host-to-device-pageable",
        partial(copy, "up", False),
        "GB/s",
        where="gpu",
    ),
    Measure(
        "device-to-host-pinned",
        partial(copy, "down", True),
        "GB/s",
        where="gpu",
    ),
    Measure(
        "device-to-host-pageable",
        partial(copy, "down", False),
        "GB/s",
        where="gpu",
    ),
    Measure("launch", launch, "µs"),
    Measure("resnet50-float32", partial(training, "float32"), "img/s"),
    Measure(
        "resnet50-tf32",
        partial(training, "tf32"),
        "img/s",
        where="cuda",
    ),
    Measure("resnet50-mixed", partial(training, "mixed"), "img/s"),
    Measure("resnet50-channels-last", partial(training, "channels-last"), "img/s"),
    Measure(
        "resnet50-compiled",
        partial(training, "compiled"),
        "img/s",
        where="gpu",
    ),
    Measure("data-loading", loading, "img/s"),
)
