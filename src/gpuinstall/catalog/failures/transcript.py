"""A text as it was pasted or logged, and where a message stands in it: colours, frames around lines and breaks between
words do not matter."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gpuinstall.base.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST = 600_000
"""Characters: of a longer text the first third of so many is read, and the last two thirds."""
LONG_LINE = 1000
"""Characters: a longer line is read in pieces."""
_PARTS = 2
"""A text with at most so many parts between quoted breaks was hardly pasted as one string."""

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
_AROUND = re.compile(rf"^(?:\s*(?:{'|'.join(_FRAMES)}))+\s*|\s+[|│┃]$")
_TYPOGRAPHY = str.maketrans("‘’“”：，（）", "''\"\":,()", "\u200b\ufeff")
# JSON's way to write other letters; halves of a pair are no letter.
_CODE_POINT = re.compile(r"\\u(?![dD][89a-fA-F])([0-9a-fA-F]{4})")
_QUOTED_BREAK = re.compile(r"(?<!\\)\\n")
_WINDOWS_PATH = re.compile(r"\b[A-Za-z]:\\(?!\\)")

# Of a pattern: a class, an escape or a character, with what repeats it; and what a fixed text is not part of.
_PIECE = re.compile(r"(\[\^?\]?(?:\\.|[^\]\\])*\]|\\.|[^\\\[])([*+]?)")
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_GROUP = re.compile(r"(?<!\\)\((?:\\.|[^()\\])*\)")
_VARYING = re.compile(r"\\?.(?:[?*]|\{[^}]*\})|\\\w|[\0 .^$…+?|]")
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

    @classmethod
    def parse(cls, says: str) -> Pattern:
        """Return the message that a row of the table says."""
        return cls(says)

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
    match: re.Match[str]
    """In the text in lower case."""

    def expand(self, template: str) -> str:
        """Return a template with the groups of the pattern, without the period of a sentence that ends there."""
        return self.match.expand(template).rstrip(".")


class Transcript:
    """The lines of a text, and where in them a pattern is found."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST:
            text = f"{text[: LONGEST // 3]}\n{text[-LONGEST * 2 // 3 :]}"
        self.lines: list[str] = []
        self._numbers: list[int] = []
        self._starts: list[int] = []
        self._text = ""
        cleaned = []
        length = 0
        for number, line in enumerate(text.split("\n"), 1):
            for part in _parts(line):
                self.lines.append(part)
                self._numbers.append(number)
                self._starts.append(length)
                cleaned.append(_clean(part))
                length += len(cleaned[-1]) + 1
        self._text = "\n".join(cleaned)
        self._first: dict[Pattern, Passage | None] = {}

    def find(self, pattern: Pattern) -> Passage | None:
        """Return where ``pattern`` is first found."""
        if pattern not in self._first:
            self._first[pattern] = next(self.passages(pattern), None)
        return self._first[pattern]

    def passages(self, pattern: Pattern) -> Iterator[Passage]:
        """Yield where the pattern is found."""
        # Most patterns are ruled out by this, and never compiled.
        if pattern.needle not in self._text:
            return
        for match in pattern.regex.finditer(self._text):
            first = bisect_right(self._starts, match.start()) - 1
            # Of an empty match, and of one that ends with a line's break, this line is the last.
            end = max(match.start(), match.end() - 1)
            last = bisect_right(self._starts, end) - 1
            quotation = "\n".join(self.lines[first : last + 1]).strip()
            yield Passage(self._numbers[first], quotation, match)


def _parts(line: str) -> Iterator[str]:
    """Yield a line in plain characters, parted at what a progress bar or a string has broken it."""
    for piece in line.split("\r"):
        for start in range(0, len(piece), LONG_LINE):
            text = piece[start : start + LONG_LINE]
            text = _ESCAPES.sub("", text)
            text = html.unescape(text)
            text = text.translate(_TYPOGRAPHY)
            # A version in an address: torch-2.9.1%2Bcu130.
            text = text.replace("%20", " ").replace("%2B", "+")
            text = _CODE_POINT.sub(lambda code: chr(int(code[1], 16)), text)
            for part in _unquoted(text):
                if part.strip():
                    yield part


def _unquoted(line: str) -> list[str]:
    """Part the lines of a text that was pasted as one string, of JSON or Python."""
    parts = _QUOTED_BREAK.split(line)
    if len(parts) <= _PARTS or _WINDOWS_PATH.search(line):
        return [line]
    return [
        part.replace(r"\"", '"').replace(r"\t", " ").replace(r"\\", "\\")
        for part in parts
    ]


def _clean(line: str) -> str:
    """Return a line in lower case, without what a logger, a launcher or a box has put around it."""
    words = _AROUND.sub("", line).lower().split()
    return " ".join(words)
