"""A text as it was pasted or logged, made searchable: colours, frames around lines and breaks in them do not matter."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.catalog.failures.excerpt import AFTER, BEFORE, excerpt, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.catalog.failures.pattern import Pattern

# So much is read for one pattern that a long log cannot keep us busy.
OCCURRENCES = 2000
"""Lines with a needle."""
REACH = 1500
"""Characters that a window has before a line and after it, without spaces; so are the next two."""
WIDEST = 4000
"""Characters of a window of several lines."""
SEARCHED = 150_000
"""Characters in all windows."""
NARROWEST = 30
"""Columns: a line that is shorter was not cut by a terminal's edge."""

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]"
    r"|(?:\\u001b|\\x1b|\\033)?\[\d{1,3}(?:;\d{1,3})*m"
)
_FRAMES = (
    r"[>|│┃]+(?=\s)",  # a quotation, a box
    r"\[(?:default|rank|gpu)?[\d.,:\s]+\](?:<std(?:err|out)>)?:?",  # torchrun, the kernel
    r"\[\d{4}-\d\d-\d\d[^\]\n]{0,30}\]",
    r"\[(?:!|pod/[^\]\s]+|[^\]\s]+\.\w+:\d+)\]",  # kubectl, a file's line
    r"##\[\w+\]",  # GitHub Actions
    r"\([^()\n]{0,40}pid=[^()\n]{0,40}\)",  # Ray, vLLM
    r"[\w-]{1,40}\s+\|(?=\s)",  # Compose
    r"\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?",
    r"(?:\d\d-\d\d )?\d\d:\d\d:\d\d(?:[.,]\d+)?",
    r"[A-Z][a-z]{2} +\d+ \d\d:\d\d:\d\d \S+ [\w./-]+(?:\[\d+\])?:",  # syslog
    r"(?:DEBUG|INFO|WARN(?:ING)?|ERROR|CRITICAL|FATAL) +(?=[\d[|])",
    r"(?:- )?(?:[\w.]+ - )?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - ",
    r"[\w.]+:[\w<>]+:\d+ - ",  # loguru
    r"[EFIW]\d{4} [\d:.]+\s+\d+ \S+:\d+\]",  # glog
    r"\d{1,4}: ",  # srun
    r"[^\t\n]{1,80}\t[^\t\n]{1,80}\t(?=\d{4}-)",  # gh run view --log
    r"\d\d[OE][+ ] ?(?=\S)",  # GitLab
    r"#\d+ \d+\.\d+",  # BuildKit
)
_PREFIX = re.compile(rf"(?:\s*(?:{'|'.join(_FRAMES)}))+\s*")
_BORDERS = (
    " |",
    " │",
    " ┃",
)
_TYPOGRAPHY = str.maketrans("‘’“”：，（）", "''\"\":,()", "\u200b\ufeff")
_URL_ESCAPES = {
    "%20": " ",
    "%2B": "+",
    "%2b": "+",
}
_BACKSLASHED = re.compile(r'\\(["t\\])')
# JSON's way to write other letters; halves of a pair are no letter.
_CODE_POINT = re.compile(r"\\u(?![dD][89a-fA-F])([0-9a-fA-F]{4})")
_QUOTED_BREAK = re.compile(r"(?<!\\)\\n")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?!\\)")
_PARTS = 2
"""A text with at most so many parts between quoted breaks was hardly pasted as one string."""


class Passage(NamedTuple):
    """Where a pattern is found."""

    line: int
    """The number of the line, from 1: in the text, or in its excerpt if it is longer than ``LONG_TEXT``."""
    quotation: str
    """The line, or the wrapped lines."""
    value: str
    """What the pattern's group ``it`` found, in lower case; empty if it has none."""


class _Span(NamedTuple):
    """The first and the last line of a match."""

    first: int
    last: int
    value: str


class Transcript:
    """The lines of a text, and where in them a pattern is found."""

    def __init__(self, text: str) -> None:
        self.lines: list[str] = []
        self._numbers: list[int] = []
        for number, line in enumerate(excerpt(text).split("\n"), 1):
            parts = _parts(line)
            self.lines += parts
            self._numbers += [number] * len(parts)
        self._clean = list(map(_clean, self.lines))
        self._bare = [line.replace(" ", "") for line in self._clean]
        self._ends = list(accumulate(map(len, self._bare)))
        self._squashed = "".join(self._bare)
        self._first: dict[Pattern, Passage | None] = {}

    def first(self, pattern: Pattern) -> Passage | None:
        """Return where ``pattern`` is first found."""
        if pattern not in self._first:
            self._first[pattern] = next(self.occurrences(pattern), None)
        return self._first[pattern]

    def find(self, pattern: Pattern) -> str | None:
        """Return the line, or the wrapped lines, where ``pattern`` is first found."""
        passage = self.first(pattern)
        return passage.quotation if passage else None

    def read(self, pattern: Pattern, value: str) -> str | None:
        """Return ``value`` with the groups of ``pattern``, as it is first found."""
        line = self.find(pattern) or ""
        match = pattern.wrapped.search(line.lower())
        # A sentence may end there.
        return match.expand(value).rstrip(".") if match else None

    def occurrences(self, pattern: Pattern) -> Iterator[Passage]:
        """Yield where the pattern is found, until enough has been read.

        It is tried around each line in which one of its needles stands.
        """
        left = SEARCHED
        numbers: set[int] = set()
        for needle in pattern.needles:
            numbers.update(self._lines_with(needle))
        # Most patterns are nowhere: nothing is prepared for them.
        if not numbers:
            return
        for start, stop in self._windows(sorted(numbers)):
            bare = "".join(self._bare[start:stop])
            if not pattern.may_match(bare):
                continue
            for span in self._in_window(pattern, start, stop, bare):
                lines = self.lines[span.first : span.last + 1]
                yield Passage(
                    line=self._numbers[span.first],
                    quotation="\n".join(lines).strip(),
                    value=span.value,
                )
            left -= len(bare)
            if left < 0:
                return

    def _lines_with(self, needle: str) -> list[int]:
        lines: list[int] = []
        offset = self._squashed.find(needle)
        while offset >= 0 and len(lines) < OCCURRENCES:
            line = bisect_right(self._ends, offset)
            lines.append(line)
            offset = self._squashed.find(needle, self._ends[line])
        return lines

    def _windows(self, lines: list[int]) -> Iterator[tuple[int, int]]:
        """Draw a window around each line, one for those that are near each other; none is wide."""
        start = stop = 0
        for line in lines:
            next_start, next_stop = self._around(line)
            width = self._ends[next_stop - 1] - self._offset(start)
            if next_start >= stop or width > WIDEST:
                if stop:
                    yield start, stop
                start = next_start
            stop = next_stop
        if stop:
            yield start, stop

    def _around(self, line: int) -> tuple[int, int]:
        """Return which lines are near a line, by their number and by their characters: the first, and past the last."""
        ends = self._ends
        within_reach = bisect_right(ends, self._offset(line) - REACH)
        beyond_reach = bisect_right(ends, ends[line] + REACH) + 1
        start = max(within_reach, line - BEFORE, 0)
        stop = min(beyond_reach, line + AFTER, len(ends))
        return start, stop

    def _offset(self, line: int) -> int:
        """Return where a line begins in the text without spaces."""
        return self._ends[line - 1] if line else 0

    def _in_window(
        self,
        pattern: Pattern,
        start: int,
        stop: int,
        bare: str,
    ) -> Iterator[_Span]:
        """Yield where a pattern is found in some lines: as they are, or with the words joined that an edge has cut."""
        window = "\n".join(self._clean[start:stop])
        matches = list(pattern.wrapped.finditer(window))
        for match in matches:
            yield _Span(
                first=start + window.count("\n", 0, match.start()),
                last=start + window.count("\n", 0, match.end()),
                value=_value(match),
            )
        # A value is read in both, since an edge may have cut it.
        if not matches or pattern.reads_value:
            for span in self._cut(pattern, bare, self._offset(start)):
                if not matches or span.first != span.last:
                    yield span

    def _cut(
        self,
        pattern: Pattern,
        bare: str,
        offset: int,
    ) -> Iterator[_Span]:
        """Yield messages whose words an edge has cut: the first of its lines and one of any two are long enough."""
        if pattern.squashed is None:
            return
        for match in pattern.squashed.finditer(bare):
            first = bisect_right(self._ends, offset + match.start())
            last = bisect_right(self._ends, offset + match.end() - 1)
            lines = self.lines[first : last + 1]
            are_long = [len(line) >= NARROWEST for line in lines]
            is_wrapped = are_long[0] and all(map(any, pairwise(are_long)))
            if first == last or is_wrapped:
                yield _Span(first, last, _value(match))


def _value(match: re.Match[str]) -> str:
    """Return what the group ``it`` of a pattern found, without the full stop of its sentence."""
    return (match.groupdict().get("it") or "").rstrip(".")


def _parts(line: str) -> list[str]:
    """Part a line at what a progress bar or a string has broken it, without colours and quoting."""
    parts = []
    for piece in pieces(line.split("\r")):
        parts += _unquoted(_plain(piece))
    return [part for part in parts if part.strip()]


def _plain(line: str) -> str:
    """Return a line without colours, in plain characters."""
    text = html.unescape(_ESCAPES.sub("", line))
    text = text.translate(_TYPOGRAPHY)
    for code, character in _URL_ESCAPES.items():
        text = text.replace(code, character)
    return _CODE_POINT.sub(lambda code: chr(int(code[1], 16)), text)


def _unquoted(line: str) -> list[str]:
    """Part the lines of a text that was pasted as one string, of JSON or Python."""
    parts = _QUOTED_BREAK.split(line)
    if len(parts) <= _PARTS or _WINDOWS_PATH.search(line):
        return [line]
    return [_BACKSLASHED.sub(_unescaped, part) for part in parts]


def _unescaped(escape: re.Match[str]) -> str:
    character = escape[1]
    return " " if character == "t" else character


def _clean(line: str) -> str:
    """Return a line in lower case, without what a logger, a launcher or a box has put around it."""
    prefix = _PREFIX.match(line)
    message = line[prefix.end() :] if prefix else line
    message = message.strip()
    if message.endswith(_BORDERS):
        message = message[:-1]
    return " ".join(message.lower().split())
