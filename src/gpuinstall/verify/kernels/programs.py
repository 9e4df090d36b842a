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

BATCH = 2
LENGTH = 128
HEADS = 4
WIDTH = 64
SIDE = 64
# What a package says that cannot be imported without a GPU.
GPU_REQUIRED = (
    "libcuda.so.1",
    "nvcuda.dll",
    "NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device",
)


class Program(NamedTuple):
    """One row of the table."""

    module: str
    """What is imported."""

    operation: str
    run: Callable[[CheckContext, Any], None]
    limit: float | None = None
    """The greatest error allowed."""

    where: str = "cuda"
    """The kinds of device that ``run`` has a meaning on."""

    @property
    def package(self) -> str:
        """The name that it is installed by."""
        return self.module.replace("_", "-")

    @property
    def check(self) -> str:
        """The name of its check."""
        return f"{self.package}-{self.operation}"


def program_check(
    module: str,
    device: str,
    script: str | None = None,
) -> Check:
    """Return the check of a module on a kind of device: its operation, else its import.

    Args:
        script: the row of the module, as JSON; None if ``PROGRAMS`` may have it.
    """
    rows = PROGRAMS
    if script:
        row = json.loads(script)
        run = partial(_run_script, row["run"])
        rows = (
            Program(
                module,
                row["operation"],
                run,
                row.get("limit"),
                row["where"],
            ),
        )
    program = Program(module, "import", lambda *_: None)
    for row in rows:
        if row.module == module and runs_on(row.where, device):
            program = row
    return Check(
        program.check,
        partial(_run, program),
        program.limit,
        program.where,
    )


def _run(program: Program, context: CheckContext) -> str:
    module = imported(program.module, context)
    program.run(context, module)
    return str(getattr(module, "__version__", ""))


def imported(name: str, context: CheckContext) -> Any:
    """Import a module; raise Skip if all that it lacks is a GPU, or FFmpeg."""
    try:
        return import_module(name)
    except Exception as error:
        text = str(error)
        if not context.on_gpu and any(sign in text for sign in GPU_REQUIRED):
            reason = text.splitlines()[0]
            message = f"{name} can be imported only on a machine with a GPU: {reason}"
            raise Skip(message) from None
        if "FFmpeg" in text:
            _demand_ffmpeg()
        raise


def _demand_ffmpeg() -> None:
    if find_library("avutil") is None:
        raise Skip("torchcodec requires FFmpeg's libraries (libavutil and others); not found")


def _run_script(script: str, context: CheckContext, module: Any) -> None:
    """Run an operation of ``libraries.toml``."""
    names = {
        "context": context,
        "torch": context.torch,
        "module": module,
        "product": partial(_product, context),
        "attend": partial(_attend, context),
        "Skip": Skip,
        "Wrong": Wrong,
    }
    exec(script, names)  # noqa: S102  our own


def _product(context: CheckContext, multiply: Callable[[Any, Any], Any]) -> None:
    """Compare a product of arrays with float64."""
    a = context.random(SIDE, SIDE)
    b = context.random(SIDE, SIDE, seed=1)
    result = multiply(a.numpy(), b.numpy())
    context.compare_product(
        context.torch.tensor(result.tolist()),
        a,
        b,
    )


def boxes(context: CheckContext, torchvision: Any) -> None:
    """Which of three boxes remain after non-maximum suppression."""
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
    context.same(remaining, tensor([0, 2]))


def filtered(context: CheckContext, _torchaudio: Any) -> None:
    """A recursive filter over a wave against the same recursion in float64."""
    tensor = context.torch.tensor
    lfilter = import_module("torchaudio.functional").lfilter
    wave = context.random(SIDE)
    poles = (1.0, -0.5, 0.25)
    zeros = (0.5, 0.25, 0.125)
    inputs = map(context.to_device, (wave, tensor(poles), tensor(zeros)))
    result = lfilter(*inputs, clamp=False)
    wave = wave.double()
    expected = _recursion(wave.tolist(), poles, zeros)
    expected = tensor(expected, dtype=context.torch.float64)
    context.compare(result, expected, wave.abs().sum())


def _recursion(
    wave: list[float],
    poles: tuple[float, ...],
    zeros: tuple[float, ...],
) -> list[float]:
    results: list[float] = []
    for now in range(len(wave)):
        result = 0.0
        for back in range(min(now + 1, len(zeros))):
            result += zeros[back] * wave[now - back]
            if back > 0:
                result -= poles[back] * results[now - back]
        results.append(result)
    return results


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
    for shape in ((BATCH, LENGTH, HEADS, WIDTH), (BATCH, LENGTH + 1, HEADS, WIDTH // 2)):
        q, k, v, slope = (context.random(*shape, dtype="float16", seed=seed) for seed in range(4))
        inputs = [context.to_device(tensor).requires_grad_() for tensor in (q, k, v)]
        output = flash_attn.flash_attn_func(*inputs)
        results = _with_gradients(
            context,
            output,
            inputs,
            context.to_device(slope),
        )

        exact = [_heads_first(tensor.double()).requires_grad_() for tensor in (q, k, v)]
        output = attended_exactly(context, *exact)
        expected = _with_gradients(
            context,
            output,
            exact,
            _heads_first(slope.double()),
        )
        for number, result in enumerate(results):
            magnitude = expected[number].abs().max()
            context.compare(
                _heads_first(result),
                expected[number],
                magnitude,
            )


def _with_gradients(
    context: CheckContext,
    output: Any,
    inputs: list[Any],
    slope: Any,
) -> list[Any]:
    """Return an output, and the gradient of each input."""
    gradients = context.torch.autograd.grad(output, inputs, slope)
    return [output.detach(), *gradients]


def _heads_first(tensor: Any) -> Any:
    return tensor.transpose(1, 2)


def _attend(context: CheckContext, attend: Callable[..., Any]) -> None:
    """Compare attention whose heads stand behind the length with float64."""
    shape = (BATCH, LENGTH, HEADS, WIDTH)
    q, k, v = (context.random(*shape, dtype="float16", seed=seed) for seed in range(3))
    result = attend(*map(context.to_device, (q, k, v)))
    expected = attended_exactly(context, *map(_heads_first, (q, k, v)))
    context.compare(
        _heads_first(result),
        expected,
        v.double().abs().max(),
    )


def quantized(context: CheckContext, bitsandbytes: Any) -> None:
    """Numbers in eight bits, block by block, and back, relative to the greatest; and a product of such, exactly."""
    functional = bitsandbytes.functional
    x = context.random(SIDE * SIDE)
    try:
        packed = functional.quantize_blockwise(context.to_device(x))
        result = functional.dequantize_blockwise(*packed)
    except NotImplementedError as error:
        if context.on_gpu:
            raise
        reason = str(error).splitlines()[0]
        raise Skip(f"this bitsandbytes has no code for the CPU: {reason}") from None
    exact = x.double()
    context.compare(result, exact, exact.abs().max())
    if not hasattr(functional, "int8_linear_matmul"):
        return
    integers = (x.reshape(SIDE, SIDE) * 30).to(context.torch.int8)
    reverse = integers.flip(0, 1)
    product = functional.int8_linear_matmul(*map(context.to_device, (integers, reverse)))
    context.same(product, integers.int() @ reverse.int().t())


def quantized_weights(context: CheckContext, _torchao: Any) -> None:
    """A product with weights in eight bits, relative to the greatest weight."""
    torch = context.torch
    quantization = import_module("torchao.quantization")
    if not hasattr(quantization, "Int8WeightOnlyConfig"):
        raise Skip("torchao 0.8 brought the configuration Int8WeightOnlyConfig")
    weights = context.random(SIDE, SIDE)
    layer = torch.nn.Linear(SIDE, SIDE, bias=False)
    layer.weight.data = weights.clone()
    layer = context.to_device(layer)
    quantization.quantize_(layer, quantization.Int8WeightOnlyConfig())
    with torch.no_grad():
        result = layer(torch.eye(SIDE, device=context.device))
    weights = weights.double()
    context.compare(result, weights.t(), weights.abs().max())


def triton_kernel(context: CheckContext, _triton: Any) -> None:
    """A kernel that is compiled here, against float64."""
    if context.below(7, 0):
        raise Skip("triton needs compute capability 7.0")
    demand_headers("triton")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        square = import_module(f"{__package__}.triton_kernel")
        x = context.random(square.BLOCK)
        result = context.torch.empty(square.BLOCK, device=context.device)
        square.kernel[(1,)](context.to_device(x), result)
        expected = x.double() ** 2 + 1
        context.compare(result, expected, expected)


def sound(context: CheckContext, torchcodec: Any) -> None:
    """A wave written as a WAV file and read again (on the CPU)."""
    _demand_ffmpeg()
    encoders = import_module(f"{torchcodec.__name__}.encoders")
    decoders = import_module(f"{torchcodec.__name__}.decoders")
    wave = context.torch.linspace(-0.9, 0.9, 1600)[None]
    file = encoders.AudioEncoder(wave, sample_rate=16000).to_tensor("wav")
    samples = decoders.AudioDecoder(file).get_all_samples()
    context.compare(samples.data, wave.double())


def normalized(context: CheckContext, vllm: Any) -> None:
    """Its root-mean-square norm against float64."""
    operations = import_module(f"{vllm.__name__}._custom_ops")
    x = context.random(BATCH, SIDE * 4, dtype="float16")
    weight = context.random(SIDE * 4, dtype="float16", seed=1)
    on_device = context.to_device(x)
    result = context.torch.empty_like(on_device)
    operations.rms_norm(
        result,
        on_device,
        context.to_device(weight),
        1e-6,
    )
    x = x.double()
    weight = weight.double()
    scale = (x.pow(2).mean(dim=1, keepdim=True) + 1e-6).sqrt()
    context.compare(
        result,
        x / scale * weight,
        weight.abs() * x.abs().max(),
    )


EIGHT_BITS = 2.0**-6

PROGRAMS: tuple[Program, ...] = (
    Program("torchvision", "nms", boxes, where="cuda cpu"),
    Program(
        "torchaudio",
        "filter",
        filtered,
        tolerance("float32", SIDE),
        where="cuda cpu",
    ),
    Program(
        "torchcodec",
        "sound",
        sound,
        2.0**-14,
        where="gpu cpu",
    ),
    Program(
        "torchao",
        "quantize",
        quantized_weights,
        EIGHT_BITS,
        where="cuda cpu",
    ),
    Program(
        "bitsandbytes",
        "quantize",
        quantized,
        EIGHT_BITS,
        where="cuda cpu",
    ),
    Program(
        "xformers",
        "attention",
        packed_attention,
        tolerance("float16", LENGTH),
    ),
    Program(
        "flash_attn",
        "attention",
        flash_attention,
        tolerance("float16", LENGTH, margin=4),
    ),
    Program(
        "vllm",
        "norm",
        normalized,
        tolerance("float16", SIDE * 4),
    ),
    Program(
        "triton",
        "kernel",
        triton_kernel,
        tolerance("float32"),
        where="gpu",
    ),
)
