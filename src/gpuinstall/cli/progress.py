"""Report progress: a tqdm bar on a terminal, plain numbers elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from threading import RLock
from typing import Any, TextIO

from tqdm import tqdm

# Only this process draws these bars, and they need no monitor thread.
tqdm.set_lock(RLock())
tqdm.monitor_interval = 0

BAR_INTERVAL_S = 0.1
"""Seconds between two updates of a progress bar."""
_BAR_FORMAT = "{n_fmt}B of {total_fmt}B · {rate_fmt}, {remaining} left"
_BAR_FORMAT_WITHOUT_SIZE = "{n_fmt}B · {rate_fmt}"


class WorkMeter(tqdm):  # type: ignore[type-arg]
    """Progress meter of a transfer, shown as a bar or as log lines."""

    def __init__(
        self,
        label: str,
        parts: Mapping[str, int | None],
        stream: TextIO | None,
        report: Callable[[WorkMeter], None],
        seconds: float,
    ) -> None:
        """Start the progress bar or the periodic reports.

        Args:
            label: The name of the transfer.
            parts: The size of each file in bytes. None: unknown.
            stream: The terminal for the bar. None: call ``report`` instead.
            report: Receives the meter. ``str`` formats its numbers.
            seconds: The minimum time before the first report and between reports.
        """
        sizes = list(parts.values())
        total = None if None in sizes else sum(filter(None, sizes))
        text = _BAR_FORMAT if total else _BAR_FORMAT_WITHOUT_SIZE
        if stream:
            text = f"{label:<11} {{bar:20}} {text}" if total else f"{label:<11} {text}"
        self._report = None if stream else report
        super().__init__(
            total=total,
            unit="B",
            unit_scale=True,
            bar_format=text,
            file=stream or StringIO(),
            leave=False,
            dynamic_ncols=stream is not None,
            mininterval=BAR_INTERVAL_S if stream else seconds,
            # Do not draw a bar for files from uv's cache.
            delay=BAR_INTERVAL_S if stream else seconds,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draw the progress bar, or report the transferred bytes."""
        if self._report is None:
            return super().display(msg, pos)
        # tqdm displays "" to clear a finished bar.
        return None if msg == "" else self._report(self)
