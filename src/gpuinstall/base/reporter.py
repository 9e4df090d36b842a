"""Interface for progress reports, implemented by the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuinstall.base.advice import Hint

Meter = Callable[[int], None]
"""Function that adds received bytes of one file."""
Progress = Callable[[str, int], None]
"""Function that adds received bytes to a named file."""


class Reporter:
    """Thread-safe receiver of progress reports and warnings.

    The base class ignores reports.
    """

    def step(
        self,
        label: str,
        text: str,
        seconds: float | None = None,
    ) -> None:
        """Report a finished step.

        Args:
            label: A name of one or two words: ``Download``. Empty: the text continues
                the previous step.
            text: The result, in a line.
            seconds: The duration. None: not reported.
        """

    def detail(self, label: str, text: str) -> None:
        """Report a detail that is printed only with ``--verbose``."""

    def notice(self, label: str, text: str) -> None:
        """Report a finished step, even with ``--quiet``."""

    def wait(self, text: str) -> None:
        """Report that the command waits, with the reason."""

    def warn(self, text: str, *fixes: Hint) -> None:
        """Report a warning and its fixes."""

    def progress(
        self,
        label: str,  # noqa: ARG002
        parts: Mapping[str, int | None],  # noqa: ARG002
    ) -> AbstractContextManager[Progress]:
        """Report a transfer in a context that yields a ``Progress``.

        Args:
            label: The name of the transfer.
            parts: The size of each file in bytes. None: unknown.
        """
        return nullcontext(lambda _part, _count: None)
