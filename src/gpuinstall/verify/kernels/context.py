"""What a check is, what it works with, how it ends without passing, and how exact its result must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    # Half of its step, which rounding costs: nothing is added in it, and twice as much would hide a lost term.
    "bfloat16": 2.0**-8,
}
# The margin of a convolution in float32: the algorithm of this name adds in another order.
WINOGRAD = 16
MARK = "gpuinstall: "
"""How a line of ours begins on the standard output, where a start-up file of the environment may write too."""
OUT_OF_MEMORY = ("out of memory", "out of device memory", "alloc failed")
"""What CUDA, HIP, Level Zero and Metal, cuBLAS and cuDNN say of a GPU that has no memory left."""
WITHOUT_MODULE = ("cpu", "mps", "all", "none")
"""The devices that are not one GPU with a module of its own in torch."""


class Skip(Exception):  # noqa: N818  an outcome, not an error
    """The check has no meaning on this device or build; the argument says why."""


class Unproven(Exception):  # noqa: N818  an outcome, not an error
    """The device could not be tried; the argument says why."""


class Wrong(Exception):  # noqa: N818  an outcome, not an error
    """A kernel ran and its result is wrong; the argument says by how much."""


class CheckContext(NamedTuple):
    """What a check works with."""

    torch: Any
    device: str
    """The device as torch names it; "all" is every GPU at once."""

    limit: float = 0.0
    """The greatest error allowed."""

    gpus: int = 1
    """How many GPUs the device "all" stands for."""

    @property
    def on_gpu(self) -> bool:
        """Whether the device is one GPU with a module of its own in torch (``torch.cuda``, ``torch.xpu``)."""
        return self.device not in WITHOUT_MODULE

    @property
    def gpu(self) -> Any:
        """The module of torch for this kind of GPU; that of ROCm is ``torch.cuda`` too."""
        return getattr(self.torch, self.device)

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability of a CUDA card, major and minor; None for every other device."""
        if self.device != "cuda" or self.torch.version.hip:
            return None
        major, minor = self.torch.cuda.get_device_capability()
        return int(major), int(minor)

    def demand(self, major: int, minor: int, user: str) -> None:
        """Raise Skip if this is a CUDA card of a lower compute capability than something needs."""
        capability = self.capability
        if capability and capability < (major, minor):
            raise Skip(f"{user} needs compute capability {major}.{minor}")

    def free_bytes(self) -> int | None:
        """Return how much memory the GPU can give now; None if it does not tell, as Intel's integrated ones."""
        try:
            free, _total = self.gpu.mem_get_info()
        except (AttributeError, NotImplementedError, RuntimeError) as error:
            if is_out_of_memory(error):
                raise
            return None
        if self.capability is None:
            return int(free)
        properties = self.gpu.get_device_properties(0)
        if not getattr(properties, "is_integrated", False):
            return int(free)
        # CUDA counts the files that Linux keeps in a shared memory as used: an installation alone fills it with them.
        return max(int(free), available_memory())

    def random(
        self,
        *shape: int,
        dtype: str = "float32",
        seed: int = 0,
    ) -> Any:
        """Return the same normal numbers for every device, rounded to ``dtype``, on the CPU."""
        generator = self.torch.Generator().manual_seed(seed)
        numbers = self.torch.randn(*shape, generator=generator)
        return numbers.to(getattr(self.torch, dtype))

    def to_device(self, tensor: Any) -> Any:
        """Return the tensor on the device."""
        return tensor.to(self.device)

    def compare(
        self,
        result: Any,
        expected: Any,
        magnitude: Any = 1.0,
    ) -> None:
        """Raise Wrong if ``result`` is further than the limit from ``expected``, relative to ``magnitude``.

        Args:
            result: What the device has computed.
            expected: The same in float64, on the CPU.
            magnitude: What the error is measured by: the sum of the sizes of all that was added.
        """
        difference = (result.cpu().double() - expected).abs()
        error = float((difference / magnitude).max())
        # Not "error > limit": a result that is not a number is wrong too.
        if not error <= self.limit:
            raise Wrong(
                f"the result is off by {error:.2g}, where {self.limit:.2g} is allowed"
            )

    def compare_sums(
        self,
        function: Callable[..., Any],
        *inputs: Any,
    ) -> None:
        """Raise Wrong if a function, which adds products, is further from itself in float64 than the limit.

        Args:
            function: Takes the inputs, on the device or on the CPU.
            inputs: Tensors on the CPU.
        """
        result = function(*map(self.to_device, inputs))
        exact = function(*(tensor.double() for tensor in inputs))
        magnitude = function(*(tensor.double().abs() for tensor in inputs))
        self.compare(result, exact, magnitude)

    def compare_product(
        self,
        result: Any,
        a: Any,
        b: Any,
    ) -> None:
        """Raise Wrong if ``result`` is further from the product of two matrices in float64 than the limit.

        Args:
            result: What the device has computed.
            a: The first matrix, on the CPU.
            b: The second.
        """
        a = a.double()
        b = b.double()
        self.compare(result, a @ b, a.abs() @ b.abs())

    def same(self, result: Any, expected: Any) -> None:
        """Raise Wrong unless both hold exactly the same numbers."""
        if not self.torch.equal(result.cpu(), expected.cpu()):
            raise Wrong("the result is not exactly the expected one")

    def synchronize(self) -> None:
        """Wait for the device, so that a kernel's error is raised by the check that started it."""
        if self.device == "all" and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        elif self.on_gpu and self.gpu.is_initialized():
            self.gpu.synchronize()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a GPU had no memory left, in any maker's words."""
    text = str(error).lower().replace("_", " ")
    return type(error).__name__ == "OutOfMemoryError" or any(
        sign in text for sign in OUT_OF_MEMORY
    )


def first_line(error: BaseException | None) -> str:
    """Return the first line of an error's message; empty if there is none."""
    lines = str(error or "").strip().splitlines()
    return lines[0] if lines else ""


def available_memory() -> int:
    """Return the bytes that Linux can give, kept files left aside; 0 if it does not tell."""
    with suppress(OSError), Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


class Check(NamedTuple):
    """One row of a table of checks."""

    name: str
    run: Callable[..., str | None]
    """Takes the context, and of another package than torch its module."""

    limit: float | None = None
    """The greatest error allowed."""

    where: str = "gpu cpu mps"
    """The kinds of device.

    "gpu" is any GPU but Apple's ("mps"), "cuda" one that torch names so (NVIDIA's and AMD's), "all" all GPUs at once.
    """

    cause: str | None = None
    """The entry of the table of failures that it is most often if it fails without a known message."""

    package: str = ""
    """A pattern of the packages whose module it tests; empty: torch."""

    module: str = ""
    """What is imported of that package."""


def runs_on(where: str, device: str) -> bool:
    """Whether a row with this ``where`` has a meaning on a device."""
    kinds = where.split()
    return device in kinds or ("gpu" in kinds and device not in WITHOUT_MODULE)


def supported(product: Callable[[], Any], *refusals: str) -> Any:
    """Return the product.

    Raises:
        Skip: if the error has one of ``refusals``: this build or library does not do it on this device.
    """
    try:
        return product()
    except RuntimeError as error:
        text = str(error).lower().replace("_", " ")
        for refusal in refusals:
            if refusal in text:
                raise Skip(first_line(error)) from None
        raise


def tolerance(
    dtype: str,
    terms: int = 1,
    margin: int = 1,
) -> float:
    """Return the greatest error, relative to the sum of the magnitudes of what was added.

    Args:
        dtype: What the numbers are rounded to before and after.
        terms: The products that are added in float32; their errors grow like a random walk.
        margin: For algorithms that add in another order.
    """
    rounding = 4 * EPSILON[dtype]  # of what goes in and of what comes out
    adding = 4 * math.sqrt(terms) * EPSILON["float32"]
    return margin * (rounding + adding)


def allow_tf32(torch: Any, allowed: bool) -> None:
    """Let float32 products and convolutions use TensorFloat-32, or not."""
    products = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    try:
        products.allow_tf32 = allowed
        convolutions.allow_tf32 = allowed
    except (AttributeError, RuntimeError):
        # Newer torch may know another switch alone.
        precision = "tf32" if allowed else "ieee"
        products.fp32_precision = precision
        convolutions.conv.fp32_precision = precision
