"""The deep checks: attention and the compiler, which take seconds."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from .context import Check, CheckContext, Skip, supported, tolerance

HEADS, LENGTH, WIDTH = 4, 128, 64
NO_KERNEL = (
    "no available kernel",
    "no execution plans support",
    "no valid engine configs",
)
"""What torch and cuDNN say of attention that they have no kernel for: pytorch/pytorch#140930."""


def attention(context: CheckContext) -> None:
    """scaled_dot_product_attention, by the back end that torch takes for the card, against float64."""
    shape = (2, HEADS, LENGTH, WIDTH)
    q, k, v = (context.random(*shape, dtype="float16", seed=seed) for seed in range(3))
    inputs = list(map(context.to_device, (q, k, v)))
    attend = context.torch.nn.functional.scaled_dot_product_attention
    result = supported(lambda: attend(*inputs), *NO_KERNEL)
    context.compare(
        result,
        attended_exactly(context, q, k, v),
        v.double().abs().max(),
    )


def attended_exactly(
    context: CheckContext,
    q: Any,
    k: Any,
    v: Any,
) -> Any:
    """Attend in float64 on the CPU; the heads stand before the length."""
    scores = q.double() @ k.double().transpose(-2, -1) / q.shape[-1] ** 0.5
    return context.torch.softmax(scores, dim=-1) @ v.double()


def compiled(context: CheckContext) -> None:
    """torch.compile: Triton and a C compiler make a kernel, and it is right."""
    toolchain(context)
    x = context.random(1 << 12)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(TORCHINDUCTOR_CACHE_DIR=folder, TRITON_CACHE_DIR=folder)
        function = context.torch.compile(_curve)
        context.compare(function(context.to_device(x)), _curve(x.double()))


def _curve(x: Any) -> Any:
    return (x.sin() + x.cos() * 2).tanh()


def toolchain(context: CheckContext) -> None:
    """Raise Skip if something that torch.compile needs is not there."""
    if not hasattr(context.torch, "compile"):
        raise Skip("torch 2.0 brought torch.compile")
    _demand_compiler("torch.compile")
    if context.device == "cpu" and not _has_program("c++", "g++", "clang++", "cl"):
        raise Skip(
            "torch.compile requires a C++ compiler on the CPU; none found (c++, g++, clang++)"
        )
    if context.on_gpu:
        if importlib.util.find_spec("triton") is None:
            raise Skip("torch.compile requires triton, which is not installed")
        demand_headers("torch.compile")


def demand_headers(user: str) -> None:
    """Raise Skip if Triton cannot build its launcher: no C compiler, or none of Python's headers."""
    _demand_compiler(user)
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise Skip(f"{user} requires Python's headers (Python.h); not found")


def _demand_compiler(user: str) -> None:
    if not _has_program("cc", "gcc", "clang", "cl"):
        raise Skip(f"{user} requires a C compiler; none found (cc, gcc, clang)")


def _has_program(*names: str) -> bool:
    return any(map(shutil.which, names))


CHECKS = (
    Check("attention", attention, tolerance("float16", LENGTH), where="cuda"),
    Check("compile", compiled, tolerance("float32", 4), cause="F68"),
)
