"""Print the output of commands as text, progress bars, or JSON.

Control characters in all text are escaped, so that a file or server cannot move the
cursor, start a line, or set colors.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from gpuinstall.base.advice import PROGRAM, Advice, list_commands
from gpuinstall.base.errors import InternalError
from gpuinstall.base.reporter import Progress, Reporter
from gpuinstall.base.text import format_duration, redact_document, sanitize
from gpuinstall.base.values import Value, field, replace
from gpuinstall.cli.commands import format_hint, split_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tqdm import tqdm

    from gpuinstall.base.advice import Hint
    from gpuinstall.base.finding import Finding

LINE_INTERVAL_S = 10.0
"""Seconds between two progress lines in a log."""

EVENT_INTERVAL_S = 0.2
"""Seconds between two progress events: 18,000 lines an hour."""

_JSON_OPTIONS = {"--json", "--json-events"}
_REQUESTING = {"", "--requirement", "--editable", "--group", "--extra"}
"""The options that request packages, and "" for an argument."""
_OTHER_MACHINE = {"--machine", "--gpu", "--driver", "--os", "--arch", "--target"}
"""The options of ``lock`` and ``plan`` that select another machine."""
_IDENTIFYING = {
    *("--machine", "--gpu", "--driver", "--os", "--arch", "--glibc"),
    *("--venv", "--into", "--lock"),
    *("--torch-index", "--index", "--default-index", "--find-links"),
}
"""The options that identify the machine, environment, lock, and sources."""


class OutputError(InternalError):
    """Error while writing the output of a command."""


class Terminal(Reporter, Value):
    """Reporter that prints results to ``out`` and other lines to ``err``."""

    as_json: bool = False
    as_events: bool = False
    """Whether all output is written to ``out`` as lines of JSON."""

    quiet: bool = False
    verbose: bool = False
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)
    bars: list[tqdm[Any]] = field(default_factory=list)
    """The progress bars at the bottom of the terminal."""
    printed_warnings: set[str] = field(default_factory=set)
    """The warnings that were printed."""

    @property
    def prints_json(self) -> bool:
        """Whether the result is a JSON document."""
        return self.as_json or self.as_events

    def is_colored(self, stream: TextIO) -> bool:
        """Return whether output to a stream is colored."""
        if os.environ.get("NO_COLOR"):
            return False
        return bool(os.environ.get("FORCE_COLOR")) or _supports_bars(stream)

    def _style_head(self, head: str, stream: TextIO, style: dict[str, Any]) -> str:
        """Escape the start of a line, and style it on a colored stream."""
        head = sanitize(head)
        if not head or not self.is_colored(stream):
            return head
        return click.style(head, **(style or {"bold": True}))

    def print_line(
        self,
        text: str = "",
        *,
        head: str = "",
        **style: Any,
    ) -> None:
        """Print a line of the command's result.

        Args:
            text: The text.
            head: The styled start of the line.
            style: Arguments of ``click.style``; without any, the head is bold.
        """
        self.print_block(self._style_head(head, self.out, style) + sanitize(text))

    def print_block(self, text: str) -> None:
        """Print text unchanged for another program, with one line break."""
        text = text.removesuffix("\n")
        # The first bar clears and redraws all of them.
        bars: AbstractContextManager[None] = nullcontext()
        for bar in self.bars[:1]:
            bars = bar.external_write_mode(file=self.out)
        try:
            # Write text and line break in one call: other threads print too.
            with bars:
                self.out.write(f"{text}\n")
                self.out.flush()
        except BrokenPipeError:
            pass  # the reading program, such as head, has exited
        except OSError as error:
            raise OutputError(
                "output", f"the output cannot be written: {error.strerror}"
            ) from None

    def print_field(self, label: str, text: Hint) -> None:
        """Print one labeled line of the result."""
        self.print_line(f" {format_hint(text)}", head=f"{label:<11}")

    def print_rows(
        self, rows: Iterable[tuple[str, str | None]], width: int = 5
    ) -> None:
        """Print indented, labeled rows, except rows without text.

        Args:
            rows: The labels and texts.
            width: The width of the labels in columns.
        """
        for label, text in rows:
            if text:
                head = f"  {label:<{width}} "
                lines = sanitize(text, "\n").replace("\n", "\n" + " " * len(head))
                self.print_block(head + lines)

    def print_finding(self, finding: Finding) -> None:
        """Print a problem with its cause, evidence, and fix."""
        head, color = ("error:", "red") if finding.blocking else ("note:", "yellow")
        mark = f"   [{finding.id}]" if finding.id else ""
        self.print_line(f" {finding.message}{mark}", head=head, fg=color)
        self.print_rows([("why", finding.why), ("seen", finding.evidence)])
        self.print_hints(finding.fixes)

    def print_hints(self, hints: Iterable[Hint], width: int = 5) -> None:
        """Print the row of fixes, one in each line.

        Args:
            hints: The fixes.
            width: The width of the label in columns.
        """
        self.print_rows([("do", "\n".join(map(format_hint, hints)))], width)

    def print_document(self, document: Mapping[str, Any]) -> None:
        """Print the JSON document of a command."""
        if self.as_events:
            self._write_event("result", **document)
        else:
            self.print_block(json.dumps(redact_document(document), indent=2))

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Print a finished step, unless ``--quiet`` is given."""
        if self.as_events or not self.quiet:
            self.notice(label, text, seconds)

    def detail(self, label: str, text: str) -> None:
        """Print a progress detail if ``--verbose`` is given."""
        if self.verbose:
            self.step(label, text)

    def notice(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Print a finished step, even with ``--quiet``.

        Args:
            label: The name of the step.
            text: Its result.
            seconds: Its duration. None: not printed.
        """
        if self.as_events:
            self._write_event("step", label=label, text=text, seconds=seconds)
            return
        if seconds is not None:
            text += f"   {format_duration(seconds)}"
        self._show(f" {text}", head=f"{label:<11}")

    def wait(self, text: str) -> None:
        """Print that the command waits, with the reason."""
        if self.as_events:
            self._write_event("wait", text=text)
        elif not self.quiet:
            self._show(head=f"{'':11} {text}", dim=True)

    def warn(self, text: str, *fixes: Hint) -> None:
        """Print a warning and its fixes, unless it was already printed."""
        hints = apply_hints(fixes)
        if self.as_events:
            commands = list_commands(hints, format_hint)
            self._write_event("warning", text=text, do=commands)
        elif not self.quiet and text not in self.printed_warnings:
            self.printed_warnings.add(text)
            self._show(f" {text}", head="warning:", fg="yellow")
            with suppress(OutputError):
                self._errors.print_hints(hints)

    def fault(self, error: Finding) -> None:
        """Print an error with its cause, evidence, and fix."""
        with suppress(OutputError):
            hints = apply_hints(error.fixes)
            self._errors.print_finding(replace(error, fixes=hints))

    @contextmanager
    def progress(
        self,
        label: str,
        parts: Mapping[str, int | None],
    ) -> Iterator[Progress]:
        """Report a transfer as a bar on a terminal or as lines in a log.

        Args:
            label: The name of the transfer.
            parts: The size of each file in bytes. None: unknown.
        """
        if not self.as_events and (self.quiet or not parts):
            yield lambda _part, _count: None
            return
        from gpuinstall.cli.progress import WorkMeter

        def report(meter: WorkMeter) -> None:
            if self.as_events:
                numbers = {"done": meter.n, "size": meter.total}
                self._write_event("progress", label=label, unit="bytes", **numbers)
            else:
                self.step(label, str(meter))

        is_drawn = not self.as_events and _supports_bars(self.err)
        stream = self.err if is_drawn else None
        seconds = EVENT_INTERVAL_S if self.as_events else LINE_INTERVAL_S
        meter = WorkMeter(label, parts, stream, report, seconds)
        if is_drawn:
            self.bars.append(meter)
        counting = Lock()

        def advance(_part: str, count: int) -> None:
            with counting:
                meter.update(count)

        try:
            yield advance
        finally:
            if is_drawn:
                self.bars.remove(meter)
            if self.as_events:
                # Also report a transfer that finishes before the first event.
                meter.display()
            meter.close()

    def show_command(self, argv: Sequence[str]) -> None:
        """Print the command line of a program before it starts."""
        if self.as_events:
            self._write_event("command", argv=list(argv))
        else:
            program, *words = argv
            line = format_hint(Advice(program, tuple(words)))
            self._show(head=f"{'':11} $ {line}", dim=True)

    def _write_event(self, event: str, /, **values: Any) -> None:
        self.print_block(json.dumps(redact_document({"event": event, **values})))

    @property
    def _errors(self) -> Terminal:
        """The terminal that prints to stderr."""
        return replace(self, out=self.err)

    def _show(self, text: str = "", **style: Any) -> None:
        """Print a progress line, if stderr is open."""
        with suppress(OutputError):
            self._errors.print_line(text, **style)


CURRENT_TERMINAL = ContextVar[Terminal | None]("CURRENT_TERMINAL", default=None)
"""The terminal of the command. None: options are not parsed yet."""


def _supports_bars(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that supports progress bars."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def apply_hints(hints: Iterable[Hint]) -> tuple[Hint, ...]:
    """Apply hints to the command line of this run.

    Hints that lead to the same command, or to one without a request, are omitted.
    """
    context = click.get_current_context(silent=True)
    if context is None:
        return tuple(hints)
    path = context.command_path.split()[1:]
    typed = _split_words(context.command, context.obj[len(path) :])
    applied: list[Hint | None] = []
    for hint in hints:
        if isinstance(hint, str) or hint.program not in {"", PROGRAM}:
            applied.append(hint)
        elif hint.program:
            applied.append(_keep_options(hint, context, typed))
        else:
            with suppress(click.NoSuchOption):
                words = _change_words(hint, context.command, typed)
                if words is not None:
                    words = [*path, *words]
                    applied.append(Advice(PROGRAM, tuple(words), note=hint.note))
    return tuple(dict.fromkeys(filter(None, applied)))


class _Part(NamedTuple):
    """Option with its value, or an argument without a name."""

    name: str
    words: tuple[str, ...]


def _split_words(command: click.Command, words: Sequence[str]) -> list[_Part]:
    """Split the words of a command line into options and arguments.

    The words after an argument can belong to another program.

    Raises:
        NoSuchOption: The command lacks an option.
    """
    # The context inherits -h, because click makes a command's help option only once.
    parent = click.get_current_context()
    context = click.Context(command, parent, **command.context_settings)
    parser = command.make_parser(context)
    values, _, order = parser.parse_args([*words])
    parts = []
    for one in dict.fromkeys(order):
        given = values[one.name or ""]
        for value in given if isinstance(given, list | tuple) else [given]:
            # A flag has a bool, and click returns a sentinel for a missing argument.
            own = (value,) if isinstance(value, str) else ()
            if isinstance(one, click.Option):
                spellings = one.secondary_opts if value is False else one.opts
                name = max(spellings, key=len)
                parts.append(_Part(name, (name, *own)))
            elif own:
                parts.append(_Part("", own))
    # A hint is for people, even in a JSON document.
    return [part for part in parts if part.name not in _JSON_OPTIONS]


def _join_parts(parts: Iterable[_Part]) -> list[str]:
    # Options come before arguments, which can belong to another program.
    ordered = sorted(parts, key=lambda part: not part.name)
    return [word for part in ordered for word in part.words]


def _change_words(
    hint: Advice, command: click.Command, typed: Sequence[_Part]
) -> list[str] | None:
    """Return the changed words of this run; None if they lead nowhere.

    Raises:
        NoSuchOption: The command lacks an option of the hint.
    """
    removed = _split_words(command, hint.removed)
    added = _split_words(command, hint.arguments)
    names = {part.name for part in (*removed, *added)}
    is_replaced = "--only" in {part.name for part in added}
    changed = names | _REQUESTING if is_replaced else names - _REQUESTING
    kept = [part for part in typed if part.name not in changed and part not in removed]
    kept += added
    removes_argument = any(not part.name for part in removed)
    has_request = any(part.name in _REQUESTING for part in kept)
    is_possible = {*removed} & {*typed} and has_request
    if removes_argument and not (is_replaced or is_possible):
        return None
    return _join_parts(kept) if {*kept} != {*typed} else None


def _keep_options(
    hint: Advice, context: click.Context, typed: Sequence[_Part]
) -> Advice | None:
    """Keep options of the command line in a hint with another command.

    Returns:
        The hint. None if it is the same command, or is for this machine, but the
        command line for another one.
    """
    command, path, words = split_command(hint.arguments)
    if command is None:
        return hint
    own = _split_words(command, words)
    names = {part.name for part in typed}
    accepted = {spelling for one in command.params for spelling in one.opts}
    is_of_lock = context.command.name in {"lock", "plan"}
    if is_of_lock and names & _OTHER_MACHINE and "--venv" in accepted:
        return None
    venv = Path(context.params.get("venv") or "")
    same = {_Part("--venv", ("--venv", str(one))) for one in (venv, venv.absolute())}
    if command is context.command and {*own} - same == {*typed} - same:
        return None
    kept = _IDENTIFYING & accepted
    if context.command.name in {"plan", "check"} and path == ["lock"]:
        kept = (accepted | {""}) - {"--offline", "--quiet"}
    kept -= {part.name for part in own}
    parts = (part for part in typed if part.name in kept)
    return replace(hint, arguments=(*path, *_join_parts(parts), *words))
