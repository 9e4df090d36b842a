"""Prose of the project's files: docstrings, comments, messages, and pages."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

CODE_SPAN = re.compile(r"``.+?``|`[^`]+`|\]\([^)\s]+\)|https?://\S+", re.DOTALL)
QUOTATION = re.compile(r"\"[^\"]*\"|“[^”]*”")
FENCE = re.compile(r"^( *)(```|~~~).*?^\1\2 *$", re.DOTALL | re.MULTILINE)
LITERAL_BLOCK = re.compile(r"(?<=::)\n\n(?:(?: {4,}.*)?\n)+", re.MULTILINE)
EXCEPTION = re.compile(r"prose: \S")


@dataclass(frozen=True)
class Passage:
    """A docstring, a block of comments, a message, or a paragraph."""

    kind: str
    """``docstring``, ``comment``, ``message``, or ``paragraph``."""
    start: int
    """The number of its first line."""
    end: int
    text: str
    """One line for each line of the file."""

    @property
    def prose(self) -> str:
        """The text without code and quotations, line by line."""
        text = self.text
        for pattern in (FENCE, LITERAL_BLOCK, CODE_SPAN, QUOTATION):
            text = pattern.sub(_blank, text)
        return text


def _blank(match: re.Match[str]) -> str:
    """Return ``_`` and the line breaks of a match."""
    return "_" + "\n" * match[0].count("\n")


def read_passages(path: Path, *, messages: bool = False) -> list[Passage]:
    """Read the passages of a file, except those marked as exceptions.

    Args:
        path: Python, Markdown, or a file whose comments begin with ``#``.
        messages: Include the strings of Python that contain a space.
    """
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = _of_python(text, messages=messages)
    elif path.suffix == ".md":
        found = _of_markdown(text)
    else:
        found = _joined(_hash_comments(text))
    lines = text.splitlines()
    return [
        each
        for each in found
        if not EXCEPTION.search("\n".join(lines[each.start - 1 : each.end]))
    ]


def _of_python(source: str, *, messages: bool) -> Iterator[Passage]:
    yield from _joined(_python_comments(source))
    tree = ast.parse(source)
    documentation = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            documentation.add(node.value)
            yield from _string("docstring", node.value)
    if not messages:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node not in documentation:
            yield from _string("message", node)


def _string(kind: str, node: ast.Constant) -> Iterator[Passage]:
    """Yield a string that has more than one word."""
    if isinstance(node.value, str) and " " in node.value:
        end = node.end_lineno or node.lineno
        yield Passage(kind, node.lineno, end, node.value)


def _python_comments(source: str) -> Iterator[Passage]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
            line = token.start[0]
            yield Passage("comment", line, line, token.string.lstrip("#: "))


def _hash_comments(text: str) -> Iterator[Passage]:
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r"\s*#(?!!)", line):
            yield Passage("comment", number, number, line.lstrip(" #"))


def _joined(comments: Iterable[Passage]) -> Iterator[Passage]:
    """Join the comments of consecutive lines."""
    block: Passage | None = None
    for comment in comments:
        if block and comment.start == block.end + 1:
            text = f"{block.text}\n{comment.text}"
            block = replace(block, end=comment.end, text=text)
            continue
        if block:
            yield block
        block = comment
    if block:
        yield block


def _of_markdown(text: str) -> Iterator[Passage]:
    text = FENCE.sub(_blank, text)
    breaks = [0, *(match.end() for match in re.finditer(r"\n\s*\n", text)), len(text)]
    for start, end in pairwise(breaks):
        line = text.count("\n", 0, start) + 1
        paragraph = text[start:end].rstrip()
        last = line + paragraph.count("\n")
        yield Passage("paragraph", line, last, paragraph)
