"""The measurements: how fast products, memory, copies, launches, a training step and data loading are."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from .bed import CheckContext, allow_tf32
from .deep import toolchain
from .loading import loading
from .protocol import Skip
from .resnet import resnet50

if TYPE_CHECKING:
    from collections.abc import Callable

    from .protocol import Channel


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


def sizes(bed: CheckContext) -> Sizes:
    """Choose the sizes that a device's free memory allows."""
    if bed.device != "cuda":
        return SMALL
    free, _total = bed.torch.cuda.mem_get_info()
    return LARGE if free >> 20 >= LARGE_FROM_MIB else MIDDLE


def seconds_per_call(bed: CheckContext, call: Callable[[], Any]) -> float:
    """Time a call: warm it up, find how many fill a window, and take the best window."""
    size = sizes(bed)
    _timed(bed, call, size.warm)
    count = 1
    while (elapsed := _timed(bed, call, count)) < size.seconds:
        count = max(2 * count, int(count * size.seconds / elapsed))
    return min(_timed(bed, call, count) for _ in range(size.windows)) / count


def _timed(bed: CheckContext, call: Callable[[], Any], count: int) -> float:
    bed.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        call()
    bed.synchronize()
    return time.perf_counter() - start


def product(dtype: str, bed: CheckContext) -> float:
    """TFLOP/s of a square matrix product."""
    if dtype in {"bfloat16", "tf32"} and bed.device == "cuda" and bed.capability < (8, 0):
        raise Skip("needs compute capability 8.0")
    side = sizes(bed).side
    kind = getattr(bed.torch, "float32" if dtype == "tf32" else dtype)
    a, b = (bed.torch.randn(side, side, device=bed.device).to(kind) for _ in range(2))
    allow_tf32(bed.torch, dtype == "tf32")
    return 2 * side**3 / seconds_per_call(bed, lambda: a @ b) / 1e12


def product_fp8(bed: CheckContext) -> float:
    """TFLOP/s of a square matrix product in FP8 (e4m3)."""
    if bed.capability < (8, 9) or not hasattr(bed.torch, "_scaled_mm"):
        raise Skip("FP8 needs torch 2.1 and compute capability 8.9")
    side = sizes(bed).side
    a, b = (bed.torch.randn(side, side, device=bed.device).to(bed.torch.float8_e4m3fn) for _ in range(2))
    one = bed.torch.ones((), device=bed.device)
    multiply = bed.torch._scaled_mm  # noqa: SLF001  torch has no public name for it
    call = partial(multiply, a, b.t(), scale_a=one, scale_b=one, out_dtype=bed.torch.bfloat16, use_fast_accum=True)
    return 2 * side**3 / seconds_per_call(bed, call) / 1e12


def memory(bed: CheckContext) -> float:
    """GB/s of a copy within the device's memory, read and written bytes together."""
    block = sizes(bed).block
    x = bed.torch.ones(block, dtype=bed.torch.uint8, device=bed.device)
    y = bed.torch.empty_like(x)
    return 2 * block / seconds_per_call(bed, lambda: y.copy_(x)) / 1e9


def copy(direction: str, pinned: bool, bed: CheckContext) -> float:
    """GB/s between the host's memory and the device's."""
    block = sizes(bed).block // 2
    host = bed.torch.ones(block, dtype=bed.torch.uint8, pin_memory=pinned)
    device = bed.torch.empty(block, dtype=bed.torch.uint8, device=bed.device)
    target, source = (device, host) if direction == "up" else (host, device)
    return block / seconds_per_call(bed, lambda: target.copy_(source, non_blocking=pinned)) / 1e9


def launch(bed: CheckContext) -> float:
    """Microseconds for which one call of the smallest kernel keeps the processor."""
    x = bed.torch.zeros(1, device=bed.device)
    return 1e6 * seconds_per_call(bed, lambda: x.add_(1))


def training(mode: str, bed: CheckContext) -> float:
    """Images a second through a training step of ResNet-50."""
    if mode == "compiled":
        toolchain(bed)
    size = sizes(bed)
    layout = bed.torch.channels_last if mode in {"channels-last", "compiled"} else bed.torch.contiguous_format
    model = resnet50(bed.torch).to(bed.device, memory_format=layout)
    images = bed.torch.randn(size.batch, 3, size.image, size.image, device=bed.device)
    step = _step(bed, bed.torch.compile(model) if mode == "compiled" else model, images.to(memory_format=layout), mode)
    allow_tf32(bed.torch, mode != "float32")
    return size.batch / seconds_per_call(bed, step)


def _step(bed: CheckContext, model: Any, images: Any, mode: str) -> Callable[[], None]:
    torch = bed.torch
    labels = torch.zeros(len(images), dtype=torch.long, device=bed.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    half = torch.float16 if bed.device == "cuda" and bed.capability < (8, 0) else torch.bfloat16
    mixed = mode not in {"float32", "tf32"}

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(bed.device, dtype=half) if mixed else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


class Measure(NamedTuple):
    """One row of the table: what ``run`` gives, in ``unit``, and the kinds of device that it is measured on."""

    name: str
    run: Callable[[CheckContext], Any]
    unit: str
    where: str = "cuda cpu"


MEASURES = (
    Measure("product-float32", partial(product, "float32"), "TFLOP/s"),
    Measure("product-tf32", partial(product, "tf32"), "TFLOP/s", "cuda"),
    Measure("product-float16", partial(product, "float16"), "TFLOP/s", "cuda"),
    Measure("product-bfloat16", partial(product, "bfloat16"), "TFLOP/s"),
    Measure("product-fp8", product_fp8, "TFLOP/s", "cuda"),
    Measure("memory", memory, "GB/s"),
    Measure("host-to-device-pinned", partial(copy, "up", True), "GB/s", "cuda"),
    Measure("host-to-device-pageable", partial(copy, "up", False), "GB/s", "cuda"),
    Measure("device-to-host-pinned", partial(copy, "down", True), "GB/s", "cuda"),
    Measure("device-to-host-pageable", partial(copy, "down", False), "GB/s", "cuda"),
    Measure("launch", launch, "µs"),
    Measure("resnet50-float32", partial(training, "float32"), "img/s"),
    Measure("resnet50-tf32", partial(training, "tf32"), "img/s", "cuda"),
    Measure("resnet50-mixed", partial(training, "mixed"), "img/s"),
    Measure("resnet50-channels-last", partial(training, "channels-last"), "img/s"),
    Measure("resnet50-compiled", partial(training, "compiled"), "img/s", "cuda"),
    Measure("data-loading", loading, "img/s"),
)


def run(channel: Channel, torch: Any, device: str) -> None:
    """Take every measurement that has a meaning on one kind of device; one that fails says why."""
    bed = CheckContext(torch, device)
    for measure in MEASURES:
        if device in measure.where.split():
            channel.attempt(measure.name, partial(_taken, channel, measure, bed))


def _taken(channel: Channel, measure: Measure, bed: CheckContext) -> None:
    value = measure.run(bed)
    found = value if isinstance(value, dict) else {"value": value}
    channel.send(measure=measure.name, unit=measure.unit, **found)
