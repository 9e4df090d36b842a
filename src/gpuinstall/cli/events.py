"""What happens as JSON lines, for a program that runs ours: one object a line on stdout, the document last."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpuinstall.base.text import redacted
from gpuinstall.cli.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpuinstall.base.reporter import Progress, Unit

EVENT_EVERY_S = 0.2
"""How often it is written how far a work is: a bar drawn from it moves, and an hour makes no more than 18,000 lines."""


class EventTerminal(Terminal):
    """Writes every event as a line of JSON, and nothing else to stdout."""

    def notice(self, label: str, text: str, seconds: float | None = None) -> None:
        """Write one step."""
        self._event("step", label=label, text=text, seconds=seconds)

    step = notice

    def wait(self, text: str) -> None:
        """Write what is being waited for."""
        self._event("wait", text=text)

    def warn(self, text: str) -> None:
        """Write something that stops nothing."""
        self._event("warning", text=text)

    @contextmanager
    def progress(
        self,
        label: str,
        parts: Mapping[str, int | None],
        unit: Unit = "bytes",
    ) -> Iterator[Progress]:
        """Write how far a work is, five times a second, and at its end."""
        from gpuinstall.cli.progress import Work, ticker

        work = Work(parts, unit)

        def report() -> None:
            self._event("progress", label=label, unit=unit, done=work.done, size=work.size)

        with ticker(work, EVENT_EVERY_S, report) as advance:
            yield advance
        report()

    def show_command(self, argv: Sequence[str]) -> None:
        """Write which program is run."""
        self._event("command", argv=list(argv))

    def document(self, document: Mapping[str, Any]) -> None:
        """Write the document of the command."""
        self._event("result", **document)

    def _event(self, event: str, /, **values: Any) -> None:
        text = redacted(json.dumps({"event": event, **values}))
        self.block(text)
