"""What a child tells the runner: JSON lines on the stream that was its stdout, which nothing else can reach."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_TEXT = 8000


class Skip(Exception):  # noqa: N818  an outcome, not an error
    """The check has no meaning on this device or build; the argument says why."""


class Unproven(Exception):  # noqa: N818  an outcome, not an error
    """The device could not be tried; the argument says why."""


class Wrong(Exception):  # noqa: N818  an outcome, not an error
    """A kernel ran and its result is wrong; the argument says by how much."""


class Channel:
    """Writes records to the runner; whatever prints to stdout from now on, in Python or in C, ends on stderr."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, **record: Any) -> None:
        """Write one record at once, so that a crash loses none."""
        self._stream.write(json.dumps(record) + "\n")
        self._stream.flush()

    def attempt(self, name: str, run: Callable[[], str | None]) -> str:
        """Run one check: say that it begins, then its status, seconds and message; return the status."""
        self.send(begin=name)
        start = time.perf_counter()
        outcome = _outcome(run)
        self.send(name=name, seconds=round(time.perf_counter() - start, 4), **outcome)
        return str(outcome["status"])


def _outcome(run: Callable[[], str | None]) -> dict[str, Any]:
    try:
        return {"status": "passed", "message": run()}
    except Skip as reason:
        return {"status": "skipped", "message": str(reason)}
    except Unproven as reason:
        return {"status": "unproven", "message": str(reason)}
    except Wrong as reason:
        return {"status": "failed", "message": str(reason)}
    except Exception as error:  # noqa: BLE001  whatever a broken environment raises is the result
        return _failure(error)


def _failure(error: Exception) -> dict[str, Any]:
    lines = str(error).strip().splitlines() or [""]
    message = f"{type(error).__name__}: {lines[0]}".rstrip(": ")
    status = "unproven" if busy(str(error)) else "failed"
    return {"status": status, "message": message, "text": traceback.format_exc()[-MOST_TEXT:]}


def busy(text: str) -> bool:
    """Say whether an error means that somebody else has the device or its memory."""
    signs = ("busy or unavailable", "CUDA out of memory", "CUDA error: out of memory", "cudaErrorDevicesUnavailable")
    return any(sign in text for sign in signs)


class Check(NamedTuple):
    """One row of a table of checks: ``limit`` is the greatest error allowed, ``where`` the kinds of device."""

    name: str
    run: Callable[[Bed], str | None]
    limit: float | None = None
    where: str = "cuda cpu"


class Bed(NamedTuple):
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
