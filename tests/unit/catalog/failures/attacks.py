"""Texts that cause backtracking in careless patterns, with times."""

import importlib
import re
import sys
import time
from typing import Any

from gpuinstall.catalog.failures.table import (
    load_conditions,
    load_failures,
    load_lookalikes,
)

TEXT = 2000
_parser: Any = importlib.import_module(
    "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
)
_CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a"}


def patterns():
    """Yield all patterns of the table."""
    return {
        *(
            sign.says
            for failure in (*load_failures().values(), *load_lookalikes().values())
            for sign in failure.signs
            if sign.says
        ),
        *(pattern for row in load_conditions() for pattern in (*row.says, *row.runs)),
    }


def worst_seconds(pattern, enough):
    """Return the maximum seconds that a pattern takes for one of its texts."""
    return max(
        _fastest_of_three(pattern.regex, re.sub(r"(\s)\s+", r"\1", text), enough)
        for text in attacks(pattern.regex.pattern, TEXT)
    )


def _fastest_of_three(regex, text, enough):
    took = _seconds(regex, text)
    return (
        took
        if took < enough
        else min(took, _seconds(regex, text), _seconds(regex, text))
    )


def _seconds(regex, text):
    start = time.process_time()
    for _ in regex.finditer(text):
        pass
    return time.process_time() - start


def attacks(regex, length):
    """Yield repeated prefixes and parts that never match completely."""
    nodes = list(_parser.parse(regex))
    for count in range(1, len(nodes) + 1):
        if beginning := _sample(nodes[:count], 0):
            yield _fill(beginning, length)
        if str(nodes[count - 1][0]) in (
            "MAX_REPEAT",
            "MIN_REPEAT",
            "BRANCH",
            "SUBPATTERN",
        ):
            before = _sample(nodes[: count - 1], 0)
            for branch in range(2):
                body = _sample(nodes[count - 1 : count], branch) or "x"
                yield before + _fill(body, length)
                yield _fill(before + body * 30, length)


def _fill(unit, length):
    return (unit * (length // len(unit) + 1))[:length]


def _sample(nodes, branch):
    return "".join(_one(str(kind), value, branch) for kind, value in nodes)


def _one(kind, value, branch):
    match kind:
        case "LITERAL":
            return chr(value)
        case "NOT_LITERAL" | "ANY":
            return "x"
        case "IN":
            return _of_set(value)
        case "BRANCH" | "SUBPATTERN":
            return _sample(
                value[-1][branch % len(value[-1])] if kind == "BRANCH" else value[-1],
                branch,
            )
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, body = value
            return _sample(body, branch) * int(min(max(least, 1), most))
    return ""


def _of_set(items):
    (first, value), *_ = items
    match str(first):
        case "NEGATE":
            return "x"
        case "CATEGORY":
            return _CATEGORIES.get(str(value), "-")
        case "RANGE":
            return chr(value[0])
    return chr(value)
