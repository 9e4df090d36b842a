"""The quick checks: each kind of library that training and inference start from, in a few milliseconds each."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from .context import WINOGRAD, Check, CheckContext, Skip, Unproven, Wrong, supported, tolerance

if TYPE_CHECKING:
    from typing import Any

SIDE = 256
LEAST_FREE_MIB = 600


def device(context: CheckContext) -> str | None:
    """torch sees the device, can open it, and it has memory to work in."""
    if not context.on_gpu:
        context.torch.zeros(1, device=context.device)
        return None
    context.gpu.init()
    free = context.free_bytes()
    if free < LEAST_FREE_MIB << 20:
        raise Unproven(f"no free memory: {free >> 20} MiB, where the checks need {LEAST_FREE_MIB}")
    context.torch.zeros(1, device=context.device)
    return str(context.gpu.get_device_name())


def elementwise(context: CheckContext) -> None:
    """Elementwise kernels, the build's own code, against float64."""
    x = context.random(1 << 16)
    on_device, exact = x.to(context.device), x.double()
    expected = (-exact * exact).exp() + exact.sigmoid()
    context.compare((-on_device * on_device).exp() + on_device.sigmoid(), expected)


def reduction(context: CheckContext) -> None:
    """Sum, maximum and position of the maximum over a million numbers."""
    x = context.random(1 << 20)
    on_device = x.to(context.device)
    context.compare(on_device.sum(), x.double().sum(), x.double().abs().sum())
    context.same(on_device.max(), x.max())
    context.same(on_device.argmax(), x.argmax())


def matmul(dtype: str, context: CheckContext) -> None:
    """A matrix product (cuBLAS) against float64."""
    if dtype == "bfloat16" and context.below(8, 0):
        raise Skip("bfloat16 needs compute capability 8.0")
    a, b = context.random(SIDE, SIDE, dtype=dtype), context.random(SIDE, SIDE, dtype=dtype, seed=1)
    product = supported(lambda: a.to(context.device) @ b.to(context.device), "not implemented for")
    context.compare(product, a.double() @ b.double(), a.double().abs() @ b.double().abs())


def convolution(context: CheckContext) -> None:
    """A convolution and its gradient (cuDNN) against float64."""
    x, w = context.random(4, 16, 32, 32), context.random(32, 16, 3, 3, seed=1)
    conv = context.torch.nn.functional.conv2d
    on_device = w.to(context.device).clone().requires_grad_()
    result = conv(x.to(context.device), on_device, padding=1)
    result.sum().backward()
    magnitude = conv(x.double().abs(), w.double().abs(), padding=1)
    context.compare(result.detach(), conv(x.double(), w.double(), padding=1), magnitude)
    if not bool(on_device.grad.isfinite().all()):
        raise Wrong("the gradient is not finite")


def batched(context: CheckContext) -> None:
    """A batched product of strided matrices (cuBLAS) against float64."""
    a, b = context.random(8, 64, 96), context.random(8, 80, 96, seed=1)
    product = context.torch.bmm(a.to(context.device), b.to(context.device).transpose(1, 2))
    context.compare(product, _bmm(a.double(), b.double()), _bmm(a.double().abs(), b.double().abs()))


def _bmm(a: Any, b: Any) -> Any:
    return a @ b.transpose(1, 2)


def linear(context: CheckContext) -> None:
    """A product with a bias in one call (cuBLASLt) against float64."""
    x, w, bias = (
        context.random(64, SIDE),
        context.random(128, SIDE, seed=1),
        context.random(128, seed=2),
    )
    result = context.torch.nn.functional.linear(
        x.to(context.device), w.to(context.device), bias.to(context.device)
    )
    expected = x.double() @ w.double().t() + bias.double()
    context.compare(result, expected, x.double().abs() @ w.double().abs().t() + bias.double().abs())


def sort(context: CheckContext) -> None:
    """Sorting, exactly as the CPU does it."""
    x = context.random(1 << 16)
    context.same(x.to(context.device).sort().values, x.sort().values)


def cumsum(context: CheckContext) -> None:
    """Running sums of integers, exactly."""
    x = context.torch.arange(1 << 16)
    context.same(x.to(context.device).cumsum(0), x.cumsum(0))


def optimizer(context: CheckContext) -> None:
    """Three steps of AdamW over 96 tensors at once: kernels with long parameter lists, as training uses them.

    The step is called as a function: making an optimizer imports torch's compiler, which takes longer than torch.
    """
    parameters = [context.random(16, seed=seed) for seed in range(96)]
    gradients = [context.random(16, seed=1000 + seed) for seed in range(96)]
    exact = [p.double() for p in parameters], [g.double() for g in gradients]
    reference = _stepped(context.torch, *exact, foreach=False)
    on_device = (
        [p.to(context.device) for p in parameters],
        [g.to(context.device) for g in gradients],
    )
    context.compare(_stepped(context.torch, *on_device, foreach=context.on_gpu), reference)


def _stepped(torch: Any, parameters: list[Any], gradients: list[Any], foreach: bool) -> Any:
    adamw = import_module("torch.optim.adamw").adamw
    averages, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.tensor(0.0) for _ in parameters]
    rates = {
        "amsgrad": False,
        "beta1": 0.9,
        "beta2": 0.999,
        "lr": 0.01,
        "weight_decay": 0.01,
        "eps": 1e-8,
    }
    for _ in range(3):
        adamw(
            parameters,
            gradients,
            averages,
            squares,
            [],
            steps,
            foreach=foreach,
            maximize=False,
            **rates,
        )
    return torch.stack(parameters)


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


def temporary(_context: CheckContext) -> str:
    """The folder for temporary files takes a megabyte: DataLoader workers, Triton and extensions write there."""
    import os
    import tempfile

    folder = os.environ.get("TMPDIR") or tempfile.gettempdir()
    if not os.access(folder, os.W_OK):
        raise Wrong(f"TMPDIR names {folder}, which cannot be written to")
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
    except OSError as error:
        raise OSError(error.errno, error.strerror, folder) from None
    return folder


def copies(context: CheckContext) -> None:
    """Bytes to the device and back, from pageable and from pinned memory, unchanged."""
    x = context.torch.randint(0, 256, (1 << 20,), dtype=context.torch.uint8)
    context.same(x.to(context.device), x)
    pinned = x.pin_memory()
    there = pinned.to(context.device, non_blocking=True)
    context.synchronize()
    context.same(there, x)


def streams(context: CheckContext) -> None:
    """Two streams at once, one waiting for the other's result."""
    gpu = context.gpu
    first, second = gpu.Stream(), gpu.Stream()
    with gpu.stream(first):
        x = context.torch.ones(1 << 16, device=context.device).cumsum(0)
    with gpu.stream(second):
        y = context.torch.full((1 << 16,), 2.0, device=context.device)
        second.wait_stream(first)
        z = x * y
    gpu.synchronize()
    context.same(z, 2 * context.torch.arange(1, (1 << 16) + 1, dtype=context.torch.float32))


def allocator(context: CheckContext) -> None:
    """Blocks of memory that do not overlap, given back afterwards."""
    before = context.gpu.memory_allocated()
    blocks = [
        context.torch.full((1 << 18,), i, dtype=context.torch.int32, device=context.device)
        for i in range(32)
    ]
    if [int(block.min()) for block in blocks] != list(range(32)) or int(blocks[0].max()) != 0:
        raise Wrong("one block of memory was written through another")
    del blocks
    if context.gpu.memory_allocated() > before:
        raise Wrong("memory was not freed")


EVERYWHERE = "gpu cpu mps"

CHECKS = (
    Check("device", device, where=EVERYWHERE),
    Check("elementwise", elementwise, tolerance("float32"), EVERYWHERE),
    Check("reduction", reduction, tolerance("float32", 1 << 20), EVERYWHERE),
    Check("matmul-float32", partial(matmul, "float32"), tolerance("float32", SIDE), EVERYWHERE),
    Check("matmul-float16", partial(matmul, "float16"), tolerance("float16", SIDE), EVERYWHERE),
    Check("matmul-bfloat16", partial(matmul, "bfloat16"), tolerance("bfloat16", SIDE)),
    Check("convolution", convolution, tolerance("float32", 16 * 9, WINOGRAD), EVERYWHERE),
    Check("batched-product", batched, tolerance("float32", 96), EVERYWHERE),
    Check("linear", linear, tolerance("float32", SIDE), EVERYWHERE),
    Check("sort", sort),
    Check("cumsum", cumsum),
    Check("optimizer-step", optimizer, tolerance("float32", SIDE), EVERYWHERE),
    Check("copies", copies, where="gpu"),
    Check("streams", streams, where="gpu"),
    Check("allocator", allocator, where="gpu"),
    Check("numpy", numpy),
    Check("temporary-files", temporary),
)
