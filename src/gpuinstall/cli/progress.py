"""Work that takes a while, as people follow it: a live bar in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.base.units import duration, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console

    from gpuinstall.base.reporter import Progress, Unit

LINE_EVERY_S = 10.0
"""How often a log gets a line."""


class Work:
    """How far a work is."""

    def __init__(self, parts: Mapping[str, int | None], unit: Unit) -> None:
        """Begin a work.

        Args:
            parts: How much there is to do of each part; None if that is not known.
            unit: What is counted.
        """
        sizes = list(parts.values())
        self.size = None if None in sizes else sum(filter(None, sizes))
        self.done = 0
        self.unit = unit
        self._start = monotonic()

    def add(self, count: int) -> None:
        """Count what was done, never more than there is."""
        self.done += count
        if self.size is not None:
            self.done = min(self.done, self.size)

    def __str__(self) -> str:
        """Return ``0.4 of 2.9 GB · 48 MB/s, 35 s left``, as far as it is known; without a pace in the first second."""
        if self.unit == "checks":
            # Which checks a device has is known at its end; another count of them here would be a riddle.
            return f"{self.done / (self.size or 1):.0%}"
        amount = readable(self.done)
        if self.size is not None:
            amount += f" of {readable(self.size)}"
        seconds = monotonic() - self._start
        if seconds < 1 or not self.done:
            return amount
        rate = self.done / seconds
        pace = f"{readable(int(rate))}/s"
        if self.size:
            pace += f", {duration((self.size - self.done) / rate)} left"
        return f"{amount} · {pace}"


@contextmanager
def ticker(work: Work, seconds: float, report: Callable[[], None]) -> Iterator[Progress]:
    """Report how far a work is, no more often than every so many seconds."""
    lock = Lock()
    last = monotonic()

    def advance(_part: str, count: int) -> None:
        nonlocal last
        with lock:
            work.add(count)
            if monotonic() - last >= seconds:
                last = monotonic()
                report()

    yield advance


def lines(
    label: str, work: Work, write: Callable[[str, str], None]
) -> AbstractContextManager[Progress]:
    """Write every ten seconds how far a work is."""
    return ticker(work, LINE_EVERY_S, lambda: write(label, str(work)))


@contextmanager
def bar(label: str, work: Work, console: Console) -> Iterator[Progress]:
    """Draw a bar, which goes with the work."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn(f"{label:<11}"), BarColumn(None), TextColumn("{task.description}"))
    with Bars(*columns, console=console, transient=True, expand=True) as bars:
        task = bars.add_task("", total=work.size)

        def draw() -> None:
            bars.update(task, completed=work.done, description=str(work))

        with ticker(work, 0.1, draw) as advance:
            yield advance
