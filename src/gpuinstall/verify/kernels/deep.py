"""Deep checks: FP8, Fourier transforms, solvers, graphs, and the compiler."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from .context import Check, CheckContext, Skip, call_if_supported, compute_tolerance

SIDE = 256
UNSUPPORTED = (
    "not support",
    "not implemented",
    "unsupported",
    "only supported",
    "supported only",
    "architecture mismatch",
    "not compiled for this platform",
)
"""Messages about unsupported products: pytorch/pytorch#132009, #132928."""


def check_fp8(context: CheckContext) -> None:
    """Check an FP8 (e4m3) matrix product against float64."""
    context.require_capability(8, 9, "FP8")
    if not hasattr(context.torch, "_scaled_mm"):
        raise Skip("FP8 products require torch 2.1")
    dtype = _fp8_type(context)
    a = context.random(SIDE, SIDE, dtype=dtype)
    b = context.random(SIDE, SIDE, dtype=dtype, seed=1)
    scale = context.torch.ones((), device=context.device)
    multiply = partial(
        context.torch._scaled_mm,  # noqa: SLF001  torch has no public name for it
        context.to_device(a),
        context.to_device(b).t(),
        scale_a=scale,
        scale_b=scale,
        out_dtype=context.torch.bfloat16,
    )
    result = call_if_supported(multiply, *UNSUPPORTED)
    # torch 2.4 and older return a tuple with the result and its maximum.
    product = result[0] if isinstance(result, tuple) else result
    context.compare_product(product, a, b.double().t())


def _fp8_type(context: CheckContext) -> str:
    """Return the FP8 type of a GPU. AMD's MI300 has its own type."""
    if context.torch.version.hip:
        properties = context.torch.cuda.get_device_properties(0)
        if getattr(properties, "gcnArchName", "").startswith("gfx94"):
            return "float8_e4m3fnuz"
    return "float8_e4m3fn"


def check_bessel(context: CheckContext) -> None:
    """Check a Bessel function, which NVRTC compiles, against float64."""
    special = context.torch.special.bessel_j0
    # Compile again, because the user's cache may contain the kernel of an earlier run.
    os.environ["USE_PYTORCH_KERNEL_CACHE"] = "0"
    x = context.random(1 << 12)
    context.compare(special(context.to_device(x)), special(x.double()))


def check_fft(context: CheckContext) -> None:
    """Check a Fourier transform (cuFFT) against float64."""
    torch = context.torch
    x = context.random(64, 1000)
    exact = x.double()
    context.compare(
        torch.view_as_real(torch.fft.rfft(context.to_device(x))),
        torch.view_as_real(torch.fft.rfft(exact)),
        exact.abs().sum(dim=1)[:, None, None],
    )


def check_solvers(context: CheckContext) -> None:
    """Check residuals of a linear system and a Cholesky factor (cuSOLVER)."""
    linalg = context.torch.linalg
    x = context.random(SIDE, SIDE)
    a = x @ x.t() + SIDE * context.torch.eye(SIDE)
    b = context.random(SIDE, 8, seed=1)
    matrix = context.to_device(a)
    solution = linalg.solve(matrix, context.to_device(b)).cpu().double()
    factor = linalg.cholesky(matrix).cpu().double()
    a = a.double()
    b = b.double()
    context.compare(
        a @ solution,
        b,
        a.abs() @ solution.abs() + b.abs(),
    )
    context.compare_product(a, factor, factor.t())


def check_cuda_graph(context: CheckContext) -> None:
    """Check a CUDA graph that is captured once and replayed on new data."""
    cuda = context.torch.cuda
    x = context.torch.ones(1024, device=context.device)
    # Run once before capture, because the setup of libraries at first use cannot be captured.
    (x * 2 + 1).sum()
    cuda.synchronize()
    recording = cuda.CUDAGraph()
    with cuda.graph(recording):
        y = x * 2 + 1
    x.fill_(3.0)
    recording.replay()
    cuda.synchronize()
    context.compare_exactly(y, context.torch.full((1024,), 7.0))


def check_torch_compile(context: CheckContext) -> None:
    """Check torch.compile (Triton and a C compiler) against float64."""
    context.require_capability(7, 0, "torch.compile")
    require_toolchain(context)
    x = context.random(1 << 12)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=folder)
        function = context.torch.compile(_compute_curve)
        context.compare(function(context.to_device(x)), _compute_curve(x.double()))


def _compute_curve(x: Any) -> Any:
    return (x.sin() + x.cos() * 2).tanh()


def require_toolchain(context: CheckContext) -> None:
    """Raise Skip unless torch.compile, Triton, and a compiler exist."""
    if not hasattr(context.torch, "compile"):
        raise Skip("torch.compile requires torch 2.0")
    if not context.on_gpu:
        _require_compiler("torch.compile", "C++", "c++", "g++", "clang++")
        return
    if importlib.util.find_spec("triton") is None:
        raise Skip("torch.compile requires triton, which is not installed")
    require_headers("torch.compile")


def require_headers(user: str) -> None:
    """Raise Skip if the C compiler or headers for Triton are missing."""
    _require_compiler(user, "C", "cc", "gcc", "clang")
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if not os.path.isfile(headers):
        raise Skip(f"{user} requires Python's headers (Python.h); not found")


def _require_compiler(
    user: str,
    language: str,
    *names: str,
) -> None:
    if not any(map(shutil.which, (*names, "cl"))):
        found = f"none found ({', '.join(names)})"
        raise Skip(f"{user} requires a {language} compiler; {found}")


CHECKS = (
    Check(
        "matmul-fp8",
        check_fp8,
        compute_tolerance("bfloat16", SIDE),
        where="cuda",
    ),
    Check(
        "fft",
        check_fft,
        compute_tolerance("float32", 1000),
        where="gpu cpu",
    ),
    Check(
        "linear-algebra",
        check_solvers,
        compute_tolerance("float32", SIDE),
        where="gpu cpu",
    ),
    # The approximations of Bessel functions are accurate to about seven digits for results up to one.
    Check(
        "nvrtc",
        check_bessel,
        compute_tolerance("float32", 64),
        where="cuda",
        cause="F85",
    ),
    Check(
        "cuda-graph",
        check_cuda_graph,
        where="cuda",
    ),
    Check(
        "compile",
        check_torch_compile,
        compute_tolerance("float32", 4),
        "gpu cpu",
        "F68",
    ),
)
