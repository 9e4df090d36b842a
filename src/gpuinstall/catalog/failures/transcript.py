"""A text as it was pasted or logged, and where a message stands in it: colours, frames around lines and breaks between
words do not matter."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.regex import regex
from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 600_000
"""Characters: of a longer text the first third of so many is read, and the last two thirds."""
LONG_LINE = 1000
"""Characters: a longer line is read in pieces."""
REACH = 1500
"""Characters before and after a pattern's fixed text that its match may take."""
_PARTS = 2
"""A text with at most so many parts between quoted breaks was hardly pasted as one string."""

_ESCAPES = regex(
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
_AROUND = regex(rf"^(?:\s*(?:{'|'.join(_FRAMES)}))+\s*|\s+[|│┃]$")
_TYPOGRAPHY = str.maketrans("‘’“”：，（）", "''\"\":,()", "\u200b\ufeff")
# JSON's way to write other letters; halves of a pair are no letter.
_CODE_POINT = regex(r"\\u(?![dD][89a-fA-F])([0-9a-fA-F]{4})")
_QUOTED_BREAK = regex(r"(?<!\\)\\n")
_WINDOWS_PATH = regex(r"\b[A-Za-z]:\\(?!\\)")

# Of a pattern: a class, an escape or a character, with what repeats it; and what a fixed text is not part of.
_PIECE = regex(r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\\\[])([*+]?)")
_CLASS = regex(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_GROUP = regex(r"(?<!\\)\((?:\\.|[^()\\])*\)")
_VARYING = regex(r"\\?.(?:[?*]|\{[^}]*\})|\\\w|[\0 .^$…+?|]")
# Nothing repeats without end, so that no text can keep a pattern busy.
_REPEATS = {"*": "{0,100}", "+": "{1,100}"}
_BREAKS = {"": r"\s+", "+": r"\s+", "*": r"\s*"}


@dataclass(frozen=True)
class Pattern:
    """A message to look for."""

    says: str
    """In lower case: a space stands for any break, an ellipsis for anything up to a line's end.

    The rest is a regular expression.
    """

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """What the text is searched with."""
        says = _PIECE.sub(_translated, self.says.replace(" ?", r"\s*"))
        # A word ends where other letters follow: 显卡RTX 5090上.
        return re.compile(says, re.MULTILINE | re.ASCII)

    @cached_property
    def needle(self) -> str:
        """The longest text that stands in every match; empty if it has only alternatives."""
        says = _CLASS.sub("\0", self.says.replace(r"\\", "\0"))
        while (outside := _GROUP.sub("\0", says)) != says:
            says = outside
        fixed = _VARYING.sub("\0", says).replace("\\", "")
        return max(fixed.split("\0"), key=len)


def _translated(piece: re.Match[str]) -> str:
    character, repeat = piece.groups()
    if character == " ":
        return _BREAKS[repeat]
    if character == "…":
        return r"[^\n]{0,160}?"
    return character.replace(" ", r"\s") + _REPEATS.get(repeat, "")


class Passage(NamedTuple):
    """Where a pattern is found."""

    line: int
    """The number of the line, from 1."""
    quotation: str
    """The line, or the lines if a break stands in the message."""
    value: str
    """What the pattern's group ``it`` found, in lower case; empty if it has none."""


class Transcript:
    """The lines of a text, and where in them a pattern is found."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 3]}\n{text[-LONGEST * 2 // 3 :]}"
        self.lines: list[str] = []
        self._numbers: list[int] = []
        for number, line in enumerate(text.split("\n"), 1):
            parts = _parts(line)
            self.lines += parts
            self._numbers += [number] * len(parts)
        cleaned = [_clean(line) for line in self.lines]
        self._text = "\n".join(cleaned)
        self._starts = [0]
        for line in cleaned:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._first: dict[Pattern, Passage | None] = {}

    def first(self, pattern: Pattern) -> Passage | None:
        """Return where ``pattern`` is first found."""
        if pattern not in self._first:
            self._first[pattern] = next(self.occurrences(pattern), None)
        return self._first[pattern]

    def find(self, pattern: Pattern) -> str | None:
        """Return the line, or the lines, where ``pattern`` is first found."""
        passage = self.first(pattern)
        return passage.quotation if passage else None

    def read(self, pattern: Pattern, value: str) -> str | None:
        """Return ``value`` with the groups of ``pattern``, as it is first found."""
        match = next(self._matches(pattern), None)
        # A sentence may end there.
        return match.expand(value).rstrip(".") if match else None

    def occurrences(self, pattern: Pattern) -> Iterator[Passage]:
        """Yield where the pattern is found."""
        for match in self._matches(pattern):
            first = bisect_right(self._starts, match.start()) - 1
            last = bisect_right(self._starts, max(match.start(), match.end() - 1)) - 1
            yield Passage(
                line=self._numbers[first],
                quotation="\n".join(self.lines[first : last + 1]).strip(),
                value=(match.groupdict().get("it") or "").rstrip("."),
            )

    def _matches(self, pattern: Pattern) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern."""
        for start, stop in self._windows(pattern.needle):
            yield from pattern.regex.finditer(self._text, start, stop)

    def _windows(self, needle: str) -> Iterator[tuple[int, int]]:
        """Yield what has to be searched: the surroundings of a fixed text, those that touch each other as one."""
        if not needle:
            yield 0, len(self._text)
            return
        found = self._text.find(needle)
        while found >= 0:
            start = max(0, found - REACH)
            stop = found + REACH
            while 0 <= found < stop + REACH:
                stop = found + REACH
                found = self._text.find(needle, found + 1)
            yield start, stop


def _parts(line: str) -> list[str]:
    """Part a line at what a progress bar or a string has broken it, without colours and quoting."""
    parts = []
    for piece in line.split("\r"):
        for start in range(0, len(piece), LONG_LINE):
            parts += _unquoted(_plain(piece[start : start + LONG_LINE]))
    return [part for part in parts if part.strip()]


def _plain(line: str) -> str:
    """Return a line without colours, in plain characters."""
    text = html.unescape(_ESCAPES.sub("", line)).translate(_TYPOGRAPHY)
    text = text.replace("%20", " ").replace("%2B", "+").replace("%2b", "+")
    return _CODE_POINT.sub(lambda code: chr(int(code[1], 16)), text)


def _unquoted(line: str) -> list[str]:
    """Part the lines of a text that was pasted as one string, of JSON or Python."""
    parts = _QUOTED_BREAK.split(line)
    if len(parts) <= _PARTS or _WINDOWS_PATH.search(line):
        return [line]
    return [part.replace(r"\"", '"').replace(r"\t", " ").replace(r"\\", "\\") for part in parts]


def _clean(line: str) -> str:
    """Return a line in lower case, without what a logger, a launcher or a box has put around it."""
    return " ".join(_AROUND.sub("", line).lower().split())
