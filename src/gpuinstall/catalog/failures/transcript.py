"""Search the lines of a text for patterns."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

from gpuinstall.catalog.failures.table import Pattern

_Numbered = tuple[int, str]

LONGEST = 240_000
"""The maximum number of characters to read of a text.

In a longer text, only the first few of the lines that differ only in numbers are read.
If it is still too long, the start, the end, and the lines between them that mention a
failure are limited to a third each.
"""
LONG_LINE = 1000
"""The length at which long lines are split."""
_TROUBLE = re.compile(
    "undefined symbol|nvrm|no kernel|traceback|exception|fatal|no such|cannot|unable to|could not|not supported|"
    "insufficient|too old|mismatch|not found|error|fail"
)
_ALIKE = 8
"""The maximum number of lines that differ only in numbers."""
_DIGITS = b"0123456789"

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f]"
)
# Commands and variable assignments, as opposed to the output of programs.
_STARTED = re.compile(
    r"""
    (?:\S*[$\#%]\s+|[+$]\s+|(?:RUN|ENV|export|set|setenv|sudo|env|exec|nohup|time)\s+)*  # a prompt, a shell's word
    (?:[A-Z_][A-Z0-9_]+=\S*(?:\s+|$)                                                     # a variable
    | (?:python[\d.]*|torchrun|accelerate\ launch|deepspeed|mpirun|srun|nvidia-smi|pip[\d.]*\ install)\s+[\w./-]
    | (?:vllm|sglang|ollama)\ (?:serve|run)\b | docker\ (?:run|exec|build|compose)\b | uv\ (?:pip|run|venv)\b
    )
    """,
    re.VERBOSE,
)
_ANSWER = re.compile(
    r"\b(?:errors?|fail\w*|exception|fatal|cannot|can't|n't|not|no|unable|denied|invalid|undefined|unsupported|missing|"
    r"insufficient|mismatch|has|is|was|are|installs|removes|depends|gives|returns|shows|hangs|stuck)\b(?!=)|print\(",
    re.IGNORECASE,
)
# Lines that report no failure: information, notes of compilers, deprecations, and replaced optional features.
_INFORMATION = re.compile(
    r"(?:^|:\d+ |\] )NCCL INFO |\bptxas (?:info|warning)\b|\b(?:Pending)?(?:Deprecation|Future)Warning\b"
    r"|[:(]\d+(?::\d+)?\)?: (?:warning|note)\b"
    r"|\bunable to initialize backend '(?!cuda|gpu)|disabling parallel compilation|cannot find co in the bundle"
    r"|^(?!.*(?:\bcpu\b|nouveau|error|fail)).*(?:\bfalling back to\b|not using it\b|\bsub-?optimal\b)",
    re.IGNORECASE,
)


class Passage(NamedTuple):
    """A match of a pattern."""

    line: int
    """The number of the match's first line, from 1."""
    quotation: str
    """The text of the line, or of all lines of a wrapped message."""
    match: re.Match[str]
    """The match of the pattern in the lowercase text."""

    def expand(self, template: str) -> str:
        """Fill in a template with the groups as spelled in the text."""
        pattern = re.compile(self.match.re.pattern, self.match.re.flags | re.IGNORECASE)
        lines = (" ".join(line.split()) for line in self.quotation.split("\n"))
        own = pattern.search("\n".join(lines)) or self.match
        return own.expand(template).rstrip(".")


class _Line(NamedTuple):
    number: int
    """The number of the line in the text, from 1."""
    text: str
    plain: str
    """The line of the text in lower case, with single spaces."""


class TextLines:
    """Lines of a text that can be searched for patterns."""

    def __init__(self, lines: Sequence[_Line]) -> None:
        self._lines = lines
        self._starts: list[int] = []
        length = 0
        for line in lines:
            self._starts.append(length)
            length += len(line.plain) + 1
        self._text = "\n".join(line.plain for line in lines)
        self._first: dict[Pattern, Passage | None] = {}

    @property
    def lines(self) -> list[str]:
        """The lines of the text as written."""
        return [line.text for line in self._lines]

    @cached_property
    def messages(self) -> TextLines:
        """The lines that may be errors: no commands or information."""
        messages = []
        for line in self._lines:
            is_message = _is_message(line.text)
            messages.append(line if is_message else line._replace(plain=""))
        return TextLines(messages)

    def find(self, pattern: Pattern) -> Passage | None:
        """Return the first match of a pattern in the lines."""
        if pattern not in self._first:
            self._first[pattern] = next(self.passages(pattern), None)
        return self._first[pattern]

    def passages(self, pattern: Pattern) -> Iterator[Passage]:
        """Yield the matches of a pattern in the lines."""
        # This test excludes most patterns without compiling them.
        if pattern.needle not in self._text:
            return
        for match in pattern.regex.finditer(self._text):
            first = bisect_right(self._starts, match.start()) - 1
            # A match may be empty, or end with a line break.
            end = max(match.start(), match.end() - 1)
            last = bisect_right(self._starts, end) - 1
            found = self._lines[first : last + 1]
            quotation = "\n".join(line.text for line in found).strip()
            yield Passage(self._lines[first].number, quotation, match)


class Transcript(TextLines):
    """An error message or log, prepared for searching."""

    def __init__(self, text: str) -> None:
        super().__init__(_plain(_lines_to_read(text)))


def _plain(numbered: Iterable[_Numbered]) -> list[_Line]:
    """Split a text into lines, and normalize case and spaces."""
    return [
        _Line(number, part, " ".join(part.lower().split()))
        for number, line in numbered
        for part in _parts(line)
    ]


def _is_message(line: str) -> bool:
    if _INFORMATION.search(line):
        return False
    # A sentence in a language with another script may begin with a command.
    is_started = line.isascii() and _STARTED.match(line.strip())
    return not is_started or bool(_ANSWER.search(line))


def _lines_to_read(text: str) -> list[_Numbered]:
    """Return the lines of a text to read."""
    lines = list(enumerate(text.split("\n"), 1))
    if len(text) <= LONGEST:
        return lines
    pieces = _unlike(lines)
    start = _limited(pieces)
    end = _limited(pieces[: len(start) - 1 : -1])[::-1]
    between = pieces[len(start) : len(pieces) - len(end)]
    telling = [piece for piece in between if _TROUBLE.search(piece[1].lower())]
    return start + _limited(telling) + end


def _unlike(lines: Iterable[_Numbered]) -> list[_Numbered]:
    """Split lines into pieces, and omit repetitions that differ in numbers."""
    counts = Counter[bytes]()
    unlike = []
    for number, line in lines:
        for start in range(0, len(line) or 1, LONG_LINE):
            piece = line[start : start + LONG_LINE]
            # Translating bytes is five times as fast as translating text.
            shape = piece.encode(errors="replace").translate(None, _DIGITS)
            counts[shape] += 1
            if counts[shape] <= _ALIKE:
                unlike.append((number, piece))
    return unlike


def _limited(pieces: Sequence[_Numbered]) -> list[_Numbered]:
    """Return the first pieces, up to a third of ``LONGEST``."""
    lengths = [*accumulate(len(piece) for _, piece in pieces)]
    return [*pieces[: bisect_right(lengths, LONGEST // 3)]]


def _parts(line: str) -> Iterator[str]:
    """Yield the parts of a line without escape sequences."""
    for piece in line.split("\r"):
        for start in range(0, len(piece), LONG_LINE):
            part = _ESCAPES.sub("", piece[start : start + LONG_LINE])
            if part.strip():
                yield part
