"""How far a work is: a bar of tqdm's in a terminal; elsewhere its numbers, for a log or a program."""

from __future__ import annotations

from io import StringIO
from threading import RLock
from typing import TYPE_CHECKING, Any, TextIO

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuinstall.base.reporter import Unit

# No other process draws here, and nothing has to wake a bar that stands still.
tqdm.set_lock(RLock())
tqdm.monitor_interval = 0

_TEXTS = {
    "bytes": "{n_fmt}B of {total_fmt}B · {rate_fmt}, {remaining} left",
    # Which checks a device has is known at its end; another count of them here would be a riddle.
    "checks": "{percentage:.0f}%",
}
_UNKNOWN_SIZE = "{n_fmt}B · {rate_fmt}"


def draw_bar(
    stream: TextIO,
    label: str,
    parts: Mapping[str, int | None],
    unit: Unit,
) -> tqdm[Any]:
    """Return a bar in the last lines of a terminal, which is gone when it is closed.

    Args:
        stream: The terminal.
        label: What is done.
        parts: How much there is to do of each part; None if that is not known.
        unit: What is counted.
    """
    settings = _settings(parts, unit)
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
        unit: Unit,
    ) -> None:
        """Begin a work.

        Args:
            report: Is told how far the work is.
            seconds: The least time between two reports, and before the first.
            parts: How much there is to do of each part; None if that is not known.
            unit: What is counted.
        """
        self._report = report
        super().__init__(
            **_settings(parts, unit),
            file=StringIO(),
            leave=False,
            mininterval=seconds,
            delay=seconds,
        )

    def display(self, msg: str | None = None, pos: int | None = None) -> None:  # noqa: ARG002
        """Report the work; at its end, when tqdm clears what it drew, nothing."""
        if msg is None:
            self._report(self)


def _settings(parts: Mapping[str, int | None], unit: Unit) -> dict[str, Any]:
    sizes = list(parts.values())
    total = None if None in sizes else sum(filter(None, sizes))
    return {
        "total": total,
        "unit": "B" if unit == "bytes" else "check",
        "unit_scale": unit == "bytes",
        "bar_format": _TEXTS[unit] if total else _UNKNOWN_SIZE,
    }
