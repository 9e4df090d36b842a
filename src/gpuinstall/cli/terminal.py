"""A person's screen: colour if it is requested, live bars in a terminal, plain lines in a log file.

Control characters of a text are made visible here: it moves no cursor and begins no line. Only we choose colours.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, TextIO

from gpuinstall.base.advice import for_options
from gpuinstall.base.errors import GpuInstallError, InternalError
from gpuinstall.base.shell import joined
from gpuinstall.base.text import redacted, visible
from gpuinstall.base.units import display_path, duration
from gpuinstall.base.values import dataclass
from gpuinstall.cli.run_log import RunLog, in_a_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from gpuinstall.base.finding import Finding
    from gpuinstall.base.machine import Machine
    from gpuinstall.base.process import Finished
    from gpuinstall.base.reporter import Progress, Unit
    from gpuinstall.cli.progress import Work

_STYLES = {
    "": "0",
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
}
_FIRST_MARK = 0xF0000 + int.from_bytes(os.urandom(2), "little") // 2
_MARKS = {style: chr(_FIRST_MARK + number) for number, style in enumerate(_STYLES)}
"""Characters for private use that stand for our colours until they are written: no text from outside can know them."""
_ALL_MARKS = "".join(_MARKS.values())
_COLORS = {ord(_MARKS[style]): f"\x1b[{code}m" for style, code in _STYLES.items()}
_NO_COLORS = dict.fromkeys(_COLORS)

DOCS = "GPUINSTALL_DOCS"
SCREEN = 80
"""How wide the lines are that end with a time. No line is broken: a command in it can be copied."""
READ_BYTES = 1_000_000
"""How long a document may be that a person would still read."""


class OutputError(InternalError):
    """The result cannot be written."""


@dataclass(frozen=True)
class Terminal:
    """Where a command writes: results to ``out``, progress and faults to ``err``."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    log: RunLog | None = None
    live: list[Console] = field(default_factory=list)
    """Where bars are drawn just now."""
    warned: set[str] = field(default_factory=set)
    """The warnings that were written."""
    machines: list[Machine] = field(default_factory=list)
    """The machine, once the command has read it."""

    def colored(self, stream: TextIO) -> bool:
        """Whether ``stream`` gets colour: NO_COLOR decides, then FORCE_COLOR, then whether it is a terminal."""
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()

    def style(self, text: str, style: str, stream: TextIO | None = None) -> str:
        """Return ``text`` in a colour if ``stream`` gets colour."""
        if not self.colored(stream or self.out):
            return text
        return f"{_MARKS[style]}{text}{_MARKS['']}"

    def headline(self, finding: Finding) -> str:
        """Return the first line of a finding: whether it blocks, what is wrong, its failure."""
        if finding.blocking:
            word = self.style("error:", "red")
        else:
            word = self.style("note:", "yellow")
        return f"{word} {finding.message}{_failure_mark(finding.id)}"

    def line(self, text: str = "") -> None:
        """Write one line of the result."""
        self._print(visible(text, _ALL_MARKS))

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
            raise OutputError("output", f"the output cannot be written: {error.strerror}") from None

    def field(self, label: str, text: str) -> None:
        """Write one labelled line of the result."""
        self._print(f"{self._label(label, self.out)} {visible(text, _ALL_MARKS)}")

    def rows(self, rows: Iterable[tuple[str, str | None]], width: int = 5) -> None:
        """Write what belongs to a finding, each text behind its label (why, seen, do); None is left out."""
        for label, text in rows:
            if text:
                self._print(_hanging(f"{label:<{width}}", text))

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the JSON document of a command."""
        text = json.dumps(document)
        # A long one is not for a person, and indentation takes a hundred times as long.
        if len(text) <= READ_BYTES:
            text = json.dumps(document, indent=2)
        self.block(redacted(text))

    def _print(self, text: str) -> None:
        self.block(text.translate(_COLORS))

    def _label(self, label: str, stream: TextIO) -> str:
        return self.style(f"{visible(label):<11}", "bold", stream)

    def console(self, stream: TextIO) -> Console:
        """Return what rich draws on: as wide as the terminal; elsewhere wide enough for a line for each row."""
        from rich.console import Console

        width = 10_000
        if stream.isatty():
            # A terminal that does not know its width (a serial line, some containers) says 0.
            width = os.get_terminal_size(stream.fileno()).columns or SCREEN
        return Console(
            file=stream,
            width=width,
            no_color=not self.colored(stream),
            highlight=False,
            markup=False,
        )

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Write one finished step, unless ``--quiet``."""
        if not self.quiet:
            self.notice(label, text, seconds)

    def notice(self, label: str, text: str, seconds: float | None = None) -> None:
        """Write one step, also with ``--quiet``."""
        text = visible(text, _ALL_MARKS)
        if seconds is not None:
            # The time ends the line, in the same column as those above it.
            text += f"{duration(seconds):>{max(9, SCREEN - 12 - len(text))}}"
        self._report(f"{self._label(label, self.err)} {text}")

    def detail(self, label: str, text: str) -> None:
        """Write a step that ``--verbose`` shows and the log keeps."""
        if self.verbose:
            self.notice(label, text)
        self.record(f"{label}: {text}")

    def wait(self, text: str) -> None:
        """Write what is being waited for."""
        if not self.quiet:
            self._report(self.style(f"{'':11} {visible(text)}", "dim", self.err))

    def warn(self, text: str) -> None:
        """Write something that stops nothing, once."""
        if not self.quiet and text not in self.warned:
            self.warned.add(text)
            self._report(f"{self.style('warning:', 'yellow', self.err)} {visible(text)}")

    def fault(self, error: GpuInstallError) -> None:
        """Write an error: what happened; why; what was seen; what to do."""
        head = self.style("error:", "red", self.err)
        self._report(f"{head} {visible(error.message)}{_failure_mark(error.id)}")
        rows = {
            "why": error.why,
            "seen": error.evidence,
            "do": hint_of(error),
            "page": page_of(error.id) if error.id and os.environ.get(DOCS) else None,
        }
        for label, text in rows.items():
            if text:
                self._report(_hanging(f"{label:<5}", text))
        if self.log and self.log.path:
            self._show(f"  log   {display_path(self.log.path)}")

    def progress(
        self,
        label: str,
        parts: Mapping[str, int | None],
        unit: Unit = "bytes",
    ) -> AbstractContextManager[Progress]:
        """Follow a work: a live bar in a terminal, a line every ten seconds in a log, and beside a bar that is drawn."""
        if self.quiet or not parts:
            return nullcontext(lambda _part, _count: None)
        from gpuinstall.cli.progress import Work, lines

        work = Work(parts, unit)
        if self.err.isatty() and not self.live:
            return self._drawn(label, work)
        return lines(label, work, self.step)

    @contextmanager
    def _drawn(self, label: str, work: Work) -> Iterator[Progress]:
        from gpuinstall.cli.progress import bar

        console = self.console(self.err)
        self.live.append(console)
        try:
            with bar(label, work, console) as progress:
                yield progress
        finally:
            self.live.remove(console)

    def started(self, argv: Sequence[str]) -> None:
        """Write a program's command line with ``--verbose``, and keep it."""
        if self.verbose:
            self.show_command(argv)
        if self.log:
            self.log.started(argv)

    def show_command(self, argv: Sequence[str]) -> None:
        """Write a command line."""
        line = f"{'':11} $ {visible(joined(map(in_a_line, argv)))}"
        self._show(self.style(line, "dim", self.err))

    def ended(self, finished: Finished) -> None:
        """Keep what a program wrote."""
        if self.log:
            self.log.ended(finished)

    def record(self, text: str) -> None:
        """Keep what a person is not shown."""
        if self.log:
            self.log.write(text)

    def _report(self, text: str) -> None:
        self.record(text.translate(_NO_COLORS).strip())
        self._show(text)

    def _show(self, text: str) -> None:
        """Write a line that nothing depends on, above the bars; if it cannot be written, the work goes on."""
        text = text.translate(_COLORS)
        with suppress(OSError):
            if not self.live:
                # One call for text and line end: threads write too.
                self.err.write(f"{text}\n")
                self.err.flush()
                return
            from rich.text import Text

            self.live[-1].print(Text.from_ansi(text), soft_wrap=True)


def _failure_mark(identity: str | None) -> str:
    return f"   [{identity}]" if identity else ""


def hint_of(error: GpuInstallError) -> str | None:
    """Return what to do about an error that the command which was run can be told."""
    import click

    hint = error.hint or ""
    context = click.get_current_context(silent=True)
    if context:
        options: list[str] = []
        for parameter in context.command.params:
            options += parameter.opts
        hint = for_options(hint, options)
    return hint or None


def page_of(identity: str) -> str:
    """Return the page of a failure: a path in the documentation site, below the address in ``GPUINSTALL_DOCS``."""
    from gpuinstall.catalog.failures.table import load_failures

    page = load_failures()[identity].page
    site = os.environ.get(DOCS)
    return f"{site.rstrip('/')}/{page}" if site else page


def _hanging(label: str, text: str) -> str:
    """Return a text behind its label, further lines of it below its first."""
    head = f"  {label} "
    return head + visible(text, "\n").replace("\n", "\n" + " " * len(head))
