"""What a command writes: for a person, with colour and live bars in a terminal, or as JSON lines for a program.

Control characters of a text are made visible here: it moves no cursor and begins no line. Only we choose colours.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpuinstall.base.advice import for_options
from gpuinstall.base.errors import GpuInstallError, InternalError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import joined
from gpuinstall.base.text import duration, readable, redacted_document, visible
from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.reporter import Progress, Unit

SCREEN = 80
"""How wide the lines are that end with a time. No line is broken: a command in it can be copied."""

BAR = 20
"""The characters of a bar."""

BAR_EVERY_S = 0.1

LINE_EVERY_S = 10.0
"""How often a log gets a line."""

EVENT_EVERY_S = 0.2
"""How often an event says how far a work is: a bar drawn from it moves, and an hour makes no more than 18,000 lines."""


class OutputError(InternalError):
    """The result cannot be written."""


@dataclass(frozen=True)
class Terminal(Reporter):
    """Where a command writes: results to ``out``, progress and faults to ``err``."""

    as_json: bool = False
    as_events: bool = False
    """Whether all that happens is lines of JSON on ``out``, and nothing else is written."""

    quiet: bool = False
    verbose: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    bars: list[str] = field(default_factory=list)
    """The bar in the last line of the terminal, as it was drawn last; empty if there is none."""
    warned: set[str] = field(default_factory=set)
    """The warnings that were written."""
    machines: list[Machine] = field(default_factory=list)
    """The machine, once the command has read it."""

    def colored(self, stream: TextIO) -> bool:
        """Whether ``stream`` gets colour: NO_COLOR decides, then FORCE_COLOR, then whether it is a terminal."""
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()

    def _styled(
        self,
        head: str,
        style: str,
        stream: TextIO,
    ) -> str:
        """Return the head of a line made visible: bold, dim or in a colour if ``stream`` gets any."""
        head = visible(head)
        if not head or not self.colored(stream):
            return head
        settings: dict[str, Any] = {"fg": style}
        if style in {"bold", "dim"}:
            settings = {style: True}
        return click.style(head, **settings)

    def line(
        self,
        text: str = "",
        *,
        head: str = "",
        style: str = "bold",
    ) -> None:
        """Write one line of the result; ``head`` comes before the text, in a style."""
        self.block(self._styled(head, style, self.out) + visible(text))

    def block(self, text: str) -> None:
        """Write what another program reads, as it is, with one line end."""
        text = text.removesuffix("\n")
        try:
            # One call for text and line end: threads write too.
            self.out.write(f"{text}\n")
            self.out.flush()
        except BrokenPipeError:
            pass  # a reader who has seen enough is no fault
        except OSError as error:
            raise OutputError(
                "output", f"the output cannot be written: {error.strerror}"
            ) from None

    def field(self, label: str, text: str) -> None:
        """Write one labelled line of the result."""
        self.line(f" {text}", head=f"{label:<11}")

    def rows(self, rows: Iterable[tuple[str, str | None]], width: int = 5) -> None:
        """Write what belongs to a line, each text behind its label (why, seen, do); None is left out."""
        for label, text in rows:
            if text:
                self.block(_hanging(f"{label:<{width}}", text))

    def finding(self, finding: Finding) -> None:
        """Write what is wrong: whether it blocks, what, its failure; why; what was seen; what to do."""
        head, style = ("error:", "red") if finding.blocking else ("note:", "yellow")
        self.line(
            f" {finding.message}{failure_mark(finding.id)}", head=head, style=style
        )
        self.rows(
            [("why", finding.why), ("seen", finding.evidence), ("do", finding.fix)]
        )

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the JSON document of a command."""
        if self.as_events:
            self._event("result", **document)
        else:
            self.block(json.dumps(redacted_document(document), indent=2))

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Write one finished step, unless ``--quiet``."""
        if self.as_events or not self.quiet:
            self.notice(label, text, seconds)

    def notice(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Write one step, also with ``--quiet``."""
        if self.as_events:
            self._event("step", label=label, text=text, seconds=seconds)
            return
        text = visible(text)
        if seconds is not None:
            # The time ends the line, in the same column as those above it.
            text += f"{duration(seconds):>{max(9, SCREEN - 12 - len(text))}}"
        self._show(f" {text}", head=f"{label:<11}")

    def detail(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Write a step that ``--verbose`` shows."""
        if self.verbose:
            self.notice(label, text, seconds)

    def wait(self, text: str) -> None:
        """Write what is being waited for."""
        if self.as_events:
            self._event("wait", text=text)
        elif not self.quiet:
            self._show(head=f"{'':11} {text}", style="dim")

    def warn(self, text: str) -> None:
        """Write something that stops nothing, once."""
        if self.as_events:
            self._event("warning", text=text)
        elif not self.quiet and text not in self.warned:
            self.warned.add(text)
            self._show(f" {visible(text)}", head="warning:", style="yellow")

    def fault(self, error: GpuInstallError) -> None:
        """Write an error: what happened; why; what was seen; what to do."""
        message = f" {visible(error.message)}{failure_mark(error.id)}"
        self._show(message, head="error:", style="red")
        rows = {"why": error.why, "seen": error.evidence, "do": hint_of(error)}
        for label, text in rows.items():
            if text:
                self._show(_hanging(f"{label:<5}", text))

    def progress(
        self,
        label: str,
        parts: Mapping[str, int | None],
        unit: Unit = "bytes",
    ) -> AbstractContextManager[Progress]:
        """Follow a work: a live bar in a terminal, a line every ten seconds in a log, and beside a bar that is drawn."""
        if self.as_events:
            return self._told(label, parts, unit)
        if self.quiet or not parts:
            return nullcontext(lambda _part, _count: None)
        if self.err.isatty() and not self.bars:
            return self._bar(label, parts, unit)
        return nullcontext(
            Work(parts, unit, LINE_EVERY_S, lambda work: self.step(label, str(work)))
        )

    @contextmanager
    def _bar(
        self,
        label: str,
        parts: Mapping[str, int | None],
        unit: Unit,
    ) -> Iterator[Progress]:
        # A terminal that does not know its width (a serial line, some containers) says 0.
        width = (os.get_terminal_size(self.err.fileno()).columns or SCREEN) - 1

        def draw(work: Work) -> None:
            line = f"{label:<11} {work.bar}{work}"
            # Blanks over what is left of a longer line, as not every terminal of Windows can erase it.
            self.bars[:] = [f"\r{line:<{width}.{width}}"]
            self._write("")

        work = Work(parts, unit, BAR_EVERY_S, draw)
        draw(work)
        try:
            yield work
        finally:
            self.bars.clear()
            self._write(f"\r{'':{width}}\r")

    def show_command(self, argv: Sequence[str]) -> None:
        """Write the command line of a program that is started."""
        if self.as_events:
            self._event("command", argv=list(argv))
        else:
            self._show(head=f"{'':11} $ {joined(map(in_a_line, argv))}", style="dim")

    @contextmanager
    def _told(
        self,
        label: str,
        parts: Mapping[str, int | None],
        unit: Unit,
    ) -> Iterator[Progress]:
        """Write how far a work is as events, and at its end."""

        def report(work: Work) -> None:
            self._event(
                "progress", label=label, unit=unit, done=work.done, size=work.size
            )

        work = Work(parts, unit, EVENT_EVERY_S, report)
        yield work
        report(work)

    def _event(self, event: str, /, **values: Any) -> None:
        self.block(json.dumps(redacted_document({"event": event, **values})))

    def _show(
        self,
        text: str = "",
        *,
        head: str = "",
        style: str = "bold",
    ) -> None:
        """Write a line that nothing depends on, above the bars; if it cannot be written, the work goes on."""
        self._write(f"{self._styled(head, style, self.err)}{text}\n")

    def _write(self, text: str) -> None:
        """Write above the bar."""
        for bar in self.bars:
            erased = f"\r{'':{len(bar) - 1}}\r" if text else ""
            text = f"{erased}{text}{bar}"
        with suppress(OSError):
            # One call for it all: threads write too.
            self.err.write(text)
            self.err.flush()


def failure_mark(identity: str | None) -> str:
    """Return what ends the line of a fault that is in the table of failures."""
    return f"   [{identity}]" if identity else ""


def in_a_line(word: str) -> str:
    """Return a word of a command line; of a program that stands in it, the beginning."""
    first = next(iter(word.splitlines()), "")
    return word if word == first else f"{first[:60]}…"


def hint_of(error: GpuInstallError) -> str | None:
    """Return what to do about an error that the command which was run can be told."""
    hint = error.hint or ""
    context = click.get_current_context(silent=True)
    if context:
        options: list[str] = []
        for parameter in context.command.params:
            options += parameter.opts
        hint = for_options(hint, options)
    return hint or None


def _hanging(label: str, text: str) -> str:
    """Return a text behind its label, further lines of it below its first."""
    head = f"  {label} "
    return head + visible(text, "\n").replace("\n", "\n" + " " * len(head))


class Work:
    """How far a work is; called with what was done, from any thread, it reports that now and then."""

    def __init__(
        self,
        parts: Mapping[str, int | None],
        unit: Unit,
        seconds: float,
        report: Callable[[Work], None],
    ) -> None:
        """Begin a work.

        Args:
            parts: How much there is to do of each part; None if that is not known.
            unit: What is counted.
            seconds: The least time between two reports.
            report: Is told how far the work is.
        """
        sizes = list(parts.values())
        self.size = None if None in sizes else sum(filter(None, sizes))
        self.done = 0
        self.unit = unit
        self._start = self._last = monotonic()
        self._seconds = seconds
        self._report = report
        self._lock = Lock()

    def __call__(self, _part: str, count: int) -> None:
        """Count what was done, never more than there is."""
        with self._lock:
            self.done += count
            if self.size is not None:
                self.done = min(self.done, self.size)
            if monotonic() - self._last >= self._seconds:
                self._last = monotonic()
                self._report(self)

    @property
    def bar(self) -> str:
        """``[#####...............] ``, empty if nobody knows how much there is."""
        if not self.size:
            return ""
        full = BAR * self.done // self.size
        return f"[{'#' * full:.<{BAR}}] "

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
