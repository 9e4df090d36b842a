"""The quick checks: each kind of library that training and inference start from, in a few milliseconds each."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from .bed import Check, CheckContext
from .protocol import Skip, Unproven, Wrong
from .tolerance import WINOGRAD, tolerance

if TYPE_CHECKING:
    from typing import Any

SIDE = 256
LEAST_FREE_MIB = 600


def device(bed: CheckContext) -> str | None:
    """torch sees the device, can open it, and it has memory to work in."""
    if bed.device != "cuda":
        return None
    bed.torch.cuda.init()
    free, _total = bed.torch.cuda.mem_get_info()
    if free < LEAST_FREE_MIB << 20:
        raise Unproven(f"no free memory: {free >> 20} MiB, where the checks need {LEAST_FREE_MIB}")
    bed.torch.zeros(1, device=bed.device)
    return str(bed.torch.cuda.get_device_name())


def elementwise(bed: CheckContext) -> None:
    """Elementwise kernels, the build's own code, against float64."""
    x = bed.random(1 << 16)
    on_device = x.to(bed.device)
    bed.compare((-on_device * on_device).exp() + on_device.sigmoid(), _bell(x.double()))


def _bell(x: Any) -> Any:
    return (-x * x).exp() + x.sigmoid()


def reduction(bed: CheckContext) -> None:
    """Sum, maximum and position of the maximum over a million numbers."""
    x = bed.random(1 << 20)
    on_device = x.to(bed.device)
    bed.compare(on_device.sum(), x.double().sum(), x.double().abs().sum())
    bed.same(on_device.max(), x.max())
    bed.same(on_device.argmax(), x.argmax())


def matmul(dtype: str, bed: CheckContext) -> None:
    """A matrix product (cuBLAS) against float64."""
    _demand(dtype, bed)
    a, b = bed.random(SIDE, SIDE, dtype=dtype), bed.random(SIDE, SIDE, dtype=dtype, seed=1)
    product = _computed(lambda: a.to(bed.device) @ b.to(bed.device))
    bed.compare(product, a.double() @ b.double(), a.double().abs() @ b.double().abs())


def _demand(dtype: str, bed: CheckContext) -> None:
    if dtype == "bfloat16" and bed.device == "cuda" and bed.capability < (8, 0):
        raise Skip("bfloat16 needs compute capability 8.0")


def _computed(product: Any) -> Any:
    try:
        return product()
    except RuntimeError as error:
        if "not implemented for" in str(error):
            raise Skip(str(error).splitlines()[0]) from None
        raise


def convolution(bed: CheckContext) -> None:
    """A convolution and its gradient (cuDNN) against float64."""
    x, w = bed.random(4, 16, 32, 32), bed.random(32, 16, 3, 3, seed=1)
    conv = bed.torch.nn.functional.conv2d
    on_device = w.to(bed.device).clone().requires_grad_()
    result = conv(x.to(bed.device), on_device, padding=1)
    result.sum().backward()
    bed.compare(result.detach(), conv(x.double(), w.double(), padding=1), _terms(conv, x, w))
    if not bool(on_device.grad.isfinite().all()):
        raise Wrong("the gradient is not finite")


def _terms(conv: Any, x: Any, w: Any) -> Any:
    return conv(x.double().abs(), w.double().abs(), padding=1)


def batched(bed: CheckContext) -> None:
    """A batched product of strided matrices (cuBLAS) against float64."""
    a, b = bed.random(8, 64, 96), bed.random(8, 80, 96, seed=1)
    product = bed.torch.bmm(a.to(bed.device), b.to(bed.device).transpose(1, 2))
    bed.compare(product, _bmm(a.double(), b.double()), _bmm(a.double().abs(), b.double().abs()))


def _bmm(a: Any, b: Any) -> Any:
    return a @ b.transpose(1, 2)


def linear(bed: CheckContext) -> None:
    """A product with a bias in one call (cuBLASLt) against float64."""
    x, w, bias = bed.random(64, SIDE), bed.random(128, SIDE, seed=1), bed.random(128, seed=2)
    result = bed.torch.nn.functional.linear(x.to(bed.device), w.to(bed.device), bias.to(bed.device))
    expected = x.double() @ w.double().t() + bias.double()
    bed.compare(result, expected, x.double().abs() @ w.double().abs().t() + bias.double().abs())


def sort(bed: CheckContext) -> None:
    """Sorting, exactly as the CPU does it."""
    x = bed.random(1 << 16)
    bed.same(x.to(bed.device).sort().values, x.sort().values)


def cumsum(bed: CheckContext) -> None:
    """Running sums of integers, exactly."""
    x = bed.torch.arange(1 << 16)
    bed.same(x.to(bed.device).cumsum(0), x.cumsum(0))


def optimizer(bed: CheckContext) -> None:
    """Three steps of AdamW over 96 tensors at once: kernels with long parameter lists, as training uses them.

    The step is called as a function: making an optimizer imports torch's compiler, which takes longer than torch.
    """
    parameters = [bed.random(16, seed=seed) for seed in range(96)]
    gradients = [bed.random(16, seed=1000 + seed) for seed in range(96)]
    reference = _stepped(bed.torch, [p.double() for p in parameters], [g.double() for g in gradients], foreach=False)
    on_device = [p.to(bed.device) for p in parameters], [g.to(bed.device) for g in gradients]
    bed.compare(_stepped(bed.torch, *on_device, foreach=bed.device == "cuda"), reference)


def _stepped(torch: Any, parameters: list[Any], gradients: list[Any], foreach: bool) -> Any:
    adamw = import_module("torch.optim.adamw").adamw
    session, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps = [torch.tensor(0.0) for _ in parameters]
    rates = {"amsgrad": False, "beta1": 0.9, "beta2": 0.999, "lr": 0.01, "weight_decay": 0.01, "eps": 1e-8}
    for _ in range(3):
        adamw(parameters, gradients, session, squares, [], steps, foreach=foreach, maximize=False, **rates)
    return torch.stack(parameters)


def numpy(bed: CheckContext) -> None:
    """torch and the installed NumPy understand each other."""
    try:
        import_module("numpy")
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise Skip("NumPy is not installed") from None
    if bed.torch.ones(3).numpy().sum() != 3:
        raise Wrong("an array made from a tensor holds other numbers")


def temporary(_bed: CheckContext) -> str:
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


def copies(bed: CheckContext) -> None:
    """Bytes to the device and back, from pageable and from pinned memory, unchanged."""
    x = bed.torch.randint(0, 256, (1 << 20,), dtype=bed.torch.uint8)
    bed.same(x.to(bed.device), x)
    pinned = x.pin_memory()
    there = pinned.to(bed.device, non_blocking=True)
    bed.synchronize()
    bed.same(there, x)


def streams(bed: CheckContext) -> None:
    """Two streams at once, one waiting for the other's result."""
    cuda = bed.torch.cuda
    first, second = cuda.Stream(), cuda.Stream()
    with cuda.stream(first):
        x = bed.torch.ones(1 << 16, device=bed.device).cumsum(0)
    with cuda.stream(second):
        y = bed.torch.full((1 << 16,), 2.0, device=bed.device)
        second.wait_stream(first)
        z = x * y
    cuda.synchronize()
    bed.same(z, 2 * bed.torch.arange(1, (1 << 16) + 1, dtype=bed.torch.float32))


def allocator(bed: CheckContext) -> None:
    """Blocks of memory that do not overlap, given back afterwards."""
    before = bed.torch.cuda.memory_allocated()
    blocks = [bed.torch.full((1 << 18,), i, dtype=bed.torch.int32, device=bed.device) for i in range(32)]
    if [int(block.min()) for block in blocks] != list(range(32)) or int(blocks[0].max()) != 0:
        raise Wrong("one block of memory was written through another")
    del blocks
    if bed.torch.cuda.memory_allocated() > before:
        raise Wrong("memory was not given back")


EVERYWHERE = "cuda cpu mps"

CHECKS = (
    Check("device", device, where=EVERYWHERE),
    Check("elementwise", elementwise, tolerance("float32"), EVERYWHERE),
    Check("reduction", reduction, tolerance("float32", 1 << 20)),
    Check("matmul-float32", partial(matmul, "float32"), tolerance("float32", SIDE), EVERYWHERE),
    Check("matmul-float16", partial(matmul, "float16"), tolerance("float16", SIDE), EVERYWHERE),
    Check("matmul-bfloat16", partial(matmul, "bfloat16"), tolerance("bfloat16", SIDE)),
    Check("convolution", convolution, tolerance("float32", 16 * 9, WINOGRAD)),
    Check("batched-product", batched, tolerance("float32", 96)),
    Check("linear", linear, tolerance("float32", SIDE)),
    Check("sort", sort),
    Check("cumsum", cumsum),
    Check("optimizer-step", optimizer, tolerance("float32", SIDE)),
    Check("copies", copies, where="cuda"),
    Check("streams", streams, where="cuda"),
    Check("allocator", allocator, where="cuda"),
    Check("numpy", numpy),
    Check("temporary-files", temporary),
)
