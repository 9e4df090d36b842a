"""Interface for progress reports. The command line implements it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

Meter = Callable[[int], None]
"""Adds the bytes of a file, or subtracts them for a restart."""
Progress = Callable[[str, int], None]
"""Adds the bytes of a named part."""


class Reporter:
    """Receiver of progress, which this class ignores. It is thread-safe."""

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Report a finished step.

        Args:
            label: A name of one or two words: ``Download``.
            text: The result, in a line.
            seconds: The duration; None reports none.
        """

    def detail(self, label: str, text: str) -> None:
        """Report a fact that only ``--verbose`` prints."""

    def notice(self, label: str, text: str) -> None:
        """Report a step also with ``--quiet``."""

    def wait(self, text: str) -> None:
        """Report the reason for a wait."""

    def warn(self, text: str) -> None:
        """Report a warning."""

    def progress(
        self,
        label: str,  # noqa: ARG002
        parts: Mapping[str, int | None],  # noqa: ARG002
    ) -> AbstractContextManager[Progress]:
        """Report a transfer: a context that yields a ``Progress``.

        Args:
            label: The name of the transfer.
            parts: The bytes of each file; None if unknown.
        """
        return nullcontext(lambda _part, _count: None)
