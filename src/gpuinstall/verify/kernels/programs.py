"""Checks of packages with GPU code, with one small operation per package.

The result of each operation is compared with a result of torch or the CPU. A package
without an operation is only imported.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from .context import (
    Check,
    CheckContext,
    Skip,
    Wrong,
    applies_to,
    compute_tolerance,
    first_line,
)
from .deep import require_headers
from .quick import LENGTH, compare_attention

BATCH = 2
SIDE = 64
# Messages of packages whose import requires a GPU.
GPU_REQUIRED = (
    "libcuda.so.1",
    "nvcuda.dll",
    "NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device",
)


def create_program_check(module: str, device: str) -> Check:
    """Return the check of a module on a device; by default, its import."""
    rows = {row.module: row for row in PROGRAMS}
    check = rows.get(module) or _create_check(
        module,
        "import",
        check_import,
        where="",
    )
    if not applies_to(check.where, device):
        # Underscores in module names are hyphens in package names.
        name = f"{module.replace('_', '-')}-import"
        check = check._replace(name=name, run=check_import, limit=None)
    return check._replace(run=partial(_run_program, check))


def _run_program(check: Check, context: CheckContext) -> str:
    module = import_program(check.module, context)
    check.run(context, module)
    return str(getattr(module, "__version__", ""))


def import_program(name: str, context: CheckContext) -> Any:
    """Import a module, or raise Skip if a GPU or FFmpeg is missing."""
    try:
        return import_module(name)
    except Exception as error:
        text = str(error)
        if not context.on_gpu and any(sign in text for sign in GPU_REQUIRED):
            message = f"{name} can be imported only on a machine with a GPU: {first_line(error)}"
            raise Skip(message) from None
        from ctypes.util import find_library

        if "FFmpeg" in text and find_library("avutil") is None:
            message = "torchcodec requires FFmpeg's libraries (libavutil and others); not found"
            raise Skip(message) from None
        raise


def check_import(_context: CheckContext, _module: Any) -> None:
    """Check that a module can be imported with this torch and CUDA."""


def check_non_maximum_suppression(context: CheckContext, torchvision: Any) -> None:
    """Check the boxes that remain after non-maximum suppression."""
    tensor = context.torch.tensor
    corners = tensor(
        [
            [0.0, 0.0, 10.0, 10.0],
            [1.0, 1.0, 10.0, 10.0],
            [20.0, 20.0, 30.0, 30.0],
        ]
    )
    scores = tensor([0.9, 0.8, 0.7])
    inputs = map(context.to_device, (corners, scores))
    remaining = torchvision.ops.nms(*inputs, 0.5)
    context.compare_exactly(remaining, tensor([0, 2]))


def check_xformers_attention(context: CheckContext, xformers: Any) -> None:
    """Check attention with xformers' best kernel against float64."""
    attend = import_module(f"{xformers.__name__}.ops").memory_efficient_attention
    compare_attention(context, attend, heads_first=False)


def check_flash_attention(context: CheckContext, flash_attn: Any) -> None:
    """Check FlashAttention's result against float64."""
    context.require_capability(8, 0, "flash-attn")
    compare_attention(context, flash_attn.flash_attn_func, heads_first=False)


def check_quantization(context: CheckContext, bitsandbytes: Any) -> None:
    """Check the error of 8-bit quantization relative to the maximum."""
    functional = bitsandbytes.functional
    x = context.random(SIDE * SIDE)
    try:
        packed = functional.quantize_blockwise(context.to_device(x))
        result = functional.dequantize_blockwise(*packed)
    except NotImplementedError as error:
        if context.on_gpu:
            raise
        message = (
            f"this build of bitsandbytes has no code for the CPU: {first_line(error)}"
        )
        raise Skip(message) from None
    exact = x.double()
    context.compare(result, exact, exact.abs().max())


def check_triton_kernel(context: CheckContext, _triton: Any) -> None:
    """Check a Triton kernel, compiled on this machine, against float64."""
    context.require_capability(7, 0, "triton")
    require_headers("triton")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        square = import_module(f"{__package__}.triton_kernel")
        x = context.random(square.BLOCK)
        result = context.torch.empty(square.BLOCK, device=context.device)
        square.kernel[(1,)](context.to_device(x), result)
        expected = x.double() ** 2 + 1
        context.compare(result, expected, expected)


def check_rms_norm(context: CheckContext, vllm: Any) -> None:
    """Check vLLM's root-mean-square norm against float64."""
    operations = import_module(f"{vllm.__name__}._custom_ops")
    x = context.random(BATCH, SIDE * 4, dtype="float16")
    weight = context.random(SIDE * 4, dtype="float16", seed=1)
    on_device = context.to_device(x)
    result = context.torch.empty_like(on_device)
    operations.rms_norm(result, on_device, context.to_device(weight), 1e-6)
    x = x.double()
    weight = weight.double()
    scale = (x.pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt()
    context.compare(result, x / scale * weight, weight.abs() * x.abs().max())


def check_onnx_product(context: CheckContext, onnxruntime: Any) -> None:
    """Check a matrix product with the device's provider against float64."""
    provider = "CUDAExecutionProvider" if context.on_gpu else "CPUExecutionProvider"
    settings = onnxruntime.SessionOptions()
    if context.on_gpu:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = onnxruntime.InferenceSession(ONNX_PRODUCT, settings, providers=[provider])
    if provider not in session.get_providers():
        raise Wrong(f"{provider} cannot be loaded; the CPU would be used instead")
    a = context.random(SIDE, SIDE)
    b = context.random(SIDE, SIDE, seed=1)
    (product,) = session.run(None, {"a": a.numpy(), "b": b.numpy()})
    context.compare_product(context.torch.tensor(product.tolist()), a, b)


def require_gpu(
    count: Callable[[Any], Any],
    context: CheckContext,
    module: Any,
) -> None:
    """Check that a library finds the GPU instead of running on the CPU."""
    if context.on_gpu and not count(module):
        raise Wrong(f"{module.__name__} finds no GPU and would run on the CPU")


def check_eight_bit_attention(context: CheckContext, sageattention: Any) -> None:
    """Check attention with 8-bit queries and keys against float64."""
    context.require_capability(8, 0, "sageattention")
    attend = partial(sageattention.sageattn, tensor_layout="NHD")
    compare_attention(context, attend, heads_first=False)


EIGHT_BITS = 2.0**-6
TF32 = compute_tolerance("float16")
"""ONNX Runtime rounds to TensorFloat-32, which is as precise as float16."""
OTHER_TORCH = "F56"
"""The usual cause if torch works: the package needs another torch."""
# c = MatMul(a, b) of 64 × 64 float32, opset 13.
ONNX_PRODUCT = bytes.fromhex(
    "0808428200100d3af6000a95000a8100610a810062128100632286004d61744d756c12870070726f647563745a99000a8100611292000a"
    "8f000801128a000a820008400a820008405a99000a8100621292000a8f000801128a000a820008400a820008406299000a810063129200"
    "0a8f000801128a000a820008400a82000840"
)


def _create_check(
    module: str,
    operation: str,
    run: Callable[..., None],
    *,
    limit: float | None = None,
    where: str = "cuda",
    package: str = "",
    cause: str = OTHER_TORCH,
) -> Check:
    name = module.replace("_", "-")
    return Check(
        f"{name}-{operation}",
        run,
        limit,
        where,
        cause,
        package or name,
        module,
    )


ANYWHERE = "cuda cpu"
PROGRAMS: tuple[Check, ...] = (
    _create_check(
        "torchvision",
        "nms",
        check_non_maximum_suppression,
        where=ANYWHERE,
        cause="F47",
    ),
    _create_check(
        "torchaudio",
        "import",
        check_import,
        where="",
        cause="F48",
    ),
    _create_check(
        "bitsandbytes",
        "quantize",
        check_quantization,
        limit=EIGHT_BITS,
        where=ANYWHERE,
        cause="F71",
    ),
    _create_check(
        "xformers",
        "attention",
        check_xformers_attention,
        limit=compute_tolerance("float16", LENGTH),
    ),
    _create_check(
        "flash_attn",
        "attention",
        check_flash_attention,
        limit=compute_tolerance("float16", LENGTH, margin=4),
    ),
    _create_check(
        "vllm",
        "norm",
        check_rms_norm,
        limit=compute_tolerance("float16", SIDE * 4),
    ),
    _create_check(
        "triton",
        "kernel",
        check_triton_kernel,
        limit=compute_tolerance("float32"),
        where="gpu",
        cause="F68",
    ),
    _create_check(
        "sageattention",
        "attention",
        check_eight_bit_attention,
        limit=4 * EIGHT_BITS,
    ),
    _create_check(
        "onnxruntime",
        "product",
        check_onnx_product,
        limit=TF32,
        where=ANYWHERE,
        package="onnxruntime-gpu",
    ),
    _create_check(
        "tensorflow",
        "device",
        partial(require_gpu, lambda module: module.config.list_physical_devices("GPU")),
    ),
    _create_check(
        "ctranslate2",
        "device",
        partial(require_gpu, lambda module: module.get_cuda_device_count()),
    ),
)
