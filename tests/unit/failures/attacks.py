"""Texts made from a pattern that lead a careless one to try in vain, for ever."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_parser: Any = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")
_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}


def attacks(regex: str, length: int) -> Iterator[str]:
    """Repeat each beginning of what the pattern matches, and each part that it lets repeat; complete none."""
    nodes = list(_parser.parse(regex))
    for count in range(1, len(nodes) + 1):
        if beginning := _sample(nodes[:count], 0):
            yield _fill(beginning, length)
        if str(nodes[count - 1][0]) in ("MAX_REPEAT", "MIN_REPEAT", "BRANCH", "SUBPATTERN"):
            before = _sample(nodes[: count - 1], 0)
            for branch in range(2):
                body = _sample(nodes[count - 1 : count], branch) or "x"
                yield before + _fill(body, length)
                yield _fill(before + body * 30, length)


def _fill(unit: str, length: int) -> str:
    return (unit * (length // len(unit) + 1))[:length]


def _sample(nodes: Sequence[Any], branch: int) -> str:
    return "".join(_one(str(kind), value, branch) for kind, value in nodes)


def _one(kind: str, value: Any, branch: int) -> str:
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return "x"
        case "IN":
            return _of_set(value)
        case "BRANCH" | "SUBPATTERN":
            return _sample(value[-1][branch % len(value[-1])] if kind == "BRANCH" else value[-1], branch)
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, body = value
            return _sample(body, branch) * int(min(max(least, 1), most))
    return ""


def _of_set(items: Sequence[tuple[Any, Any]]) -> str:
    (first, value), *_ = items
    match str(first):
        case "NEGATE":
            return "x"
        case "CATEGORY":
            return _CATEGORIES.get(str(value), "-")
        case "RANGE":
            return chr(value[0])
    return chr(value)
