"""The deep checks: attention, low precision, sparsity, solvers, graphs, and the compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from .context import Check, CheckContext, Skip, Wrong, supported, tolerance

HEADS, LENGTH, WIDTH = 4, 128, 64
SIDE = 256
NO_KERNEL = ("no available kernel", "no execution plans support", "no valid engine configs")
"""What torch and cuDNN say of attention that they have no kernel for: pytorch/pytorch#140930."""
NOT_HERE = (
    "not support",
    "not implemented",
    "unsupported",
    "only supported",
    "supported only",
    "architecture mismatch",
)
"""What libraries say of a product that they do not have for a GPU: pytorch/pytorch#132009, #132928."""


def attention(backend: str, context: CheckContext) -> None:
    """scaled_dot_product_attention by one back end against float64."""
    if not hasattr(context.torch.nn.functional, "scaled_dot_product_attention"):
        raise Skip("torch 2.0 brought scaled_dot_product_attention")
    least = {"flash": (8, 0), "cudnn": (8, 0), "efficient": (5, 0)}.get(backend)
    if least and context.below(*least):
        raise Skip(f"needs compute capability {least[0]}.{least[1]}")
    dtype = "float16" if context.on_gpu else "float32"
    q, k, v = (context.random(2, HEADS, LENGTH, WIDTH, dtype=dtype, seed=seed) for seed in range(3))
    result = _attended(context, backend, *(tensor.to(context.device) for tensor in (q, k, v)))
    context.compare(result, attended_exactly(context, q, k, v), v.double().abs().max())


def _attended(context: CheckContext, backend: str, q: Any, k: Any, v: Any) -> Any:
    attend = context.torch.nn.functional.scaled_dot_product_attention
    with _only(context.torch, backend):
        return supported(lambda: attend(q, k, v), *NO_KERNEL)


def _only(torch: Any, backend: str) -> Any:
    names = {
        "flash": "FLASH_ATTENTION",
        "efficient": "EFFICIENT_ATTENTION",
        "cudnn": "CUDNN_ATTENTION",
        "math": "MATH",
    }
    attention = getattr(torch.nn, "attention", None)
    if attention is not None and hasattr(attention.SDPBackend, names[backend]):
        return attention.sdpa_kernel(getattr(attention.SDPBackend, names[backend]))
    if backend == "cudnn":
        raise Skip("this torch has no such back end")
    chosen = {"flash": "enable_flash", "efficient": "enable_mem_efficient", "math": "enable_math"}
    return torch.backends.cuda.sdp_kernel(
        **{option: name == backend for name, option in chosen.items()}
    )


def attended_exactly(context: CheckContext, q: Any, k: Any, v: Any) -> Any:
    """Attend in float64 on the CPU; the heads stand before the length."""
    scores = q.double() @ k.double().transpose(-2, -1) / q.shape[-1] ** 0.5
    return context.torch.softmax(scores, dim=-1) @ v.double()


def fp8(context: CheckContext) -> None:
    """A matrix product in FP8 (e4m3) against float64."""
    if context.below(8, 9):
        raise Skip("FP8 needs compute capability 8.9")
    if not hasattr(context.torch, "_scaled_mm"):
        raise Skip("torch 2.1 brought FP8 products")
    a, b = (context.random(SIDE, SIDE, dtype="float8_e4m3fn", seed=seed) for seed in range(2))
    scale = context.torch.ones((), device=context.device)
    multiply = context.torch._scaled_mm  # noqa: SLF001  torch has no public name for it
    options = {"scale_a": scale, "scale_b": scale, "out_dtype": context.torch.bfloat16}
    result = supported(
        lambda: multiply(a.to(context.device), b.to(context.device).t(), **options), *NOT_HERE
    )
    a, b = a.double(), b.double().t()
    context.compare(result[0] if isinstance(result, tuple) else result, a @ b, a.abs() @ b.abs())


def sparse(context: CheckContext) -> None:
    """A product with a 2:4 sparse matrix against float64."""
    make = getattr(context.torch.sparse, "to_sparse_semi_structured", None)
    if make is None or context.below(8, 0):
        raise Skip("2:4 sparsity needs torch 2.1 and compute capability 8.0")
    mask = context.torch.tensor([0.0, 0.0, 1.0, 1.0]).repeat(SIDE, SIDE // 4)
    w = (context.random(SIDE, SIDE, dtype="float16") * mask).half()
    x = context.random(SIDE, SIDE, dtype="float16", seed=1)
    result = supported(lambda: make(w.to(context.device)) @ x.to(context.device), *NOT_HERE)
    context.compare(result, w.double() @ x.double(), w.double().abs() @ x.double().abs())


def fft(context: CheckContext) -> None:
    """A Fourier transform (cuFFT) against float64."""
    x = context.random(64, 1000)
    result = context.torch.view_as_real(context.torch.fft.rfft(x.to(context.device)))
    expected = context.torch.view_as_real(context.torch.fft.rfft(x.double()))
    context.compare(result, expected, x.double().abs().sum(dim=1)[:, None, None])


def solve(context: CheckContext) -> None:
    """A linear system and a Cholesky factor (cuSOLVER), by what is left when they are put in."""
    x = context.random(SIDE, SIDE)
    a = x @ x.t() + SIDE * context.torch.eye(SIDE)
    b = context.random(SIDE, 8, seed=1)
    solution = context.torch.linalg.solve(a.to(context.device), b.to(context.device)).cpu().double()
    context.compare(
        a.double() @ solution, b.double(), a.double().abs() @ solution.abs() + b.double().abs()
    )
    factor = context.torch.linalg.cholesky(a.to(context.device)).cpu().double()
    context.compare(factor @ factor.t(), a.double(), factor.abs() @ factor.abs().t())


def randomness(context: CheckContext) -> None:
    """Random numbers: the same from the same seed, with the mean and spread they should have."""
    count = 1 << 20
    generators = (context.torch.Generator(device=context.device).manual_seed(7) for _ in range(2))
    first, second = (
        context.torch.randn(count, generator=seeded, device=context.device) for seeded in generators
    )
    context.same(first, second)
    mean, spread = float(first.mean()), float(first.std())
    if abs(mean) > 6 / count**0.5 or abs(spread - 1) > 6 / (2 * count) ** 0.5:
        raise Wrong(
            f"mean {mean:.4f} and spread {spread:.4f} are not those of a normal distribution"
        )


def graph(context: CheckContext) -> None:
    """A CUDA graph, captured once and replayed on other numbers."""
    cuda = context.torch.cuda
    x = context.torch.ones(1024, device=context.device)
    (x * 2 + 1).sum()
    cuda.synchronize()
    recorded = cuda.CUDAGraph()
    with cuda.graph(recorded):
        y = x * 2 + 1
    x.fill_(3.0)
    recorded.replay()
    cuda.synchronize()
    context.same(y, context.torch.full((1024,), 7.0))


def compiled(context: CheckContext) -> None:
    """torch.compile: Triton and a C compiler make a kernel, and it is right."""
    toolchain(context)
    x = context.random(1 << 12)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=folder)
        function = context.torch.compile(_curve)
        context.compare(function(x.to(context.device)), _curve(x.double()))


def _curve(x: Any) -> Any:
    return (x.sin() + x.cos() * 2).tanh()


def toolchain(context: CheckContext) -> None:
    """Say why torch.compile cannot work here, where something that it needs is not there."""
    if not hasattr(context.torch, "compile"):
        raise Skip("torch 2.0 brought torch.compile")
    _demand_compiler("torch.compile")
    if context.device == "cpu" and not any(
        shutil.which(name) for name in ("c++", "g++", "clang++", "cl")
    ):
        raise Skip(
            "torch.compile requires a C++ compiler on the CPU; none found (c++, g++, clang++)"
        )
    if context.on_gpu:
        if importlib.util.find_spec("triton") is None:
            raise Skip("torch.compile requires triton, which is not installed")
        demand_headers("torch.compile")


def demand_headers(who: str) -> None:
    """Skip where Triton cannot build its launcher: no C compiler, or none of Python's headers."""
    _demand_compiler(who)
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise Skip(f"{who} requires Python's headers (Python.h); not found")


def _demand_compiler(who: str) -> None:
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang", "cl")):
        raise Skip(f"{who} requires a C compiler; none found (cc, gcc, clang)")


CHECKS = (
    Check("attention-math", partial(attention, "math"), tolerance("float16", LENGTH)),
    Check("attention-flash", partial(attention, "flash"), tolerance("float16", LENGTH), "cuda"),
    Check(
        "attention-efficient", partial(attention, "efficient"), tolerance("float16", LENGTH), "cuda"
    ),
    Check("attention-cudnn", partial(attention, "cudnn"), tolerance("float16", LENGTH), "cuda"),
    Check("matmul-fp8", fp8, tolerance("bfloat16", SIDE), "cuda"),
    Check("sparse-2:4", sparse, tolerance("float16", SIDE), "cuda"),
    Check("fft", fft, tolerance("float32", 1000)),
    Check("linear-algebra", solve, tolerance("float32", SIDE)),
    Check("random-numbers", randomness),
    Check("cuda-graph", graph, where="cuda"),
    Check("compile", compiled, tolerance("float32", 4)),
)
