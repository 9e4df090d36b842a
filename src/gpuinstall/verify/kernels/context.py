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
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
}
WINOGRAD = 16
NO_GPU = ("cpu", "mps", "all", "none")


class Skip(Exception):  # noqa: N818  an outcome, not an error
    """The check has no meaning on this device or build; the argument says why."""


class Unproven(Exception):  # noqa: N818  an outcome, not an error
    """The device could not be tried; the argument says why."""


class Wrong(Exception):  # noqa: N818  an outcome, not an error
    """A kernel ran and its result is wrong; the argument says by how much."""


class CheckContext(NamedTuple):
    """What a check works with: torch, the device as torch names it, and the greatest error allowed.

    The device "all" is every GPU at once, ``gpus`` of them.
    """

    torch: Any
    device: str
    limit: float = 0.0
    gpus: int = 1

    @property
    def on_gpu(self) -> bool:
        """Say whether the device is one GPU with a module of its own in torch (``torch.cuda``, ``torch.xpu``)."""
        return self.device not in NO_GPU

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

    def below(self, major: int, minor: int) -> bool:
        """Say whether this is a CUDA card of a lower compute capability."""
        capability = self.capability
        return capability is not None and capability < (major, minor)

    def free_bytes(self) -> int:
        """Return how much memory the GPU can give now."""
        free, _total = self.gpu.mem_get_info()
        shared = self.capability is not None and getattr(
            self.gpu.get_device_properties(0), "is_integrated", False
        )
        # CUDA counts the files that Linux keeps in a shared memory as used: an installation alone fills it with them.
        return max(int(free), available_memory()) if shared else int(free)

    def random(self, *shape: int, dtype: str = "float32", seed: int = 0) -> Any:
        """Make the same normal numbers on every device, rounded to ``dtype``, on the CPU."""
        generator = self.torch.Generator().manual_seed(seed)
        return self.torch.randn(*shape, generator=generator).to(getattr(self.torch, dtype))

    def compare(self, result: Any, expected: Any, magnitude: Any = 1.0) -> None:
        """Raise Wrong where ``result`` is further than the limit from ``expected``, relative to ``magnitude``."""
        error = float(((result.cpu().double() - expected).abs() / magnitude).max())
        if not error <= self.limit:
            raise Wrong(f"the result is off by {error:.2g}, where {self.limit:.2g} is allowed")

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


def available_memory() -> int:
    """Return the bytes that Linux gives to whoever asks, kept files left aside; 0 where it does not say."""
    with suppress(OSError), Path("/proc/meminfo").open(encoding="ascii") as lines:
        return next(
            (int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")), 0
        )
    return 0


class Check(NamedTuple):
    """One row of a table of checks: ``limit`` is the greatest error allowed, ``where`` the kinds of device.

    "gpu" is any GPU but Apple's ("mps"), "cuda" one that torch names so (NVIDIA's and AMD's), "all" all GPUs at once.
    """

    name: str
    run: Callable[[CheckContext], str | None]
    limit: float | None = None
    where: str = "gpu cpu"


def runs_on(where: str, device: str) -> bool:
    """Say whether a row with this ``where`` has a meaning on a device."""
    kinds = {device} if device in NO_GPU else {"gpu", device}
    return not kinds.isdisjoint(where.split())


def supported(product: Callable[[], Any], *refusals: str) -> Any:
    """Compute; skip where the error says one of ``refusals``: this build or library does not do it on this device."""
    try:
        return product()
    except RuntimeError as error:
        text = str(error).lower().replace("_", " ")
        if any(refusal in text for refusal in refusals):
            raise Skip(str(error).splitlines()[0]) from None
        raise


def tolerance(dtype: str, terms: int = 1, margin: int = 1) -> float:
    """Give the greatest error, relative to the sum of the magnitudes of what was added.

    4 ε(dtype) for rounding what goes in and comes out, and 4 √terms ε(float32) for adding ``terms`` products in
    float32, whose errors grow like a random walk; ``margin`` for algorithms that add in another order.
    """
    return margin * (4 * EPSILON[dtype] + 4 * math.sqrt(terms) * EPSILON["float32"])


def allow_tf32(torch: Any, allowed: bool) -> None:
    """Let float32 products and convolutions use TensorFloat-32, or not; newer torch may know another switch alone."""
    backends = torch.backends
    try:
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed
    except (AttributeError, RuntimeError):
        backends.cuda.matmul.fp32_precision = backends.cudnn.conv.fp32_precision = (
            "tf32" if allowed else "ieee"
        )
