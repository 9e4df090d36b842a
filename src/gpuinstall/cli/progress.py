"""How far a work is: a bar of tqdm's in a terminal; elsewhere its numbers, for a log or a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import StringIO
from threading import RLock
from typing import Any, TextIO

from tqdm import tqdm

# No other process draws here, and nothing has to wake a bar that stands still.
tqdm.set_lock(RLock())
tqdm.monitor_interval = 0

DRAWN_EVERY_S = 0.1
"""How often a bar is drawn."""
_TEXT = "{n_fmt}B of {total_fmt}B · {rate_fmt}, {remaining} left"
_UNKNOWN_SIZE = "{n_fmt}B · {rate_fmt}"


class WorkMeter(tqdm):  # type: ignore[type-arg]
    """Counts a work: a bar in the last lines of a terminal, which is gone when it is closed, or reports now and then."""

    def __init__(
        self,
        label: str,
        parts: Mapping[str, int | None],
        stream: TextIO | None,
        report: Callable[[WorkMeter], None],
        seconds: float,
    ) -> None:
        """Begin a work.

        Args:
            label: What is done.
            parts: The bytes of each file; None if they are not known.
            stream: The terminal that the bar is drawn in; None: it is reported instead.
            report: Is told how far the work is, whose numbers the meter is as text.
            seconds: The least time between two reports, and before the first.
        """
        sizes = list(parts.values())
        total = None if None in sizes else sum(filter(None, sizes))
        text = _TEXT if total else _UNKNOWN_SIZE
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
            mininterval=DRAWN_EVERY_S if stream else seconds,
            # No bar before the first bytes: uv's cache may have all files.
            delay=DRAWN_EVERY_S if stream else seconds,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> Any:
        """Draw or report the work; at its end, when tqdm clears what it drew, nothing is reported."""
        if self._report is None:
            return super().display(msg, pos)
        return None if msg == "" else self._report(self)
