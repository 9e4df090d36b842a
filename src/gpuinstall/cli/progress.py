"""Work that takes a while, as people follow it: live bars in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.text import visible
from gpuinstall.base.units import duration, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console, Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from gpuinstall.base.reporter import Progress, Unit

LINE_EVERY_S = 10.0
"""How often a log gets a line."""
BARS = 5
"""How many parts have a bar of their own."""
NARROW = 80
"""Below this many columns names are cut to make room for the bars."""


class Amount(NamedTuple):
    """How far a part is, or a whole work."""

    done: int
    size: int | None
    """None if it is not known."""


@dataclass
class Tally:
    """How far a work is, part by part."""

    parts: Mapping[str, int | None]
    """How much there is to do of each; None if that is not known."""
    unit: Unit
    done: dict[str, int] = field(default_factory=dict)
    start: float = field(default_factory=monotonic)

    def add(self, part: str, count: int) -> None:
        """Count what was done of a part: never more than there is of it."""
        done, size = self.state(part)
        done += count
        self.done[part] = done if size is None else min(done, size)

    def state(self, part: str | None = None) -> Amount:
        """Return how far a part is, or the whole."""
        if part is not None:
            return Amount(self.done.get(part, 0), self.parts.get(part))
        sizes = [size for size in self.parts.values() if size is not None]
        is_known = len(sizes) == len(self.parts)
        return Amount(sum(self.done.values()), sum(sizes) if is_known else None)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is known to be done: what still follows, such as unpacking, is no longer this work."""
        done, size = self.state()
        return size is not None and done >= size

    @property
    def running(self) -> list[str]:
        """The parts that have begun and not ended, the largest first."""
        sizes = {}
        for part in self.done:
            done, size = self.state(part)
            if done != size:
                sizes[part] = size or 0
        return sorted(sizes, key=lambda part: -sizes[part])[:BARS]

    def amount(self, part: str | None = None) -> str:
        """Return ``0.4 of 2.9 GB`` of a part, or of all."""
        done, size = self.state(part)
        if self.unit == "checks":
            return f"{done} of {size}"
        if size is None:
            return readable(done)
        return f"{readable(done)} of {readable(size)}"

    def pace(self) -> str:
        """Return ``48 MB/s, 35 s left``, as far as it can be told by what has come; empty in the first second."""
        seconds = monotonic() - self.start
        done, size = self.state()
        if self.unit == "checks" or seconds < 1 or not done:
            return ""
        rate = done / seconds
        pace = f"{readable(int(rate))}/s"
        if size:
            pace += f", {duration((size - done) / rate)} left"
        return pace


def short(part: str, width: int) -> str:
    """Return a wheel by its package and version, anything else as it is, in ``width`` columns."""
    wheel = re.fullmatch(r"([^-]+)-([^-]+)-.+\.whl", part)
    if wheel:
        part = f"{wheel[1].replace('_', '-')} {wheel[2]}"
    name = visible(part)
    return name if len(name) <= width else f"{name[: width - 1]}…"


@contextmanager
def ticker(
    tally: Tally,
    seconds: float,
    report: Callable[[], None],
    last: float,
) -> Iterator[Progress]:
    """Report how far a work is, no more often than every so many seconds.

    Args:
        tally: The work.
        seconds: The time between two reports.
        report: Reports it.
        last: When it was reported last.
    """
    lock = Lock()

    def advance(part: str, count: int) -> None:
        nonlocal last
        with lock:
            tally.add(part, count)
            if monotonic() - last >= seconds:
                last = monotonic()
                report()

    yield advance


def lines(
    label: str,
    tally: Tally,
    write: Callable[[str, str], None],
) -> AbstractContextManager[Progress]:
    """Write every ten seconds how far a work is."""

    def report() -> None:
        pace = tally.pace()
        write(label, f"{tally.amount()} · {pace}" if pace else tally.amount())

    return ticker(tally, LINE_EVERY_S, report, tally.start)


@contextmanager
def bars(label: str, tally: Tally, console: Console) -> Iterator[Progress]:
    """Draw a bar for each of the largest parts under way, and one for all."""
    from rich.live import Live

    drawing = Drawing(label, tally, console.width)

    def advance(part: str, count: int) -> None:
        with drawing.lock:
            tally.add(part, count)

    with Live(drawing, console=console, refresh_per_second=8, transient=True):
        yield advance


@dataclass(frozen=True)
class Drawing:
    """The bars of one work, drawn anew each time that rich asks for them."""

    label: str
    tally: Tally
    width: int
    lock: Lock = field(default_factory=Lock)

    def __rich__(self) -> Group:
        from rich.console import Group

        with self.lock:
            if self.tally.is_complete:
                return Group()
            table = self._table()
            pace = self.tally.pace()
            return Group(table, f"{'':11} {pace}") if pace else Group(table)

    def _table(self) -> Table:
        from rich.table import Table

        table = Table.grid(padding=(0, 1), expand=True)
        table.add_column(width=11, no_wrap=True)
        table.add_column(no_wrap=True)
        table.add_column(ratio=1, no_wrap=True)
        table.add_column(no_wrap=True)
        label = self.label
        if len(self.tally.parts) > 1:
            width = 14 if self.width < NARROW else 24
            for part in self.tally.running:
                table.add_row(label, short(part, width), *self._cells(part))
                label = ""
        table.add_row(label, "total", *self._cells(None))
        return table

    def _cells(self, part: str | None) -> tuple[ProgressBar, str]:
        from rich.progress_bar import ProgressBar

        done, size = self.tally.state(part)
        bar = ProgressBar(total=size, completed=done, pulse=size is None)
        return bar, self.tally.amount(part)
