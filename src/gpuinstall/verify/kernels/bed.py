"""What a check is and what it works with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .protocol import Wrong

if TYPE_CHECKING:
    from collections.abc import Callable


class CheckContext(NamedTuple):
    """What a check works with: torch, the device ("cuda", "cpu" or "mps"), and the greatest error allowed."""

    torch: Any
    device: str
    limit: float = 0.0

    @property
    def capability(self) -> tuple[int, int]:
        """The card's compute capability, major and minor."""
        major, minor = self.torch.cuda.get_device_capability()
        return int(major), int(minor)

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
        if self.device in {"cuda", "all"} and self.torch.cuda.is_initialized():
            self.torch.cuda.synchronize()


class Check(NamedTuple):
    """One row of a table of checks: ``limit`` is the greatest error allowed, ``where`` the kinds of device."""

    name: str
    run: Callable[[CheckContext], str | None]
    limit: float | None = None
    where: str = "cuda cpu"


def allow_tf32(torch: Any, allowed: bool) -> None:
    """Let float32 products and convolutions use TensorFloat-32, or not; newer torch may know another switch alone."""
    backends = torch.backends
    try:
        backends.cuda.matmul.allow_tf32 = backends.cudnn.allow_tf32 = allowed
    except (AttributeError, RuntimeError):
        backends.cuda.matmul.fp32_precision = backends.cudnn.conv.fp32_precision = "tf32" if allowed else "ieee"
