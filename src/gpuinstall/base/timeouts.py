"""Time limits for servers, shared by gpuinstall's HTTP client and uv."""

from __future__ import annotations

from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

from gpuinstall.base.errors import UsageError

SILENCE = "GPUINSTALL_SILENCE"
MORE_TIME = f"Run it again\nexport {SILENCE}=120   # waits longer for slow servers"
"""The hint for a slow server."""


RETRIES = 3
"""The number of retries if a host does not respond. This is uv's default."""


class Timeouts(NamedTuple):
    """Time limits, in seconds."""

    silence: float = 30.0
    """The maximum time without data from a server."""
    floor: int = 1000
    """The minimum transfer rate in bytes per second, over each ``window``."""

    @property
    def window(self) -> float:
        """The interval for measuring a transfer rate."""
        return 2 * self.silence

    @property
    def connection(self) -> float:
        """The limit for connecting to a host. uv allows 10 seconds."""
        return self.silence / 3

    @property
    def first_response(self) -> float:
        """The limit for the first response of a host with alternatives."""
        return self.silence / 5

    @property
    def answer(self) -> float:
        """The limit for a request, including all retries."""
        return (RETRIES + 2) * self.silence

    @property
    def stalled_program(self) -> float:
        """The limit for a program that waits for a request of gpuinstall."""
        return self.answer + self.silence

    @property
    def total(self) -> float:
        """The limit for uv, 4 hours. A CUDA build can take 3 hours."""
        return 480 * self.silence

    @property
    def resolution(self) -> float:
        """The limit for resolving without builds, 30 minutes."""
        return 60 * self.silence

    @property
    def interpreter_query(self) -> float:
        """The limit for querying an interpreter, which takes 1 second."""
        return max(10.0, self.silence)

    @property
    def page(self) -> float:
        """The limit for a page."""
        return 10 * self.silence

    @property
    def wheel(self) -> float:
        """The limit for reading a part of a wheel: 256 MB at 250 kB/s."""
        return 36 * self.silence

    def variables(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the limits as uv variables that the user has not set."""
        defaults = {
            "UV_HTTP_TIMEOUT": str(max(1, round(self.silence))),
            "UV_HTTP_RETRIES": str(RETRIES),
            "UV_LOCK_TIMEOUT": "3600",
        }
        return {name: environ.get(name) or value for name, value in defaults.items()}


USUAL = Timeouts()


class TransferRate:
    """Measured transfer rate of a download."""

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._total = 0
        self._window_start = monotonic()
        self._total_at_start = 0

    def count(self, size: int) -> None:
        """Count received bytes."""
        self._total += size

    def is_too_slow(self) -> bool:
        """Return whether the last window was slower than ``floor``."""
        window = self._timeouts.window
        now = monotonic()
        if now - self._window_start < window:
            return False
        is_slow = self._total - self._total_at_start < self._timeouts.floor * window
        self._window_start = now
        self._total_at_start = self._total
        return is_slow


def read_timeouts(environ: Mapping[str, str]) -> Timeouts:
    """Read ``GPUINSTALL_SILENCE``. Raise UsageError if it is malformed."""
    try:
        seconds = float(environ.get(SILENCE) or USUAL.silence)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        message = f"{SILENCE} is {environ[SILENCE]!r}, not a positive number of seconds"
        raise UsageError("patience", message)
    return Timeouts(seconds)
