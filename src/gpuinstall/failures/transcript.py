"""A text as it was pasted or logged, made searchable: frames around lines and breaks in them do not matter."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from gpuinstall.failures.plain_text import plain_lines, unframed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.failures.pattern import Pattern

OCCURRENCES = 2000
BEFORE, AFTER = 4, 9
NARROWEST = 30


class Transcript:
    """The lines of a text, and where in them a pattern is found."""

    def __init__(self, text: str) -> None:
        self.lines = plain_lines(text)
        self._clean = [unframed(line).lower() for line in self.lines]
        self._bare = ["".join(line.split()) for line in self._clean]
        self._ends = list(accumulate(map(len, self._bare)))
        self._squashed = "".join(self._bare)
        self._found: dict[Pattern, str | None] = {}

    def find(self, pattern: Pattern) -> str | None:
        """Return the line, or the wrapped lines, where ``pattern`` is first found."""
        if pattern not in self._found:
            lines = sorted({line for needle in pattern.needles for line in self._places(needle)})
            windows = (self._in_window(pattern, first, last) for first, last in _windows(lines))
            self._found[pattern] = next(filter(None, windows), None)
        return self._found[pattern]

    def _places(self, needle: str) -> Iterator[int]:
        place, seen = -1, 0
        while seen < OCCURRENCES and (place := self._squashed.find(needle, place + 1)) >= 0:
            line = bisect_right(self._ends, place)
            yield line
            place = self._ends[line] - 1
            seen += 1

    def _in_window(self, pattern: Pattern, first: int, last: int) -> str | None:
        bare = "".join(self._bare[first:last])
        if not all(any(needle in bare for needle in choice) for choice in pattern.contains):
            return None
        window = "\n".join(self._clean[first:last])
        if match := pattern.wrapped.search(window):
            return self._shown(first + window.count("\n", 0, match.start()), first + window.count("\n", 0, match.end()))
        return self._cut(pattern, bare, self._ends[first - 1] if first else 0)

    def _cut(self, pattern: Pattern, bare: str, before: int) -> str | None:
        """Find a message whose words an edge has cut: the first of its lines and one of any two are long enough."""
        for match in pattern.squashed.finditer(bare) if pattern.squashed else ():
            first = bisect_right(self._ends, before + match.start())
            last = bisect_right(self._ends, before + match.end() - 1)
            reaches = [len(line) >= NARROWEST for line in self.lines[first : last + 1]]
            if first == last or (reaches[0] and all(map(any, pairwise(reaches)))):
                return self._shown(first, last)
        return None

    def _shown(self, first: int, last: int) -> str:
        return "\n".join(self.lines[first : last + 1]).strip()


def _windows(lines: list[int]) -> Iterator[tuple[int, int]]:
    """Draw a window around each line, one for those that are near each other."""
    start = 0
    for place, line in enumerate(lines, 1):
        if place == len(lines) or lines[place] - line > BEFORE + AFTER:
            yield max(0, lines[start] - BEFORE), line + AFTER
            start = place
