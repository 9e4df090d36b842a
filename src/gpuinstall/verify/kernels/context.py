"""Checks with their context, outcomes, and tolerances."""

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
    # Use the rounding error, half of the machine epsilon, because twice this value would hide a missing term in a
    # float32 sum.
    "bfloat16": 2.0**-8,
}
# The margin for float32 convolutions, because the Winograd algorithm adds in another order.
WINOGRAD = 16
MARK = "gpuinstall: "
"""The prefix of report lines, because start-up files may also print."""
OUT_OF_MEMORY = ("out of memory", "out of device memory", "alloc failed")
"""Messages of drivers and libraries if a GPU is out of memory."""
WITHOUT_MODULE = ("cpu", "mps", "all", "none")
"""Devices other than a single GPU with its own module in torch."""


class Skip(Exception):  # noqa: N818  an outcome, not an error
    """Raised if a check does not apply. The argument is the reason."""

    status = "skipped"


class Unproven(Skip):
    """Raised if a device cannot be tested. The argument is the reason."""

    status = "unproven"


class Wrong(Exception):  # noqa: N818  an outcome, not an error
    """Raised if a result is wrong. The argument is the error message."""


class CheckContext(NamedTuple):
    """Device, tolerance, and test data of a check."""

    torch: Any
    device: str
    """torch's name for the device, or "all" for all GPUs at once."""

    limit: float = 0.0
    """The maximum relative error of a check's result."""

    gpus: int = 1
    """The number of GPUs if the device is "all"."""

    @property
    def on_gpu(self) -> bool:
        """Whether torch has a module for the GPU, such as ``torch.cuda``."""
        return self.device not in WITHOUT_MODULE

    @property
    def gpu(self) -> Any:
        """torch's module for this kind of GPU. ROCm uses ``torch.cuda``."""
        return getattr(self.torch, self.device)

    @property
    def capability(self) -> tuple[int, int] | None:
        """The compute capability of an NVIDIA GPU; None for other devices."""
        if self.device != "cuda" or self.torch.version.hip:
            return None
        major, minor = self.torch.cuda.get_device_capability()
        return int(major), int(minor)

    def require_capability(
        self,
        major: int,
        minor: int,
        user: str,
    ) -> None:
        """Raise Skip if the compute capability of an NVIDIA GPU is too low."""
        capability = self.capability
        if capability and capability < (major, minor):
            raise Skip(f"{user} requires compute capability {major}.{minor}")

    def free_bytes(self) -> int | None:
        """Return the free bytes of the GPU, or None if unknown."""
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
        # On integrated GPUs, CUDA counts Linux's page cache as used memory, and an installation fills that cache.
        return max(int(free), available_memory())

    def random(
        self,
        *shape: int,
        dtype: str = "float32",
        seed: int = 0,
    ) -> Any:
        """Return reproducible, normally distributed numbers on the CPU."""
        generator = self.torch.Generator().manual_seed(seed)
        numbers = self.torch.randn(*shape, generator=generator)
        return numbers.to(getattr(self.torch, dtype))

    def to_device(self, tensor: Any) -> Any:
        """Copy a tensor to the device."""
        return tensor.to(self.device)

    def compare(
        self,
        result: Any,
        expected: Any,
        magnitude: Any = 1.0,
    ) -> None:
        """Raise Wrong if the relative error of a result exceeds the limit.

        Args:
            result: The result on the device.
            expected: The same result in float64 on the CPU.
            magnitude: The scale of the error, which is the sum of the absolute values of all terms.
        """
        difference = (result.cpu().double() - expected).abs()
        error = float((difference / magnitude).max())
        # This form, unlike "error > limit", also rejects NaN.
        if not error <= self.limit:
            raise Wrong(
                f"the result is off by {error:.2g}; at most {self.limit:.2g} is allowed"
            )

    def compare_sums(
        self,
        function: Callable[..., Any],
        *inputs: Any,
    ) -> None:
        """Compare a sum of products on the device with float64 on the CPU.

        Args:
            function: The sum of products, which runs on both.
            inputs: The input tensors on the CPU.
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
        """Compare a product of two matrices with the product in float64.

        Args:
            result: The result on the device.
            a: The first matrix on the CPU.
            b: The second matrix on the CPU.
        """
        a = a.double()
        b = b.double()
        self.compare(result, a @ b, a.abs() @ b.abs())

    def compare_exactly(
        self,
        result: Any,
        expected: Any,
    ) -> None:
        """Raise Wrong unless both tensors are exactly equal."""
        if not self.torch.equal(result.cpu(), expected.cpu()):
            raise Wrong("the result is not equal to the expected one")

    def synchronize(self) -> None:
        """Wait until all kernels on the device end, and raise their errors."""
        if self.device == "all" and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()
        elif self.on_gpu and self.gpu.is_initialized():
            self.gpu.synchronize()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that a GPU is out of memory."""
    text = str(error).lower().replace("_", " ")
    return type(error).__name__ == "OutOfMemoryError" or any(
        sign in text for sign in OUT_OF_MEMORY
    )


def first_line(error: BaseException | None) -> str:
    """Return the first line of an error message, or ""."""
    lines = str(error or "").strip().splitlines()
    return lines[0] if lines else ""


def available_memory() -> int:
    """Return the available memory in bytes on Linux, or 0 if unknown."""
    with suppress(OSError), Path("/proc/meminfo").open(encoding="ascii") as lines:
        for line in lines:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


class Check(NamedTuple):
    """A check: name, function, tolerance, and devices."""

    name: str
    run: Callable[..., str | None]
    """The function to run. For a program, it also receives the module."""

    limit: float | None = None
    """The maximum relative error of a check's result."""

    where: str = "gpu cpu mps"
    """The kinds of device that the check applies to.

    "gpu" is any GPU except Apple's ("mps"), "cuda" is an NVIDIA or AMD GPU, and "all" is all GPUs at once.
    """

    cause: str | None = None
    """The usual cause of a failure with an unknown message."""

    package: str = ""
    """A pattern for the names of the tested packages, empty for torch."""

    module: str = ""
    """The module of the tested package."""


def applies_to(where: str, device: str) -> bool:
    """Return whether a check with this ``where`` applies to a device."""
    kinds = where.split()
    return device in kinds or ("gpu" in kinds and device not in WITHOUT_MODULE)


def call_if_supported(product: Callable[[], Any], *refusals: str) -> Any:
    """Call a function, and skip the check if the device does not support it.

    Raises:
        Skip: The error message contains one of ``refusals``.
    """
    try:
        return product()
    except RuntimeError as error:
        text = str(error).lower().replace("_", " ")
        for refusal in refusals:
            if refusal in text:
                raise Skip(first_line(error)) from None
        raise


def compute_tolerance(
    dtype: str,
    terms: int = 1,
    margin: int = 1,
) -> float:
    """Return the maximum error, relative to the sum of absolute terms.

    Args:
        dtype: The type of inputs and results.
        terms: The number of products that are added in float32. The error grows with its square root.
        margin: A factor for algorithms that add in another order.
    """
    rounding = 4 * EPSILON[dtype]  # inputs and results are rounded
    adding = 4 * math.sqrt(terms) * EPSILON["float32"]
    return margin * (rounding + adding)


def allow_tf32(torch: Any, allowed: bool) -> None:
    """Enable or disable TensorFloat-32 for products and convolutions."""
    products = torch.backends.cuda.matmul
    convolutions = torch.backends.cudnn
    try:
        products.allow_tf32 = allowed
        convolutions.allow_tf32 = allowed
    except (AttributeError, RuntimeError):
        # A newer torch may have only the newer settings.
        precision = "tf32" if allowed else "ieee"
        products.fp32_precision = precision
        convolutions.conv.fp32_precision = precision
