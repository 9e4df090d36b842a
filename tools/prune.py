"""Print parts of ``explain`` that no labeled text needs.

A part is a sign, a ``when``, an ``unless``, or a pattern of a condition. It is needed
if the first answer to a text in ``tests/data/logs``, or to one of its lines, changes
without it. Each part is removed alone, and machines are not examined: remove few parts
at a time, and run the tests.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

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
    """Return whether a pattern is the complete message of a program."""
    return pattern is not None and len(re.findall(r"[a-z]{2,} ", pattern.needle)) >= 3


def variants(failure: table.Failure) -> Iterator[tuple[str, table.Failure]]:
    """Yield the failure without each of its parts, with the part's name."""
    for index, sign in enumerate(failure.signs):
        before, after = failure.signs[:index], failure.signs[index + 1 :]
        name = sign.says.says if sign.says else f"{sign.sees and sign.sees.pattern}"
        if not is_message(sign.says):
            yield name, replace(failure, signs=before + after)
        for when in sign.when:
            rest = replace(sign, when=tuple(one for one in sign.when if one != when))
            yield (
                f"{name} when {when}",
                replace(failure, signs=(*before, rest, *after)),
            )
    for unless in failure.unless:
        rest_of_unless = tuple(one for one in failure.unless if one != unless)
        yield f"unless {unless}", replace(failure, unless=rest_of_unless)


def has_sign(failure: table.Failure, text: Conditions) -> bool:
    """Return whether a text has a sign of a failure."""
    return any(map(text.locate, failure.signs))


def has_pattern(pattern: table.Pattern, text: Conditions) -> bool:
    """Return whether a text has a line with a pattern."""
    return text.transcript.find(pattern) is not None


class Needs:
    """The labeled texts and their lines, with their first answers."""

    def __init__(self) -> None:
        self.failures = dict(table.load_failures())
        self.lookalikes = dict(table.load_lookalikes())
        self.conditions = [*table.load_conditions()]
        vars(table)["load_conditions"] = lambda: self.conditions
        texts = {*read_texts()}
        lines = {line for text in texts for line in text.split("\n") if " " in line}
        read = [Conditions(text) for text in (*texts, *lines - texts)]
        self.texts = [(conditions, self.answer(conditions)) for conditions in read]

    def answer(self, conditions: Conditions) -> object:
        """Return the first cause of a text, and the first similar error."""
        matches = rank(find_matches(self.failures, conditions))
        similar = rank(find_matches(self.lookalikes, conditions))
        first = [
            (cause.id, cause.certainty, cause.why, cause.fix)
            for cause in causes_of(matches, conditions, None)[:1]
        ]
        return first, [match.failure.id for match in similar[:1]]

    def is_changed(self, shows: Callable[[Conditions], bool]) -> bool:
        """Return whether an answer changed to a text that shows a part."""
        return any(
            self.answer(Conditions(conditions.transcript)) != known
            for conditions, known in self.texts
            if shows(conditions)
        )

    def unneeded_signs(self) -> Iterator[str]:
        """Yield the parts of failures that no text needs."""
        for rows in (self.failures, self.lookalikes):
            for failure in [*rows.values()]:
                for name, variant in variants(failure):
                    rows[failure.id] = variant
                    if not self.is_changed(partial(has_sign, failure)):
                        yield f"{failure.id}: {name}"
                rows[failure.id] = failure

    def unneeded_patterns(self) -> Iterator[str]:
        """Yield the patterns of conditions that no text needs."""
        for index, row in enumerate([*self.conditions]):
            for pattern in row.says + row.runs:
                says = tuple(one for one in row.says if one != pattern)
                runs = tuple(one for one in row.runs if one != pattern)
                self.conditions[index] = replace(row, says=says, runs=runs)
                if not is_message(pattern) and not self.is_changed(
                    partial(has_pattern, pattern)
                ):
                    yield f"{row.name or [*row.fills]}: {pattern.says}"
            self.conditions[index] = row


def main() -> None:
    """Print the parts."""
    needs = Needs()
    for line in (*needs.unneeded_signs(), *needs.unneeded_patterns()):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
