"""Time limits for servers, shared by gpuinstall's HTTP client and uv."""

from __future__ import annotations

import os
from typing import NamedTuple

from gpuinstall.base.advice import Advice
from gpuinstall.base.errors import UsageError

SILENCE = "GPUINSTALL_SILENCE"
MORE_TIME = (
    "Run it again",
    Advice("export", (f"{SILENCE}=120",), note="waits longer for slow servers"),
)
"""The hint for a slow server."""


RETRIES = 3
"""The number of retries if a host does not respond. This is uv's default."""


class Timeouts(NamedTuple):
    """Time limits for servers, in seconds."""

    silence: float = 30.0
    """The maximum time without data from a server."""

    @property
    def connection(self) -> float:
        """The time limit for a connection. uv's limit is 10 seconds."""
        return self.silence / 3

    @property
    def first_response(self) -> float:
        """The first-response time limit of a host that has alternatives."""
        return self.silence / 5

    @property
    def answer(self) -> float:
        """The time limit for an HTTP request, including all retries."""
        return (RETRIES + 2) * self.silence

    @property
    def total(self) -> float:
        """The time limit for a uv command or a file."""
        # A CUDA build can take 3 hours.
        return 480 * self.silence

    @property
    def resolution(self) -> float:
        """The time limit for a resolution without builds."""
        return 60 * self.silence

    @property
    def interpreter_query(self) -> float:
        """The time limit for an interpreter query, which takes 1 second."""
        return max(10.0, self.silence)

    @property
    def page(self) -> float:
        """The time limit for downloading an index page."""
        return 10 * self.silence

    @property
    def wheel(self) -> float:
        """The time limit for reading part of a wheel: 256 MB at 250 kB/s."""
        return 36 * self.silence

    def variables(self) -> dict[str, str]:
        """Return the time limits as uv variables that the user has not set."""
        defaults = {
            "UV_HTTP_TIMEOUT": str(max(1, round(self.silence))),
            "UV_HTTP_RETRIES": str(RETRIES),
            "UV_LOCK_TIMEOUT": "3600",
        }
        return {name: os.environ.get(name) or value for name, value in defaults.items()}


USUAL = Timeouts()


def read_timeouts() -> Timeouts:
    """Read ``GPUINSTALL_SILENCE``. Raise UsageError if it is malformed."""
    try:
        seconds = float(os.environ.get(SILENCE) or USUAL.silence)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds < 1e9:
        message = (
            f"{SILENCE} is {os.environ[SILENCE]!r}, not a positive number of seconds"
        )
        raise UsageError("patience", message)
    return Timeouts(seconds)
