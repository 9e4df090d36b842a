"""Progress is an object handed in: rooms that work report to it, and only the CLI knows about terminals."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Meter(Protocol):
    """Counts the bytes of one transfer."""

    def __call__(self, count: int, /) -> None:
        """Add ``count`` bytes."""


class Reporter(Protocol):
    """Where a room says what it does."""

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say one finished step: its name, what came of it, how long it took."""

    def wait(self, text: str) -> None:
        """Say what is being waited for."""

    def warn(self, text: str) -> None:
        """Say something that the user should know and that stops nothing."""

    def transfer(self, label: str, size: int | None) -> AbstractContextManager[Meter]:
        """Follow one download of ``size`` bytes (None when unknown)."""


class SilentReporter:
    """Says nothing: the default for users of the API."""

    def step(self, label: str, text: str, seconds: float | None = None) -> None:
        """Say nothing."""

    def wait(self, text: str) -> None:
        """Say nothing."""

    def warn(self, text: str) -> None:
        """Say nothing."""

    def transfer(self, label: str, size: int | None) -> AbstractContextManager[Meter]:  # noqa: ARG002
        """Count nothing."""
        return nullcontext(lambda _count: None)
