"""TOML edited a whole line at a time: what is added says so at its end, what is replaced stays as a comment.

So order, comments and spaces stay as they were, and taking the edit back gives the same bytes.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ADDED = "  # by gpuinstall"
REPLACED = "# by gpuinstall, was: "


class Statement(NamedTuple):
    """A header, or a key with its value: its table, the line of that table's header, its key ("" for a header)."""

    table: tuple[str, ...]
    header: int
    key: str
    start: int
    stop: int


def put(text: str, table: tuple[str, ...], key: str, value: Sequence[str]) -> str:
    """Give ``key`` in ``table`` a value, the lines of which are ``value``; an old one becomes a comment."""
    lines = text.split("\n")
    inside = [statement for statement in statements(text) if statement.table == table]
    name = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else f'"{key}"'
    added = [f"{name} = {value[0]}{ADDED}", *value[1:]]
    if not inside:
        return append(text, f"[{'.'.join(table)}]", added)
    stop = inside[-1].stop
    for old in inside:
        if old.key == key:
            lines[old.start : old.stop] = [REPLACED + line for line in lines[old.start : old.stop]]
            stop = old.stop
    return "\n".join([*lines[:stop], *added, *lines[stop:]])


def append(text: str, header: str, lines: Sequence[str]) -> str:
    """Add a table at the end, after an empty line; its statements are marked already."""
    before = text.split("\n")
    last = [before.pop()] if before[-1] == "" else []
    return "\n".join([*before, "", header + ADDED, *lines, *last])


def restored(text: str) -> str:
    """Take every edit back; a table to which something else was added since stays, with that alone."""
    lines, gone = text.split("\n"), set[int]()
    every = list(statements(text))
    shared = {statement.header for statement in every if statement.key and not _added(lines[statement.start])}
    for statement in every:
        if statement.start in shared:
            lines[statement.start] = lines[statement.start].replace(ADDED, "")
        elif _added(lines[statement.start]):
            empty_before = not statement.key and not lines[statement.start - 1].strip()
            gone.update(range(statement.start - empty_before, statement.stop))
    theirs = {at for statement in every for at in range(statement.start, statement.stop)}
    return "\n".join(
        line if at in theirs else line.removeprefix(REPLACED) for at, line in enumerate(lines) if at not in gone
    )


def statements(text: str) -> Iterator[Statement]:
    """Find the headers and keys of a well-formed document."""
    lines = text.split("\n")
    table: tuple[str, ...] = ()
    start, header = 0, -1
    while start < len(lines):
        stop, document = _statement(lines, start)
        keys: list[str] = []
        while document and isinstance(document, (dict, list)):
            if isinstance(document, list):
                document = document[0]
            else:
                key, document = next(iter(document.items()))
                keys.append(key)
        if lines[start].lstrip().startswith("["):
            table, header = tuple(keys), start
        if keys:
            yield Statement(table, header, "" if start == header else keys[0], start, stop)
        start = stop


def _statement(lines: Sequence[str], start: int) -> tuple[int, Any]:
    """Return the end of the statement that begins at a line, and what it says: the fewest lines that are TOML."""
    for stop in range(start + 1, len(lines)):
        with suppress(tomli.TOMLDecodeError):
            return stop, tomli.loads("\n".join([*lines[start:stop], ""]))
    return len(lines), tomli.loads("\n".join(lines[start:]))


def _added(line: str) -> bool:
    return line.rstrip().endswith(ADDED)
