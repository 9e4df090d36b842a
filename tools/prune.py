"""Print patterns of ``explain`` that no labeled text needs.

A sign or a pattern of a condition is needed if a cause or fix of a text in
``tests/data/logs`` changes without it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tomli

from gpuinstall.base.values import replace
from gpuinstall.catalog.failures import table
from gpuinstall.catalog.failures.classify import classify
from gpuinstall.catalog.failures.transcript import Transcript

LOGS = Path("tests/data/logs")


def read_texts() -> Iterator[str]:
    """Yield the labeled texts, and the messages of all failures."""
    for path in LOGS.glob("*.txt"):
        yield path.read_text("utf-8")
    for path in LOGS.glob("*.toml"):
        yield from _strings(tomli.loads(path.read_text("utf-8")))
    for failure in table.load_failures().values():
        yield from failure.messages


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _strings([*value.values()])
    else:
        for each in value:
            yield from _strings(each)


def is_message(pattern: table.Pattern) -> bool:
    """Return whether a pattern is the complete message of a program."""
    return len(re.findall(r"[a-z]{2,} ", pattern.needle)) >= 3


class Needs:
    """The labeled texts with their answers."""

    def __init__(self) -> None:
        self.failures = dict(table.load_failures())
        self.conditions = [*table.load_conditions()]
        vars(table)["load_failures"] = lambda: self.failures
        vars(table)["load_conditions"] = lambda: self.conditions
        self.texts = [
            (text, Transcript(text), classify(text)) for text in {*read_texts()}
        ]

    def is_changed(self, pattern: table.Pattern) -> bool:
        """Return whether an answer changed to a text with a pattern."""
        return is_message(pattern) or any(
            classify(text) != known
            for text, transcript, known in self.texts
            if transcript.find(pattern)
        )

    def unneeded_signs(self) -> Iterator[str]:
        """Yield the patterns of signs that no text needs."""
        for failure in [*self.failures.values()]:
            for sign in failure.signs:
                signs = tuple(one for one in failure.signs if one != sign)
                self.failures[failure.id] = replace(failure, signs=signs)
                if sign.says and not self.is_changed(sign.says):
                    yield f"{failure.id}: {sign.says.says}"
            self.failures[failure.id] = failure

    def unneeded_patterns(self) -> Iterator[str]:
        """Yield the patterns of conditions that no text needs."""
        for index, row in enumerate([*self.conditions]):
            for pattern in row.says + row.runs:
                says = tuple(one for one in row.says if one != pattern)
                runs = tuple(one for one in row.runs if one != pattern)
                self.conditions[index] = replace(row, says=says, runs=runs)
                if not self.is_changed(pattern):
                    yield f"{row.name or [*row.fills]}: {pattern.says}"
            self.conditions[index] = row


def main() -> None:
    """Print the patterns."""
    needs = Needs()
    for line in (*needs.unneeded_signs(), *needs.unneeded_patterns()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
