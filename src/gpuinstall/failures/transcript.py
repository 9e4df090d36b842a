"""A text as it was pasted or logged, made searchable: colours, frames around lines and breaks in them do not matter."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.failures.excerpt import AFTER, BEFORE, excerpt, pieces

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuinstall.failures.pattern import Pattern

# So much is read for one pattern, in signs, that a long log cannot keep us busy.
OCCURRENCES = 2000
REACH, WIDEST = 1500, 4000
SEARCHED = 150_000
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
_BORDERS = (" |", " │", " ┃")
_TYPOGRAPHY = str.maketrans("‘’“”：，（）", "''\"\":,()", "\u200b\ufeff")
_URL_ESCAPES = {"%20": " ", "%2B": "+", "%2b": "+"}
_BACKSLASHED = re.compile(r'\\(["t\\])')
# JSON's way to write other letters; halves of a pair are no letter.
_CODE_POINT = re.compile(r"\\u(?![dD][89a-fA-F])([0-9a-fA-F]{4})")
_QUOTED_BREAK = re.compile(r"(?<!\\)\\n")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?!\\)")
_BREAKS = 2


class Passage(NamedTuple):
    """Where a pattern is found."""

    line: int
    """The number of the line in the text, from 1."""
    quotation: str
    """The line, or the wrapped lines."""
    value: str
    """What the pattern's group ``it`` found, in lower case; empty if it has none."""


class _Span(NamedTuple):
    first: int
    last: int
    value: str


class Transcript:
    """The lines of a text, and where in them a pattern is found."""

    def __init__(self, text: str) -> None:
        numbered = [
            (number, part)
            for number, line in enumerate(excerpt(text).split("\n"), 1)
            for part in _parts(line)
        ]
        self.lines = [part for _, part in numbered]
        self._numbers = [number for number, _ in numbered]
        self._clean = [" ".join(_unframed(line).lower().split()) for line in self.lines]
        self._bare = [line.replace(" ", "") for line in self._clean]
        self._ends = list(accumulate(map(len, self._bare)))
        self._squashed = "".join(self._bare)
        self._first: dict[Pattern, Passage | None] = {}

    def first(self, pattern: Pattern) -> Passage | None:
        """Return where ``pattern`` is first found."""
        if pattern not in self._first:
            self._first[pattern] = next(self.places(pattern), None)
        return self._first[pattern]

    def find(self, pattern: Pattern) -> str | None:
        """Return the line, or the wrapped lines, where ``pattern`` is first found."""
        place = self.first(pattern)
        return place.quotation if place else None

    def read(self, pattern: Pattern, value: str) -> str | None:
        """Fill ``value`` with the groups of ``pattern`` where it is first found."""
        match = pattern.wrapped.search((self.find(pattern) or "").lower())
        return match.expand(value).rstrip(".") if match else None  # a sentence may end there

    def places(self, pattern: Pattern) -> Iterator[Passage]:
        """Yield where the pattern is found, until enough has been read.

        It is tried around each line in which one of its needles stands.
        """
        left = SEARCHED
        lines = {line for needle in pattern.needles for line in self._lines_with(needle)}
        for first, last in self._windows(sorted(lines)):
            bare = "".join(self._bare[first:last])
            if not all(any(needle in bare for needle in choice) for choice in pattern.contains):
                continue
            for span in self._in_window(pattern, first, last, bare):
                quotation = "\n".join(self.lines[span.first : span.last + 1]).strip()
                yield Passage(self._numbers[span.first], quotation, span.value)
            left -= len(bare)
            if left < 0:
                return

    def _lines_with(self, needle: str) -> Iterator[int]:
        offset, count = -1, 0
        while count < OCCURRENCES and (offset := self._squashed.find(needle, offset + 1)) >= 0:
            line = bisect_right(self._ends, offset)
            yield line
            offset = self._ends[line] - 1
            count += 1

    def _windows(self, lines: list[int]) -> Iterator[tuple[int, int]]:
        """Draw a window around each line, one for those that are near each other; none is wide."""
        first = last = 0
        for line in lines:
            start, end = self._around(line)
            if start >= last or self._ends[end - 1] - self._start(first) > WIDEST:
                if last:
                    yield first, last
                first = start
            last = end
        if last:
            yield first, last

    def _around(self, line: int) -> tuple[int, int]:
        first = bisect_right(self._ends, self._start(line) - REACH)
        last = bisect_right(self._ends, self._ends[line] + REACH) + 1
        return max(first, line - BEFORE, 0), min(last, line + AFTER, len(self._ends))

    def _start(self, line: int) -> int:
        return self._ends[line - 1] if line else 0

    def _in_window(self, pattern: Pattern, first: int, last: int, bare: str) -> Iterator[_Span]:
        """Yield where a pattern is found in some lines: as they are, or with the words joined that an edge has cut."""
        window = "\n".join(self._clean[first:last])
        matches = list(pattern.wrapped.finditer(window))
        for match in matches:
            start = first + window.count("\n", 0, match.start())
            yield _Span(start, first + window.count("\n", 0, match.end()), _value(match))
        # A value is read in both, since an edge may have cut it.
        if not matches or pattern.reads_value:
            cut = self._cut(pattern, bare, self._start(first))
            yield from (span for span in cut if not matches or span.first != span.last)

    def _cut(self, pattern: Pattern, bare: str, before: int) -> Iterator[_Span]:
        """Yield messages whose words an edge has cut: the first of its lines and one of any two are long enough."""
        for match in pattern.squashed.finditer(bare) if pattern.squashed else ():
            first = bisect_right(self._ends, before + match.start())
            last = bisect_right(self._ends, before + match.end() - 1)
            reaches = [len(line) >= NARROWEST for line in self.lines[first : last + 1]]
            if first == last or (reaches[0] and all(map(any, pairwise(reaches)))):
                yield _Span(first, last, _value(match))


def _value(match: re.Match[str]) -> str:
    """Return what the group ``it`` of a pattern found, without the full stop of its sentence."""
    return (match.groupdict().get("it") or "").rstrip(".")


def _parts(line: str) -> list[str]:
    """Part a line at what a progress bar or a string has broken it, without colours and quoting."""
    return [
        part
        for piece in pieces(line.split("\r"))
        for part in _unquoted(_plain(piece))
        if part.strip()
    ]


def _unframed(line: str) -> str:
    """Take off what a logger, a launcher or a box has put around a line."""
    prefix = _PREFIX.match(line)
    message = line[prefix.end() if prefix else 0 :].strip()
    return message[:-1].rstrip() if message.endswith(_BORDERS) else message


def _plain(line: str) -> str:
    plain = html.unescape(_ESCAPES.sub("", line)).translate(_TYPOGRAPHY)
    for code, sign in _URL_ESCAPES.items():
        plain = plain.replace(code, sign)
    return _CODE_POINT.sub(lambda code: chr(int(code[1], 16)), plain)


def _unquoted(line: str) -> list[str]:
    """Part the lines of a text that was pasted as one string, of JSON or Python."""
    breaks = _QUOTED_BREAK.split(line)
    if len(breaks) <= _BREAKS or _WINDOWS_PATH.search(line):
        return [line]
    return [
        _BACKSLASHED.sub(lambda sign: " " if sign[1] == "t" else sign[1], part) for part in breaks
    ]
