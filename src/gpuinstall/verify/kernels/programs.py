"""One small operation of each package that carries GPU code of its own, against an answer that torch or the CPU gives.

A package that the table does not know is imported, and so is one that has nothing to run on a device.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from ctypes.util import find_library
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from .context import Check, CheckContext, Skip, Wrong, runs_on, tolerance
from .deep import attended_exactly, demand_headers

BATCH, LENGTH, HEADS, WIDTH = 2, 128, 4, 64
SIDE = 64
# What a package says that cannot be imported where it is given no GPU.
GPU_WANTED = (
    "libcuda.so.1",
    "nvcuda.dll",
    "NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device",
)


class Program(NamedTuple):
    """One row of the table: the module that is imported, and what is done with it.

    ``limit`` is the greatest error allowed, ``where`` the kinds of device that ``run`` has a meaning on.
    """

    module: str
    operation: str
    run: Callable[[CheckContext, Any], None]
    limit: float | None = None
    where: str = "cuda"

    @property
    def package(self) -> str:
        """The name that it is installed by."""
        return self.module.replace("_", "-")

    @property
    def check(self) -> str:
        """The name of its check."""
        return f"{self.package}-{self.operation}"


def program_check(module: str, device: str, script: str | None = None) -> Check:
    """Give the check of a module on a kind of device: its operation (``script`` is its row as JSON), or its import."""
    told = json.loads(script or "{}")
    run = partial(_scripted, told.get("run", ""))
    rows = (
        [Program(module, told["operation"], run, told.get("limit"), told["where"])]
        if told
        else PROGRAMS
    )
    known = next((row for row in rows if row.module == module and runs_on(row.where, device)), None)
    row = known or Program(module, "import", lambda *_: None)
    return Check(row.check, partial(_proven, row), row.limit, row.where)


def _proven(row: Program, context: CheckContext) -> str:
    module = imported(row.module, context)
    row.run(context, module)
    return str(getattr(module, "__version__", ""))


def imported(name: str, context: CheckContext) -> Any:
    """Import a module; skip where all that it lacks is a GPU, or FFmpeg."""
    try:
        return import_module(name)
    except Exception as error:
        if not context.on_gpu and any(sign in str(error) for sign in GPU_WANTED):
            raise Skip(
                f"{name} can be imported only on a machine with a GPU: {str(error).splitlines()[0]}"
            ) from None
        if "FFmpeg" in str(error):
            _demand_ffmpeg()
        raise


def _demand_ffmpeg() -> None:
    if find_library("avutil") is None:
        raise Skip("torchcodec requires FFmpeg's libraries (libavutil and others); not found")


def _scripted(script: str, context: CheckContext, module: Any) -> None:
    """Run an operation of ``libraries.toml``."""
    tools = {
        "product": partial(_product, context),
        "attend": partial(_attend, context),
        "Skip": Skip,
        "Wrong": Wrong,
    }
    exec(script, {"context": context, "torch": context.torch, "module": module, **tools})  # noqa: S102  our own


def _product(context: CheckContext, multiply: Callable[[Any, Any], Any]) -> None:
    """Compare a product of arrays with float64."""
    a, b = (context.random(SIDE, SIDE, seed=seed) for seed in range(2))
    result = context.torch.tensor(multiply(a.numpy(), b.numpy()).tolist())
    context.compare(result, a.double() @ b.double(), a.double().abs() @ b.double().abs())


def boxes(context: CheckContext, torchvision: Any) -> None:
    """Which of three boxes remain after non-maximum suppression."""
    corners = context.torch.tensor(
        [[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 10.0, 10.0], [20.0, 20.0, 30.0, 30.0]]
    )
    scores = context.torch.tensor([0.9, 0.8, 0.7])
    kept = torchvision.ops.nms(corners.to(context.device), scores.to(context.device), 0.5)
    context.same(kept, context.torch.tensor([0, 2]))


def filtered(context: CheckContext, _torchaudio: Any) -> None:
    """A recursive filter over a wave against the same recursion in float64."""
    wave, poles, zeros = context.random(SIDE), (1.0, -0.5, 0.25), (0.5, 0.25, 0.125)
    lfilter = import_module("torchaudio.functional").lfilter
    factors = (context.torch.tensor(each, device=context.device) for each in (poles, zeros))
    result = lfilter(wave.to(context.device), *factors, clamp=False)
    expected = context.torch.tensor(
        _recursion(wave.double().tolist(), poles, zeros), dtype=context.torch.float64
    )
    context.compare(result, expected, wave.double().abs().sum())


def _recursion(
    wave: list[float], poles: tuple[float, ...], zeros: tuple[float, ...]
) -> list[float]:
    found: list[float] = []
    for now in range(len(wave)):
        entering = sum(
            factor * wave[now - back] for back, factor in enumerate(zeros) if back <= now
        )
        returning = sum(
            factor * found[now - back] for back, factor in enumerate(poles) if 0 < back <= now
        )
        found.append(entering - returning)
    return found


def packed_attention(context: CheckContext, xformers: Any) -> None:
    """Attention by the best of its kernels for the card against float64."""
    attend = import_module(f"{xformers.__name__}.ops").memory_efficient_attention
    try:
        _attend(context, attend)
    except NotImplementedError:
        if context.on_gpu:
            raise
        raise Skip("xformers has no attention for the CPU") from None


def flash_attention(context: CheckContext, flash_attn: Any) -> None:
    """Attention and its gradients, in two shapes, against float64."""
    if context.below(8, 0):
        raise Skip("flash-attn needs compute capability 8.0")
    derive = context.torch.autograd.grad
    for length, width in ((LENGTH, WIDTH), (LENGTH + 1, WIDTH // 2)):
        shape = (BATCH, length, HEADS, width)
        *inputs, slope = (context.random(*shape, dtype="float16", seed=seed) for seed in range(4))
        here = [tensor.to(context.device).requires_grad_() for tensor in inputs]
        exact = [tensor.double().transpose(1, 2).requires_grad_() for tensor in inputs]
        result, expected = flash_attn.flash_attn_func(*here), attended_exactly(context, *exact)
        results = (result, *derive(result, here, slope.to(context.device)))
        exactly = (expected, *derive(expected, exact, slope.double().transpose(1, 2)))
        for number, one in enumerate(results):
            magnitude = exactly[number].detach().abs().max()
            context.compare(one.detach().transpose(1, 2), exactly[number].detach(), magnitude)


def _attend(context: CheckContext, attend: Callable[..., Any]) -> None:
    q, k, v = (
        context.random(BATCH, LENGTH, HEADS, WIDTH, dtype="float16", seed=seed) for seed in range(3)
    )
    result = attend(*(tensor.to(context.device) for tensor in (q, k, v)))
    expected = attended_exactly(context, *(tensor.transpose(1, 2) for tensor in (q, k, v)))
    context.compare(result.transpose(1, 2), expected, v.double().abs().max())


def quantized(context: CheckContext, bitsandbytes: Any) -> None:
    """Numbers in eight bits, block by block, and back, relative to the greatest; and a product of such, exactly."""
    x = context.random(SIDE * SIDE)
    try:
        packed = bitsandbytes.functional.quantize_blockwise(x.to(context.device))
        result = bitsandbytes.functional.dequantize_blockwise(*packed)
    except NotImplementedError as error:
        if context.on_gpu:
            raise
        raise Skip(
            f"this bitsandbytes has no code for the CPU: {str(error).splitlines()[0]}"
        ) from None
    context.compare(result, x.double(), x.double().abs().max())
    if multiply := getattr(bitsandbytes.functional, "int8_linear_matmul", None):
        a, b = ((one.reshape(SIDE, SIDE) * 30).to(context.torch.int8) for one in (x, x.flip(0)))
        context.same(multiply(a.to(context.device), b.to(context.device)), a.int() @ b.int().t())


def quantized_weights(context: CheckContext, _torchao: Any) -> None:
    """A product with weights in eight bits, relative to the greatest weight."""
    quantization = import_module("torchao.quantization")
    if not hasattr(quantization, "Int8WeightOnlyConfig"):
        raise Skip("torchao 0.8 brought the configuration Int8WeightOnlyConfig")
    layer = context.torch.nn.Linear(SIDE, SIDE, bias=False)
    weights = context.random(SIDE, SIDE)
    layer.weight.data = weights.clone()
    layer = layer.to(context.device)
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig())
    with context.torch.no_grad():
        result = layer(context.torch.eye(SIDE, device=context.device))
    context.compare(result, weights.double().t(), weights.double().abs().max())


def triton_kernel(context: CheckContext, _triton: Any) -> None:
    """A kernel that is compiled here, against float64."""
    if context.below(7, 0):
        raise Skip("triton needs compute capability 7.0")
    demand_headers("triton")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        curve = import_module(f"{__package__}.triton_kernel")
        x = context.random(curve.BLOCK)
        result = context.torch.empty(curve.BLOCK, device=context.device)
        curve.kernel[(1,)](x.to(context.device), result)
        context.compare(result, x.double() * x.double() + 1, x.double() * x.double() + 1)


def sound(context: CheckContext, torchcodec: Any) -> None:
    """A wave written as a WAV file and read again (on the CPU)."""
    _demand_ffmpeg()
    encoders, decoders = (
        import_module(f"{torchcodec.__name__}.{name}") for name in ("encoders", "decoders")
    )
    wave = context.torch.linspace(-0.9, 0.9, 1600)[None]
    written = encoders.AudioEncoder(wave, sample_rate=16000).to_tensor("wav")
    context.compare(decoders.AudioDecoder(written).get_all_samples().data, wave.double())


def normalized(context: CheckContext, vllm: Any) -> None:
    """Its root-mean-square norm against float64."""
    x, weight = (
        context.random(BATCH, SIDE * 4, dtype="float16"),
        context.random(SIDE * 4, dtype="float16", seed=1),
    )
    on_device = x.to(context.device)
    result = context.torch.empty_like(on_device)
    import_module(f"{vllm.__name__}._custom_ops").rms_norm(
        result, on_device, weight.to(context.device), 1e-6
    )
    scale = (x.double().pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt()
    context.compare(
        result, x.double() / scale * weight.double(), weight.double().abs() * x.double().abs().max()
    )


EIGHT_BITS = 2.0**-6

PROGRAMS = (
    Program("torchvision", "nms", boxes, where="cuda cpu"),
    Program("torchaudio", "filter", filtered, tolerance("float32", SIDE), "cuda cpu"),
    Program("torchcodec", "sound", sound, 2.0**-14, "gpu cpu"),
    Program("torchao", "quantize", quantized_weights, EIGHT_BITS, "cuda cpu"),
    Program("bitsandbytes", "quantize", quantized, EIGHT_BITS, "cuda cpu"),
    Program("xformers", "attention", packed_attention, tolerance("float16", LENGTH)),
    Program("flash_attn", "attention", flash_attention, tolerance("float16", LENGTH, margin=4)),
    Program("vllm", "norm", normalized, tolerance("float16", SIDE * 4)),
    Program("triton", "kernel", triton_kernel, tolerance("float32"), "gpu"),
)
