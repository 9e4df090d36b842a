"""A person's screen: colour where it is wanted, live bars where there is a terminal, plain lines in a log file."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TextIO

from gpuinstall.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuinstall.errors import GpuInstallError
    from gpuinstall.reporter import Meter

Color = Literal["auto", "always", "never"]

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33"}


class OutputError(InternalError):
    """The result cannot be written."""


@dataclass(frozen=True)
class Terminal:
    """Where a command writes: results to ``out``, progress and faults to ``err``."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False
    progress: bool = True
    color: Color = "auto"
    out: TextIO = field(default_factory=lambda: sys.stdout)
    err: TextIO = field(default_factory=lambda: sys.stderr)

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
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"

    def line(self, text: str = "") -> None:
        """Write one line of the result; a reader who has seen enough is no fault."""
        try:
            print(text, file=self.out, flush=True)
        except BrokenPipeError:
            pass
        except OSError as error:
            raise OutputError("output", f"the result cannot be written: {error.strerror}") from None

    def field(self, label: str, text: str) -> None:
        """Write one labelled line of the result."""
        self.line(f"{self.style(f'{label:<11}', 'bold')} {text}")

    def rows(self, rows: Iterable[tuple[str, str | None]]) -> None:
        """Write what belongs to a finding, each text behind its label (why, seen, do); None is left out."""
        for label, text in rows:
            if text:
                self.line(_hanging(label, text))

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say one finished step."""
        if self.quiet:
            return
        time = "" if seconds is None else f"{duration(seconds):>{max(1, 72 - 12 - len(text)) + 8}}"
        self._say(f"{self.style(f'{label:<11}', 'bold', self.err)} {text}{time}")

    def wait(self, text: str) -> None:
        """Say what is being waited for."""
        if not self.quiet:
            self._say(self.style(f"{'':11} {text}", "dim", self.err))

    def warn(self, text: str) -> None:
        """Say something that stops nothing."""
        self._say(f"{self.style('warning:', 'yellow', self.err)} {text}")

    @contextmanager
    def transfer(self, label: str, size: int | None) -> Iterator[Meter]:
        """Follow one download: a live bar on a terminal, nothing in a log."""
        if self.quiet or not self.progress or not self.err.isatty():
            yield lambda _count: None
            return
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description:<11}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(file=self.err), transient=True) as bar:
            task = bar.add_task(label, total=size)
            yield lambda count: bar.update(task, advance=count)

    def fault(self, error: GpuInstallError) -> None:
        """Write an error: what happened; why; what was seen; what to do."""
        mark = f"   [{error.id}]" if error.id else ""
        self._say(f"{self.style('error:', 'red', self.err)} {error.message}{mark}")
        for label, text in (("why", error.why), ("seen", error.seen), ("do", error.hint)):
            if text:
                self._say(_hanging(label, text))

    def _say(self, text: str) -> None:
        """Write a line that nothing depends on: where it cannot be written, the work goes on."""
        with suppress(OSError):
            print(text, file=self.err, flush=True)


def duration(seconds: float) -> str:
    """Write seconds as people do: ``4.1 s``, ``1 min 12 s``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


def _hanging(label: str, text: str) -> str:
    return f"  {label:<5} " + text.replace("\n", "\n" + " " * 8)
