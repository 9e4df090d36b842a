"""The deep checks: attention, low precision, sparsity, solvers, graphs, the compiler, and torch's companions."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .bed import Check, CheckContext
from .protocol import Skip, Wrong
from .tolerance import tolerance

if TYPE_CHECKING:
    from collections.abc import Callable

HEADS, LENGTH, WIDTH = 4, 128, 64
SIDE = 256


def attention(backend: str, bed: CheckContext) -> None:
    """scaled_dot_product_attention by one back end against float64."""
    if not hasattr(bed.torch.nn.functional, "scaled_dot_product_attention"):
        raise Skip("torch 2.0 brought scaled_dot_product_attention")
    least = {"flash": (8, 0), "cudnn": (8, 0), "efficient": (5, 0)}.get(backend)
    if least and bed.capability < least:
        raise Skip(f"needs compute capability {least[0]}.{least[1]}")
    dtype = "float16" if bed.device == "cuda" else "float32"
    q, k, v = (bed.random(2, HEADS, LENGTH, WIDTH, dtype=dtype, seed=seed) for seed in range(3))
    result = _attended(bed, backend, *(tensor.to(bed.device) for tensor in (q, k, v)))
    bed.compare(result, _reference(bed, q, k, v), v.double().abs().max())


def _attended(bed: CheckContext, backend: str, q: Any, k: Any, v: Any) -> Any:
    with _only(bed.torch, backend):
        try:
            return bed.torch.nn.functional.scaled_dot_product_attention(q, k, v)
        except RuntimeError as error:
            if "No available kernel" in str(error):
                raise Skip("this build has no such kernel for this card") from None
            raise


def _only(torch: Any, backend: str) -> Any:
    names = {"flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION", "cudnn": "CUDNN_ATTENTION", "math": "MATH"}
    attention = getattr(torch.nn, "attention", None)
    if attention is not None and hasattr(attention.SDPBackend, names[backend]):
        return attention.sdpa_kernel(getattr(attention.SDPBackend, names[backend]))
    if backend == "cudnn":
        raise Skip("this torch has no such back end")
    chosen = {"flash": "enable_flash", "efficient": "enable_mem_efficient", "math": "enable_math"}
    return torch.backends.cuda.sdp_kernel(**{option: name == backend for name, option in chosen.items()})


def _reference(bed: CheckContext, q: Any, k: Any, v: Any) -> Any:
    scores = q.double() @ k.double().transpose(-2, -1) / WIDTH**0.5
    return bed.torch.softmax(scores, dim=-1) @ v.double()


def fp8(bed: CheckContext) -> None:
    """A matrix product in FP8 (e4m3) against float64."""
    if bed.capability < (8, 9):
        raise Skip("FP8 needs compute capability 8.9")
    if not hasattr(bed.torch, "_scaled_mm"):
        raise Skip("torch 2.1 brought FP8 products")
    a, b = (bed.random(SIDE, SIDE, dtype="float8_e4m3fn", seed=seed) for seed in range(2))
    one = bed.torch.ones((), device=bed.device)
    multiply = bed.torch._scaled_mm  # noqa: SLF001  torch has no public name for it
    options = {"scale_a": one, "scale_b": one, "out_dtype": bed.torch.bfloat16}
    result = _supported(lambda: multiply(a.to(bed.device), b.to(bed.device).t(), **options))
    a, b = a.double(), b.double().t()
    bed.compare(result[0] if isinstance(result, tuple) else result, a @ b, a.abs() @ b.abs())


def sparse(bed: CheckContext) -> None:
    """A product with a 2:4 sparse matrix against float64."""
    make = getattr(bed.torch.sparse, "to_sparse_semi_structured", None)
    if make is None or bed.capability < (8, 0):
        raise Skip("2:4 sparsity needs torch 2.1 and compute capability 8.0")
    mask = bed.torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(SIDE, SIDE // 4)
    w = (bed.random(SIDE, SIDE, dtype="float16") * mask).half()
    x = bed.random(SIDE, SIDE, dtype="float16", seed=1)
    result = _supported(lambda: make(w.to(bed.device)) @ x.to(bed.device))
    bed.compare(result, w.double() @ x.double(), w.double().abs() @ x.double().abs())


def _supported(product: Callable[[], Any]) -> Any:
    """Compute; skip where a library says that it does not do this on this card."""
    try:
        return product()
    except RuntimeError as error:
        text = str(error).lower().replace("_", " ")
        if any(sign in text for sign in ("not support", "not implemented", "unsupported", "only supported")):
            raise Skip(str(error).splitlines()[0]) from None
        raise


def fft(bed: CheckContext) -> None:
    """A Fourier transform (cuFFT) against float64."""
    x = bed.random(64, 1000)
    result = bed.torch.view_as_real(bed.torch.fft.rfft(x.to(bed.device)))
    expected = bed.torch.view_as_real(bed.torch.fft.rfft(x.double()))
    bed.compare(result, expected, x.double().abs().sum(dim=1)[:, None, None])


def solve(bed: CheckContext) -> None:
    """A linear system and a Cholesky factor (cuSOLVER), by what is left when they are put in."""
    x = bed.random(SIDE, SIDE)
    a = x @ x.t() + SIDE * bed.torch.eye(SIDE)
    b = bed.random(SIDE, 8, seed=1)
    found = bed.torch.linalg.solve(a.to(bed.device), b.to(bed.device)).cpu().double()
    bed.compare(a.double() @ found, b.double(), a.double().abs() @ found.abs() + b.double().abs())
    factor = bed.torch.linalg.cholesky(a.to(bed.device)).cpu().double()
    bed.compare(factor @ factor.t(), a.double(), factor.abs() @ factor.abs().t())


def randomness(bed: CheckContext) -> None:
    """Random numbers: the same from the same seed, with the mean and spread they should have."""
    count = 1 << 20
    first, second = (_seeded(bed, count) for _ in range(2))
    bed.same(first, second)
    mean, spread = float(first.mean()), float(first.std())
    if abs(mean) > 6 / count**0.5 or abs(spread - 1) > 6 / (2 * count) ** 0.5:
        raise Wrong(f"mean {mean:.4f} and spread {spread:.4f} are not those of a normal distribution")


def _seeded(bed: CheckContext, count: int) -> Any:
    generator = bed.torch.Generator(device=bed.device).manual_seed(7)
    return bed.torch.randn(count, generator=generator, device=bed.device)


def graph(bed: CheckContext) -> None:
    """A CUDA graph, captured once and replayed on other numbers."""
    cuda = bed.torch.cuda
    x = bed.torch.ones(1024, device=bed.device)
    (x * 2 + 1).sum()
    cuda.synchronize()
    recorded = cuda.CUDAGraph()
    with cuda.graph(recorded):
        y = x * 2 + 1
    x.fill_(3.0)
    recorded.replay()
    cuda.synchronize()
    bed.same(y, bed.torch.full((1024,), 7.0))


def compiled(bed: CheckContext) -> None:
    """torch.compile: Triton and a C compiler make a kernel, and it is right."""
    toolchain(bed)
    x = bed.random(1 << 12)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=folder)
        function = bed.torch.compile(_curve)
        bed.compare(function(x.to(bed.device)), _curve(x.double()))


def _curve(x: Any) -> Any:
    return (x.sin() + x.cos() * 2).tanh()


def toolchain(bed: CheckContext) -> None:
    """Say why torch.compile cannot work here, where something that it needs is not there."""
    if not hasattr(bed.torch, "compile"):
        raise Skip("torch 2.0 brought torch.compile")
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl")):
        raise Skip("torch.compile needs a C compiler, and there is none (cc, gcc, clang)")
    if bed.device == "cpu" and not any(shutil.which(name) for name in ("c++", "g++", "clang++", "cl")):
        raise Skip("torch.compile needs a C++ compiler on the CPU, and there is none (c++, g++, clang++)")
    if bed.device == "cuda":
        _triton()


def _triton() -> None:
    if importlib.util.find_spec("triton") is None:
        raise Skip("torch.compile needs triton, which is not installed")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise Skip("torch.compile needs Python's headers (Python.h), and they are not there")


def companion(name: str, use: Callable[[CheckContext, Any], None], bed: CheckContext) -> str:
    """A package built beside torch loads with it, and runs where it has kernels."""
    if importlib.util.find_spec(name) is None:
        raise Skip(f"{name} is not installed")
    module = importlib.import_module(name)
    use(bed, module)
    return str(getattr(module, "__version__", ""))


def _nms(bed: CheckContext, torchvision: Any) -> None:
    boxes = bed.torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]])
    scores = bed.torch.tensor([0.9, 0.8, 0.7])
    kept = torchvision.ops.nms(boxes.to(bed.device), scores.to(bed.device), 0.5)
    bed.same(kept, bed.torch.tensor([0, 2]))


def _loaded(_bed: CheckContext, _module: Any) -> None:
    """Importing it was the check."""


CHECKS = (
    Check("attention-math", partial(attention, "math"), tolerance("float16", LENGTH)),
    Check("attention-flash", partial(attention, "flash"), tolerance("float16", LENGTH), "cuda"),
    Check("attention-efficient", partial(attention, "efficient"), tolerance("float16", LENGTH), "cuda"),
    Check("attention-cudnn", partial(attention, "cudnn"), tolerance("float16", LENGTH), "cuda"),
    Check("matmul-fp8", fp8, tolerance("bfloat16", SIDE), "cuda"),
    Check("sparse-2:4", sparse, tolerance("float16", SIDE), "cuda"),
    Check("fft", fft, tolerance("float32", 1000)),
    Check("linear-algebra", solve, tolerance("float32", SIDE)),
    Check("random-numbers", randomness),
    Check("cuda-graph", graph, where="cuda"),
    Check("compile", compiled, tolerance("float32", 4)),
    Check("torchvision", partial(companion, "torchvision", _nms)),
    Check("torchaudio", partial(companion, "torchaudio", _loaded)),
    Check("xformers", partial(companion, "xformers", _loaded)),
    Check("triton", partial(companion, "triton", _loaded), where="cuda"),
)
