"""Progress is an object handed in: rooms that work report to it, and only the CLI knows about terminals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

Meter = Callable[[int], None]
"""Counts the bytes of one file; a transfer that begins again takes back what it had counted."""
Progress = Callable[[str, int], None]
"""Counts what is done of a part of a work, by its name."""


class Reporter:
    """Where a room reports what it does: nowhere, unless a class made of this one shows it.

    Threads may call it at the same time.
    """

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Report one finished step: its name, what came of it, how long it took.

        Args:
            label: Its name, a word or two: ``Download``.
            text: What came of it, in a line.
            seconds: How long it took; None if that is of no interest.
        """

    def detail(self, label: str, text: str) -> None:
        """Report a fact that only ``--verbose`` prints."""

    def notice(self, label: str, text: str) -> None:
        """Report what a user reads who has turned the progress off too: what a stranger chose."""

    def wait(self, text: str) -> None:
        """Report what is being waited for."""

    def warn(self, text: str) -> None:
        """Report something that the user should know and that stops nothing."""

    def progress(
        self,
        label: str,  # noqa: ARG002
        parts: Mapping[str, int | None],  # noqa: ARG002
    ) -> AbstractContextManager[Progress]:
        """Follow a transfer while it goes on.

        Args:
            label: Its name.
            parts: The bytes of each file; None if they are not known.

        Returns:
            A context; the function that it yields is told of the progress.
        """
        return nullcontext(lambda _part, _count: None)
