"""Time limits in seconds of an idle machine, adjusted for a busy one."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

USUAL_S = 0.03
"""The maximum seconds to start Python on an idle machine."""


def slowness() -> float:
    """Return how many times slower than an idle machine this one is (>= 1)."""
    return max(1.0, *(_start() / USUAL_S for _ in range(3)))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail if a block takes longer than ``seconds`` of an idle machine."""
    before, began = slowness(), perf_counter()
    yield
    took = perf_counter() - began
    allowed = seconds * (before if took < seconds * before else slowness())
    assert took < allowed, (
        f"{took:.2f} s instead of {seconds} s, which are {allowed:.2f} s on this machine now"
    )


def _start() -> float:
    began = perf_counter()
    subprocess.run(
        [sys.executable, "-I", "-S", "-c", "pass"], check=True, stdin=subprocess.DEVNULL
    )
    return perf_counter() - began
