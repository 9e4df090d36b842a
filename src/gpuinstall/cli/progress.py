"""Work that takes a while, as people follow it: live bars in a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING

from gpuinstall.text import visible
from gpuinstall.units import duration, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from rich.console import Console, Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    from gpuinstall.reporter import Progress, Unit

LINE_EVERY_S = 10.0
"""How often a log gets a line."""
BARS = 5
"""How many parts have a bar of their own."""
NARROW = 80
"""Below this many columns names are cut to make room for the bars."""


@dataclass
class Tally:
    """How far a work is: what each part has, of what there is, since when."""

    parts: Mapping[str, int | None]
    unit: Unit
    done: dict[str, int] = field(default_factory=dict)
    start: float = field(default_factory=monotonic)

    def add(self, part: str, count: int) -> None:
        """Count what was done of a part: never more than there is of it."""
        now = self.done.get(part, 0) + count
        self.done[part] = now if (most := self.parts.get(part)) is None else min(now, most)

    @property
    def came(self) -> int:
        """What is done in all."""
        return sum(self.done.values())

    @property
    def total(self) -> int | None:
        """What there is to do in all; None where that is not known of every part."""
        sizes = list(self.parts.values())
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def is_complete(self) -> bool:
        """Whether all of it is known to be done: what still follows, such as unpacking, is no longer this work."""
        return self.total is not None and self.came >= self.total

    @property
    def running(self) -> list[str]:
        """The parts that have begun and not ended, the largest first."""
        begun = [
            part
            for part, done in self.done.items()
            if self.parts.get(part) is None or done != self.parts[part]
        ]
        return sorted(begun, key=lambda part: -(self.parts.get(part) or 0))[:BARS]

    def state(self, part: str | None = None) -> tuple[int, int | None]:
        """What is done, and what there is to do, of a part or of all."""
        return (self.done.get(part, 0), self.parts.get(part)) if part else (self.came, self.total)

    def amount(self, part: str | None = None) -> str:
        """Write ``0.4 of 2.9 GB`` of a part, or of all."""
        done, size = self.state(part)
        if self.unit == "checks":
            return f"{done} of {size}"
        return f"{readable(done)} of {readable(size)}" if size is not None else readable(done)

    def pace(self) -> str:
        """Write ``48 MB/s, 35 s left``, as far as it can be told by what has come; empty in the first second."""
        seconds = monotonic() - self.start
        if self.unit == "checks" or seconds < 1 or not self.came:
            return ""
        rate, total = self.came / seconds, self.total
        left = f", {duration((total - self.came) / rate)} left" if total else ""
        return f"{readable(int(rate))}/s{left}"


def short(part: str, width: int) -> str:
    """Write a wheel by its package and version, anything else as it is, in ``width`` columns."""
    wheel = re.fullmatch(r"([^-]+)-([^-]+)-.+\.whl", part)
    name = visible(f"{wheel[1].replace('_', '-')} {wheel[2]}" if wheel else part)
    return name if len(name) <= width else f"{name[: width - 1]}…"


@contextmanager
def ticker(
    tally: Tally, seconds: float, say: Callable[[], None], last: float
) -> Iterator[Progress]:
    """Say how far a work is, so many ``seconds`` after it was said ``last``."""
    lock = Lock()

    def advance(part: str, count: int) -> None:
        nonlocal last
        with lock:
            tally.add(part, count)
            if monotonic() - last >= seconds:
                last = monotonic()
                say()

    yield advance


def lines(
    label: str, tally: Tally, say: Callable[[str, str], None]
) -> AbstractContextManager[Progress]:
    """Say every ten seconds how far a work is."""

    def line() -> None:
        say(label, " · ".join(filter(None, (tally.amount(), tally.pace()))))

    return ticker(tally, LINE_EVERY_S, line, tally.start)


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
            running = self.tally.running if len(self.tally.parts) > 1 else []
            pace = self.tally.pace()
            return Group(self._table([*running, None]), *([f"{'':11} {pace}"] if pace else []))

    def _table(self, parts: list[str | None]) -> Table:
        from rich.table import Table

        table = Table.grid(padding=(0, 1), expand=True)
        for width, ratio in ((11, None), (None, None), (None, 1), (None, None)):
            table.add_column(width=width, ratio=ratio, no_wrap=True)
        for head, part in zip((self.label, *[""] * len(parts)), parts, strict=False):
            name = short(part, 14 if self.width < NARROW else 24) if part else "total"
            table.add_row(head, name, self._bar(part), self.tally.amount(part))
        return table

    def _bar(self, part: str | None) -> ProgressBar:
        from rich.progress_bar import ProgressBar

        done, size = self.tally.state(part)
        return ProgressBar(total=size, completed=done, pulse=size is None)
