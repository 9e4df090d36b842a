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

_TEXT = "{n_fmt}B of {total_fmt}B · {rate_fmt}, {remaining} left"
_UNKNOWN_SIZE = "{n_fmt}B · {rate_fmt}"


def draw_bar(
    stream: TextIO,
    label: str,
    parts: Mapping[str, int | None],
) -> tqdm[Any]:
    """Return a bar in the last lines of a terminal, which is gone when it is closed.

    Args:
        stream: The terminal.
        label: What is done.
        parts: The bytes of each file; None if they are not known.
    """
    settings = _settings(parts)
    text = settings["bar_format"]
    if settings["total"]:
        text = f"{{bar:20}} {text}"
    settings["bar_format"] = f"{label:<11} {text}"
    return tqdm(
        **settings, file=stream, leave=False, dynamic_ncols=True, mininterval=0.1
    )


class WorkMeter(tqdm):  # type: ignore[type-arg]
    """Counts a work, and reports it now and then instead of drawing it; as text, its numbers."""

    def __init__(
        self,
        report: Callable[[WorkMeter], None],
        seconds: float,
        parts: Mapping[str, int | None],
    ) -> None:
        """Begin a work.

        Args:
            report: Is told how far the work is.
            seconds: The least time between two reports, and before the first.
            parts: The bytes of each file; None if they are not known.
        """
        self._report = report
        super().__init__(
            **_settings(parts),
            file=StringIO(),
            leave=False,
            mininterval=seconds,
            delay=seconds,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:  # noqa: ARG002
        """Report the work; at its end, when tqdm clears what it drew, nothing."""
        if msg is None:
            self._report(self)


def _settings(parts: Mapping[str, int | None]) -> dict[str, Any]:
    sizes = list(parts.values())
    total = None if None in sizes else sum(filter(None, sizes))
    return {
        "total": total,
        "unit": "B",
        "unit_scale": True,
        "bar_format": _TEXT if total else _UNKNOWN_SIZE,
    }
