"""One line of the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A measurement, how it compares, and what it should be; ``met`` is None where there is no goal."""

    what: str
    ours: str
    beside: str
    compared: str
    goal: str = ""
    met: bool | None = None

    def __str__(self) -> str:
        mark = {True: "met", False: "MISSED", None: ""}[self.met]
        return f"{self.what:<46} {self.ours:>9} {self.beside:>10} {self.compared:>8}  {self.goal} {mark}".rstrip()


def milliseconds(seconds: float) -> str:
    """Write a short time."""
    return f"{seconds * 1000:.1f} ms"


def in_seconds(seconds: float) -> str:
    """Write a long time."""
    return f"{seconds:.2f} s"
