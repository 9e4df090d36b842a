"""How long a server may take: one value for our own client and for uv."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

from gpuinstall.base.errors import UsageError

SILENCE = "GPUINSTALL_SILENCE"
MORE_TIME = f"Run it again\nexport {SILENCE}=120   # allows a slow server more seconds"
"""What to do about a server that was too slow."""


RETRIES = 3
"""Retries if a host does not answer; uv's default."""


class Patience(NamedTuple):
    """``silence`` are the seconds without a byte after which a server is given up, ``floor`` the bytes a second.

    The floor is what a transfer must have over ``window`` seconds, however it comes.
    """

    silence: float = 30.0
    floor: int = 1000

    @property
    def window(self) -> float:
        """Seconds over which a transfer is measured."""
        return 2 * self.silence

    @property
    def connection(self) -> float:
        """Seconds that a connection may take; uv allows ten."""
        return self.silence / 3

    @property
    def first_answer(self) -> float:
        """Seconds until the first answer of a host with alternatives."""
        return self.silence / 5

    @property
    def answer(self) -> float:
        """Seconds that a request may take, with all retries."""
        return (RETRIES + 2) * self.silence

    @property
    def standstill(self) -> float:
        """Seconds that a program may wait for an answer through gpuinstall."""
        return self.answer + self.silence

    @property
    def total(self) -> float:
        """Seconds that uv may take in all, four hours: a build for CUDA comes over a slow line in three."""
        return 480 * self.silence

    @property
    def resolution(self) -> float:
        """Seconds that uv may take to resolve without building: half an hour, for a page that drips without end."""
        return 60 * self.silence

    @property
    def look(self) -> float:
        """Seconds in which an interpreter says what it is, which takes one; a slow disk is given ten."""
        return max(10.0, self.silence)

    @property
    def page(self) -> float:
        """Seconds that a page may take in all."""
        return 10 * self.silence

    @property
    def wheel(self) -> float:
        """Seconds that reading a part of a wheel may take in all: 256 MB at 250 kB/s."""
        return 36 * self.silence

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the same limits for uv, unless its variables are set."""
        ours = {
            "UV_HTTP_TIMEOUT": str(max(1, round(self.silence))),
            "UV_HTTP_RETRIES": str(RETRIES),
            "UV_LOCK_TIMEOUT": "3600",
        }
        return {name: environ.get(name) or value for name, value in ours.items()}


USUAL = Patience()


class Pace:
    """Whether a transfer keeps up: ``floor`` bytes a second over each window."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._total = 0
        self._window_start = monotonic()
        self._total_at_start = 0

    def count(self, size: int) -> None:
        """Count bytes that have come."""
        self._total += size

    def lags(self) -> bool:
        """Whether a whole window has gone by with less than the floor."""
        window = self._patience.window
        now = monotonic()
        if now - self._window_start < window:
            return False
        is_slow = self._total - self._total_at_start < self._patience.floor * window
        self._window_start = now
        self._total_at_start = self._total
        return is_slow


def read_patience(environ: Mapping[str, str]) -> Patience:
    """Read ``GPUINSTALL_SILENCE``; raise UsageError if it is no number."""
    try:
        seconds = float(environ.get(SILENCE) or USUAL.silence)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        message = f"{SILENCE} is {environ[SILENCE]!r}, and not a number above 0"
        raise UsageError("patience", message)
    return Patience(seconds)
