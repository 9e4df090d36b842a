"""The table of answers as the page embeds it, and how an answer is found in it; the page's script does the same."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

WIDTH = 3
"""Digits of a packed number: three of base 36."""
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Answer:
    """An answer, its texts still with their placeholders; ``notes`` are warnings, or what to do where it is refused."""

    outcome: tuple[str, ...]
    build: tuple[str, ...]
    reasons: tuple[str, ...]
    notes: tuple[str, ...]
    passed_over: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """The embedded document."""

    body: Mapping[str, Any]

    def platform(self, key: str) -> Mapping[str, Any]:
        """Find a platform by its key."""
        platform: Mapping[str, Any] = next(row for row in self.body["platforms"] if row["key"] == key)
        return platform

    def answer(
        self, key: str, kinds: Sequence[int], driver: Sequence[float] | None, python: int = 0, packages: int = 0
    ) -> Answer | None:
        """Find the answer for kinds of GPUs under a driver (None: without one); None for what was not asked.

        A driver is its numbers; a branch named alone is its newest release. GPUs of other makers than NVIDIA have no
        rows by driver. The rest are positions in their lists.
        """
        platform, wanted = self.platform(key), ",".join(map(str, sorted(set(kinds))))
        if not platform["spans"]:
            number = platform["without"].get(wanted, platform["without"][""])
        elif driver is None or wanted not in platform["rows"]:
            number = platform["without"].get(wanted)
        else:
            newest = (*driver, float("inf")) if len(driver) == 1 else tuple(driver)
            span, runs = bisect_right(platform["spans"], newest, key=tuple) - 1, platform["rows"][wanted]
            number = runs[bisect_right([*accumulate(count for _, count in runs)], span)][0]
        if number is None:
            return None
        answers = unpack_numbers(self.body["classes"][number])
        position = python * len(self.body["packages"]) + packages
        if position >= len(answers):
            return None
        parts = unpack_numbers(self.body["answers"][answers[position]])
        return Answer(*(tuple(self.body["texts"][text] for text in self.body["parts"][part]) for part in parts))


def packed(numbers: Iterable[int]) -> str:
    """Write numbers side by side."""
    return "".join(
        _DIGITS[number // 36**2] + _DIGITS[number // 36 % 36] + _DIGITS[number % 36] for number in numbers
    )  # fmt: skip


def unpack_numbers(text: str) -> list[int]:
    """Read numbers that stand side by side."""
    return [int(text[start : start + WIDTH], 36) for start in range(0, len(text), WIDTH)]
