"""Print parts of ``explain`` that no labeled text needs.

A part is a sign, a ``when``, an ``unless``, or a pattern of a condition. It is needed
if the first answer to a text in ``tests/data/logs``, or to one of its lines, changes
without it and the parts printed before it. Messages of programs are kept. All printed
parts can be removed together, but machines are not examined: run the tests.
Keep the ``when`` of a general pattern, because few texts are healthy.
``python -m tools.prune F168`` examines only this failure.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq
from pathlib import Path
from typing import Any, TypeVar

import tomli

from gpuinstall.base.values import replace
from gpuinstall.catalog.failures import table
from gpuinstall.catalog.failures.classify import (
    Conditions,
    causes_of,
    find_matches,
    rank,
)

LOGS = Path("tests/data/logs")
_Value = TypeVar("_Value")


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


def is_message(pattern: table.Pattern | None) -> bool:
    """Return whether a pattern contains three words of a program's message."""
    words = r"([a-z][\w.,:'-]* ){2}[a-z]"
    return pattern is not None and re.search(words, pattern.says) is not None


def name_of(sign: table.Sign) -> str:
    """Return the pattern of a sign."""
    return sign.says.says if sign.says else f"{sign.sees and sign.sees.pattern}"


def without(values: tuple[_Value, ...], value: _Value) -> tuple[_Value, ...]:
    """Return the values except one."""
    return tuple(one for one in values if one != value)


def variants(
    rows: Mapping[str, table.Failure], identity: str
) -> Iterator[tuple[str, table.Failure]]:
    """Yield a failure's current row without each part, with its name."""
    for sign in rows[identity].signs:
        if sign.when or not is_message(sign.says):
            signs = without(rows[identity].signs, sign)
            yield name_of(sign), replace(rows[identity], signs=signs)
    for index, sign in enumerate(rows[identity].signs):
        for when in sign.when:
            rest = [*rows[identity].signs]
            rest[index] = replace(rest[index], when=without(rest[index].when, when))
            yield (
                f"{name_of(sign)} when {when}",
                replace(rows[identity], signs=tuple(rest)),
            )
    for unless in rows[identity].unless:
        causes = without(rows[identity].unless, unless)
        yield f"unless {unless}", replace(rows[identity], unless=causes)


class Texts:
    """The labeled texts and their lines, with the rows that explain them."""

    def __init__(self) -> None:
        self.failures = dict(table.load_failures())
        self.lookalikes = dict(table.load_lookalikes())
        self.conditions = [*table.load_conditions()]
        vars(table)["load_conditions"] = lambda: self.conditions
        texts = {*read_texts()}
        lines = {line for text in texts for line in text.split("\n") if " " in line}
        self.texts = [Conditions(text) for text in (*texts, *lines - texts)]

    def answers(self, texts: Iterable[Conditions]) -> Iterator[object]:
        """Yield the first cause of each text, and the first similar error."""
        for text in texts:
            matches = rank(find_matches(self.failures, text))
            similar = rank(find_matches(self.lookalikes, text))
            first = [
                (cause.id, cause.certainty, cause.why, cause.fix)
                for cause in causes_of(matches, text, None)[:1]
            ]
            yield first, [match.failure.id for match in similar[:1]]

    def remove_parts(self, names: Sequence[str]) -> Iterator[str]:
        """Remove and yield the parts of failures that no text needs."""
        for rows in (self.failures, self.lookalikes):
            for identity in [name for name in rows if name in (names or rows)]:
                signs = rows[identity].signs
                texts = [text for text in self.texts if any(map(text.locate, signs))]
                known = [*self.answers(texts)]
                for name, variant in variants(rows, identity):
                    row, rows[identity] = rows[identity], variant
                    if all(map(eq, known, self.answers(texts))):
                        yield f"{identity}: {name}"
                    else:
                        rows[identity] = row

    def remove_patterns(self) -> Iterator[str]:
        """Remove and yield the patterns of conditions that no text needs."""
        for index, row in enumerate(self.conditions):
            for pattern in row.says + row.runs:
                current = self.conditions[index]
                texts = [text for text in self.texts if text.transcript.find(pattern)]
                known = [*self.answers(texts)]
                says, runs = (
                    without(current.says, pattern),
                    without(current.runs, pattern),
                )
                self.conditions[index] = replace(current, says=says, runs=runs)
                # The conditions that a text meets are determined only once.
                fresh = (Conditions(text.transcript) for text in texts)
                is_same = all(map(eq, known, self.answers(fresh)))
                if is_same and not is_message(pattern):
                    yield f"{row.name or [*row.fills]}: {pattern.says}"
                else:
                    self.conditions[index] = current


def main() -> None:
    """Print the parts."""
    texts, names = Texts(), sys.argv[1:]
    for line in texts.remove_parts(names):
        sys.stdout.write(f"{line}\n")
    for line in () if names else texts.remove_patterns():
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
