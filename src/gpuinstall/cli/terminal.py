"""A person's screen: colour where it is wanted, live bars where there is a terminal, plain lines in a log file.

Whatever a text holds, it moves no cursor and begins no line: what it has of that kind is written out here, and a colour
is ours alone.
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TextIO

from gpuinstall.advice import in_full
from gpuinstall.cli.run_log import RunLog, in_a_line
from gpuinstall.errors import GpuInstallError, InternalError
from gpuinstall.shell import joined
from gpuinstall.text import redacted, visible
from gpuinstall.units import display_path, duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

    from gpuinstall.cli.progress import Tally
    from gpuinstall.process import Finished
    from gpuinstall.reporter import Progress, Unit

Color = Literal["auto", "always", "never"]

_STYLES = {"": "0", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}
_FIRST = 0xF0000 + int.from_bytes(os.urandom(2), "little") // 2
_MARKS = {style: chr(_FIRST + number) for number, style in enumerate(_STYLES)}
"""Characters for private use that stand for our colours until they are written: no text from outside can know them."""
_OURS = "".join(_MARKS.values())
_COLORS = {ord(_MARKS[style]): f"\x1b[{code}m" for style, code in _STYLES.items()}

DOCS = "GPUINSTALL_DOCS"
COMMAND_LABELS = frozenset({"do", "or"})
"""The labels behind which commands stand."""
SCREEN = 80
"""How wide the lines are that end with a time."""
PIPE = 10_000
"""How wide a table may be where nobody reads in a terminal."""
READ_BYTES = 1_000_000
"""How long a document may be that a person would still read."""


class OutputError(InternalError):
    """The result cannot be written."""


@dataclass(frozen=True)
class Terminal:
    """Where a command writes: results to ``out``, progress and faults to ``err``; ``live`` draws bars just now."""

    as_json: bool = False
    quiet: bool = False
    verbose: bool = False
    bars: bool = True
    color: Color = "auto"
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    log: RunLog | None = None
    live: list[Console] = field(default_factory=list)

    @property
    def is_brief(self) -> bool:
        """Whether a person reads the notices, who need not be shown the same ones in full again."""
        return not self.verbose and self.err.isatty()

    def colored(self, stream: TextIO) -> bool:
        """Say whether ``stream`` gets colour: the option, then NO_COLOR, then FORCE_COLOR, then a terminal."""
        if self.color != "auto":
            return self.color == "always"
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or stream.isatty()

    def style(self, text: str, style: str, stream: TextIO | None = None) -> str:
        """Colour ``text`` where ``stream`` gets colour."""
        if not self.colored(stream or self.out):
            return text
        return f"{_MARKS[style]}{text}{_MARKS['']}"

    def line(self, text: str = "") -> None:
        """Write one line of the result."""
        self._print(visible(text, _OURS))

    def block(self, text: str) -> None:
        """Write what another program reads, as it is; a reader who has seen enough is no fault."""
        try:
            self.out.write(f"{text}\n")  # at once: threads say things too
            self.out.flush()
        except BrokenPipeError:
            pass
        except OSError as error:
            raise OutputError("output", f"the output cannot be written: {error.strerror}") from None

    def prose(self, text: str, indent: int = 0) -> None:
        """Write what is to be read and not to be copied: broken between words where a terminal is too narrow."""
        self._print(broken(visible(text, _OURS), columns(self.out), indent))

    def field(self, label: str, text: str) -> None:
        """Write one labelled line of the result."""
        text = folded(visible(text, _OURS), columns(self.out))
        self._print(f"{self.style(f'{visible(label):<11}', 'bold')} {text}")

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the one document that a command comes to."""
        text = json.dumps(document)  # a hundred times as fast as with indentation
        self.block(redacted(text if len(text) > READ_BYTES else json.dumps(document, indent=2)))

    def rows(self, rows: Iterable[tuple[str, str | None]], width: int = 5) -> None:
        """Write what belongs to a finding, each text behind its label (why, seen, do); None is left out."""
        for label, text in rows:
            if text:
                self._print(_hanging(f"{label:<{width}}", text, columns(self.out)))

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say one finished step."""
        if not self.quiet:
            self.notice(label, text, seconds)

    def notice(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say one step, whether or not progress is wanted."""
        width, text = columns(self.err), visible(text, _OURS)
        time = (
            ""
            if seconds is None
            else f"{duration(seconds):>{max(9, min(width or SCREEN, SCREEN) - 12 - len(text))}}"
        )
        self._say(
            f"{self.style(f'{visible(label):<11}', 'bold', self.err)} {folded(f'{text}{time}', width)}"
        )

    def detail(self, label: str, text: str) -> None:
        """Say a step that ``--verbose`` shows and the log keeps."""
        if self.verbose:
            self.notice(label, text)
        self.record(f"{label}: {text}")

    def wait(self, text: str) -> None:
        """Say what is being waited for."""
        if not self.quiet:
            self._say(
                self.style(f"{'':11} {folded(visible(text), columns(self.err))}", "dim", self.err)
            )

    def warn(self, text: str) -> None:
        """Say something that stops nothing."""
        if self.quiet:
            return
        message = broken(f"warning: {visible(text)}", columns(self.err), len("warning: "))
        self._say(message.replace("warning:", self.style("warning:", "yellow", self.err), 1))

    def progress(
        self, label: str, parts: Mapping[str, int | None], unit: Unit = "bytes"
    ) -> AbstractContextManager[Progress]:
        """Follow a work: live bars in a terminal, a line every ten seconds in a log, and beside bars that are drawn."""
        if self.quiet or not parts:
            return nullcontext(lambda _part, _count: None)
        from gpuinstall.cli.progress import Tally, lines

        if self.bars and self.err.isatty() and not self.live:
            return self._drawn(label, Tally(parts, unit))
        return lines(label, Tally(parts, unit), self.step)

    def console(self, stream: TextIO) -> Console:
        """What rich draws on: as wide as the terminal; a line for each row where nobody reads in one."""
        from rich.console import Console

        width = columns(stream) or PIPE
        return Console(
            file=stream,
            width=width,
            no_color=not self.colored(stream),
            highlight=False,
            markup=False,
        )

    @contextmanager
    def _drawn(self, label: str, tally: Tally) -> Iterator[Progress]:
        from gpuinstall.cli.progress import bars

        console = self.console(self.err)
        self.live.append(console)
        try:
            with bars(label, tally, console) as progress:
                yield progress
        finally:
            self.live.remove(console)

    def started(self, argv: Sequence[str]) -> None:
        """Say, to who wants to know, which program is run."""
        if self.verbose:
            self.show_command(argv)
        if self.log:
            self.log.started(argv)

    def show_command(self, argv: Sequence[str]) -> None:
        """Write a command line."""
        self._show(
            self.style(f"{'':11} $ {visible(joined(map(in_a_line, argv)))}", "dim", self.err)
        )

    def ended(self, finished: Finished) -> None:
        """Keep what it said."""
        if self.log:
            self.log.ended(finished)

    def record(self, text: str) -> None:
        """Keep what a person is not shown."""
        if self.log:
            self.log.write(text)

    def fault(self, error: GpuInstallError) -> None:
        """Write an error: what happened; why; what was seen; what to do."""
        mark = f"   [{error.id}]" if error.id else ""
        width = columns(self.err)
        page = page_of(error.id) if error.id and os.environ.get(DOCS) else None
        message = broken(f"error: {visible(error.message)}{mark}", width, len("error: "))
        self._say(message.replace("error:", self.style("error:", "red", self.err), 1))
        for label, text in (
            ("why", error.why),
            ("seen", error.evidence),
            ("do", hint_of(error)),
            ("page", page),
        ):
            if text:
                self._say(_hanging(f"{label:<5}", text, width))
        if self.log and self.log.path:
            self._show(f"  log   {display_path(self.log.path)}")

    def _print(self, text: str) -> None:
        self.block(text.translate(_COLORS))

    def _say(self, text: str) -> None:
        self.record(text.translate(dict.fromkeys(_COLORS)).strip())
        self._show(text)

    def _show(self, text: str) -> None:
        """Write a line that nothing depends on: above the bars; where it cannot be written, the work goes on."""
        text = text.translate(_COLORS)
        with suppress(OSError):
            if not self.live:
                self.err.write(f"{text}\n")  # at once: threads say things too
                self.err.flush()
                return
            from rich.text import Text

            self.live[-1].print(Text.from_ansi(text), soft_wrap=True)


def hint_of(error: GpuInstallError) -> str | None:
    """What to do about an error, with the command line that was run where a line says "the same"."""
    import click

    if not error.hint:
        return None
    context = click.get_current_context(silent=True)
    options = None
    if context:
        # "--no-code-check" is the second name of "--code-check".
        names = [
            (*parameter.opts, *parameter.secondary_opts) for parameter in context.command.params
        ]
        options = list(chain.from_iterable(names))
    return in_full(error.hint, ["gpuinstall", *sys.argv[1:]], options) or None


def page_of(identity: str) -> str:
    """Name a failure's page: a path in the documentation site, below the address in ``GPUINSTALL_DOCS``."""
    from gpuinstall.failures.table import load_failures

    site, page = os.environ.get(DOCS, ""), load_failures()[identity].page
    return f"{site.rstrip('/')}/{page}" if site else page


def columns(stream: TextIO) -> int | None:
    """Return how wide a terminal is, no more than ``COLUMNS`` says; None if the stream is not a terminal."""
    try:
        size = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return None
    requested = os.environ.get("COLUMNS", "")
    widths = [size, int(requested) if requested.isdecimal() else 0]
    # A terminal that does not know its width (a serial line, some containers) says 0.
    return min((width for width in widths if width > 0), default=SCREEN)


def folded(text: str, width: int | None) -> str:
    """Break a text that a label stands before where a narrow terminal would, but only at a comma and the like.

    A command that is to be copied has neither, and stays in one piece.
    """
    if width is None or len(text) + 12 <= width:
        return text
    lines = [""]
    for part in re.split(r"(?<=[,;:·]) | (?=and )", text):
        if lines[-1] and 12 + len(lines[-1]) + 1 + len(part) > width:
            lines.append(part)
        else:
            lines[-1] = f"{lines[-1]} {part}".lstrip()
    return f"\n{'':12}".join(lines)


def broken(text: str, width: int | None, indent: int = 0) -> str:
    """Break prose between words where a terminal is too narrow; what follows its first line is indented."""
    if width is None:
        return text
    from textwrap import wrap

    lines = (
        wrap(
            line,
            width,
            subsequent_indent=" " * indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        or [""]
        for line in text.split("\n")
    )
    return "\n".join(part for parts in lines for part in parts)


def _hanging(label: str, text: str, width: int | None) -> str:
    """Write a text behind its label: prose broken between words, a command whole, its remark below it if need be."""
    head, text = f"  {label} ", visible(text, "\n")
    room = width and width - len(head)
    parts = (
        _commands(text, room) if label.strip() in COMMAND_LABELS else broken(text, room).split("\n")
    )
    return head + ("\n" + " " * len(head)).join(parts)


def _commands(text: str, width: int | None) -> Iterator[str]:
    """Commands whole, the remarks of long ones below them; prose, which begins with a capital letter, broken."""
    for line in text.split("\n"):
        command, gap, remark = line.partition("   ")
        if width is None or len(line) <= width:
            yield line
        elif line[:1].isupper():
            yield from broken(line, width).split("\n")
        else:
            yield command
            yield from broken(remark.strip(), width, 2).split("\n") if gap else ()
