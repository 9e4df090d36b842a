"""What a command writes: for a person, with colour and live bars in a terminal, or as JSON lines for a program.

Control characters of a text are made visible here: it moves no cursor and begins no line. Only we choose colours.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING, Any, TextIO

import click

from gpuinstall.base.advice import OURS, as_pasted, for_command
from gpuinstall.base.errors import GpuInstallError, InternalError
from gpuinstall.base.reporter import Reporter
from gpuinstall.base.shell import joined, this_shell
from gpuinstall.base.text import duration, redacted_document, visible
from gpuinstall.base.values import Value, field, replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tqdm import tqdm

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.reporter import Progress

SCREEN = 80
"""How wide the lines are that end with a time. No line is broken: a command in it can be copied."""

LINE_EVERY_S = 10.0
"""How often a log gets a line."""

EVENT_EVERY_S = 0.2
"""How often an event says how far a work is: a bar drawn from it moves, and an hour makes no more than 18,000 lines."""


_FOR_PROGRAMS = {"--json", "--json-events"}


class OutputError(InternalError):
    """The result cannot be written."""


class Terminal(Reporter, Value):
    """Where a command writes: results to ``out``, progress and faults to ``err``."""

    as_json: bool = False
    as_events: bool = False
    """Whether all that happens is lines of JSON on ``out``, and nothing else is written."""

    quiet: bool = False
    verbose: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    bars: list[tqdm[Any]] = field(default_factory=list)
    """The bars in the last lines of the terminal."""
    warned: set[str] = field(default_factory=set)
    """The warnings that were written."""

    @property
    def is_for_programs(self) -> bool:
        """Whether the result is a document."""
        return self.as_json or self.as_events

    def colored(self, stream: TextIO) -> bool:
        """Whether ``stream`` gets colour: NO_COLOR decides, then FORCE_COLOR, then whether it is a terminal."""
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or _moves_cursor(stream)

    def _styled(
        self,
        head: str,
        stream: TextIO,
        style: dict[str, Any],
    ) -> str:
        """Return the head of a line made visible, in a style if ``stream`` gets any.

        Args:
            head: The beginning of a line.
            stream: Where the line is written.
            style: That of click; empty: bold.
        """
        head = visible(head)
        if not head or not self.colored(stream):
            return head
        return click.style(head, **(style or {"bold": True}))

    def line(
        self,
        text: str = "",
        *,
        head: str = "",
        **style: Any,
    ) -> None:
        """Write one line of the result; ``head`` comes before the text, in a style.

        Args:
            text: The text; control characters in it are shown.
            head: What comes before it.
            style: How the head looks, as click has it; nothing: bold.
        """
        self.block(self._styled(head, self.out, style) + visible(text))

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
        """Write what belongs to a line, each text behind its label (why, seen, do); None is left out.

        Args:
            rows: The labels and texts.
            width: How wide the labels are.
        """
        for label, text in rows:
            if text:
                self.block(_hanging(f"{label:<{width}}", text))

    def finding(self, finding: Finding) -> None:
        """Write what is wrong: whether it blocks, what, its failure; why; what was seen; what to do."""
        head, color = ("error:", "red") if finding.blocking else ("note:", "yellow")
        mark = f"   [{finding.id}]" if finding.id else ""
        self.line(f" {finding.message}{mark}", head=head, fg=color)
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

    def detail(self, label: str, text: str) -> None:
        """Write one step with ``--verbose`` alone."""
        if self.verbose:
            self.step(label, text)

    def notice(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Write one step, also with ``--quiet``.

        Args:
            label: What was done.
            text: What came of it.
            seconds: What it took; None: that is not told.
        """
        if self.as_events:
            self._event("step", label=label, text=text, seconds=seconds)
            return
        text = visible(text)
        if seconds is not None:
            # The time ends the line, in the same column as those above it.
            text += f"{duration(seconds):>{max(9, SCREEN - 12 - len(text))}}"
        self._show(f" {text}", head=f"{label:<11}")

    def wait(self, text: str) -> None:
        """Write what is being waited for."""
        if self.as_events:
            self._event("wait", text=text)
        elif not self.quiet:
            self._show(head=f"{'':11} {text}", dim=True)

    def warn(self, text: str) -> None:
        """Write something that stops nothing, once."""
        if self.as_events:
            self._event("warning", text=text)
        elif not self.quiet and text not in self.warned:
            self.warned.add(text)
            self._show(f" {visible(text)}", head="warning:", fg="yellow")

    def fault(self, error: GpuInstallError) -> None:
        """Write an error: what happened; why; what was seen; what to do."""
        with suppress(OutputError):
            replace(self, out=self.err).finding(advised_finding(error))

    @contextmanager
    def progress(
        self,
        label: str,
        parts: Mapping[str, int | None],
    ) -> Iterator[Progress]:
        """Follow a work: a live bar in a terminal, a line every ten seconds in a log.

        Args:
            label: What is done.
            parts: The bytes of each file; None if they are not known.
        """
        if not self.as_events and (self.quiet or not parts):
            yield lambda _part, _count: None
            return
        from gpuinstall.cli.progress import WorkMeter

        def report(meter: WorkMeter) -> None:
            if self.as_events:
                numbers = {"done": meter.n, "size": meter.total}
                self._event("progress", label=label, unit="bytes", **numbers)
            else:
                self.step(label, str(meter))

        is_drawn = not self.as_events and _moves_cursor(self.err)
        stream = self.err if is_drawn else None
        seconds = EVENT_EVERY_S if self.as_events else LINE_EVERY_S
        meter = WorkMeter(label, parts, stream, report, seconds)
        if is_drawn:
            self.bars.append(meter)
        counting = Lock()

        def advance(_part: str, count: int) -> None:
            # Threads count at once.
            with counting:
                meter.update(count)

        try:
            yield advance
        finally:
            if is_drawn:
                self.bars.remove(meter)
            if self.as_events:
                # A work that ends before its first report is told of all the same.
                meter.display()
            meter.close()

    def show_command(self, argv: Sequence[str]) -> None:
        """Write the command line of a program that is started."""
        if self.as_events:
            self._event("command", argv=list(argv))
        else:
            self._show(head=f"{'':11} $ {joined(map(in_a_line, argv))}", dim=True)

    def _event(self, event: str, /, **values: Any) -> None:
        self.block(json.dumps(redacted_document({"event": event, **values})))

    def _show(
        self,
        text: str = "",
        *,
        head: str,
        **style: Any,
    ) -> None:
        """Write a line that nothing depends on, above the bars; if it cannot be written, the work goes on.

        Args:
            text: The line; what comes from outside in it was made visible.
            head: What comes before it, in a style.
            style: How the head looks, as click has it; nothing: bold.
        """
        text = f"{self._styled(head, self.err, style)}{text}\n"
        # The first of them takes all from the screen, and draws them again.
        bars: AbstractContextManager[None] = nullcontext()
        for bar in self.bars[:1]:
            bars = bar.external_write_mode(file=self.err)
        with suppress(OSError), bars:
            # One call for it all: threads write too.
            self.err.write(text)
            self.err.flush()


CURRENT = ContextVar[Terminal | None]("CURRENT", default=None)
"""That of the command that runs; None until its options are parsed: words behind ``run`` may be another program's."""


def _moves_cursor(stream: TextIO) -> bool:
    """Whether a stream is a terminal that draws bars and colours."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def in_a_line(word: str) -> str:
    """Return a word of a command line; of a program that stands in it, the beginning."""
    first = next(iter(word.splitlines()), "")
    return word if word == first else f"{first[:60]}…"


def advised_finding(error: GpuInstallError) -> Finding:
    """Return an error as a value, with what to do about it for the command that was run.

    Lines to run it again are whole command lines; those that need an option which the command lacks are left out.
    """
    words = (OURS, *sys.argv[1:])
    end = len(words)
    options: list[str] | None = None
    context = click.get_current_context(silent=True)
    if context:
        options = [option for one in context.command.params for option in one.opts]
        # An option that the advice adds must not land among the words of another program.
        if "--" in words or not context.allow_interspersed_args:
            end = len(context.command_path.split())
    # A hint is for people, also in a document.
    command = [word for word in words[:end] if word not in _FOR_PROGRAMS]
    lines = for_command(error.hint or "", command, words[end:], options)
    return replace(error.finding, fixes=lines)


def _hanging(label: str, text: str) -> str:
    """Return a text behind its label, further lines of it below its first."""
    head = f"  {label} "
    lines = visible(as_pasted(text, this_shell(os.environ)), "\n")
    return head + lines.replace("\n", "\n" + " " * len(head))
