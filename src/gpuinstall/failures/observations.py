"""What the lines of a text state, whoever wrote them: a library that was not found, a code, a tool, a signal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gpuinstall.failures.pattern import Pattern
from gpuinstall.failures.table import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuinstall.failures.transcript import Transcript

# The name of a group, (?P<it>…), is no word.
_WORD = re.compile(r"(?<!\?P)<(?P<word>[a-z-]+)>")


@dataclass(frozen=True)
class Observation:
    """What one line of a text states."""

    name: str
    """Its kind, and what it is about: ``missing library cuda/cudnn``, ``cuda 802``."""
    value: str
    """What the text calls it: ``libcudnn.so.8``; empty if the kind says all."""
    line: int
    """The number of the line, from 1."""
    quotation: str
    """The line."""


@dataclass(frozen=True)
class ObservationKind:
    """A row of ``observations.toml``."""

    name: str
    patterns: tuple[Pattern, ...]
    families: Mapping[str, re.Pattern[str]]

    def name_of(self, value: str) -> str:
        """Name an observation by the first family that its value belongs to."""
        if not value:
            return self.name
        family = next(
            (name for name, values in self.families.items() if values.fullmatch(value)), value
        )
        return f"{self.name} {family}"


@cache
def load_kinds() -> tuple[ObservationKind, ...]:
    """Read the kinds of observations as shipped."""
    table = read_table("observations")
    words: dict[str, str] = table["words"]
    return tuple(
        ObservationKind(
            row["name"],
            tuple(Pattern(_spelled_out(says, words)) for says in row["says"]),
            {family: re.compile(values) for family, values in row.get("of", {}).items()},
        )
        for row in table["observation"]
    )


def observe(transcript: Transcript) -> tuple[Observation, ...]:
    """Return what a text states, in the order of its lines; of a line nothing twice."""
    first: dict[tuple[int, str], Observation] = {}
    for observation in _observations(transcript):
        first.setdefault((observation.line, observation.name), observation)
    return tuple(sorted(first.values(), key=lambda observation: observation.line))


def _observations(transcript: Transcript) -> Iterator[Observation]:
    for kind in load_kinds():
        for pattern in kind.patterns:
            for place in transcript.places(pattern):
                yield Observation(
                    kind.name_of(place.value), place.value, place.line, place.quotation
                )


def _spelled_out(says: str, words: Mapping[str, str]) -> str:
    """Put the words of the table in their places, those within them too."""
    while (spelled := _WORD.sub(lambda word: words[word["word"]], says)) != says:
        says = spelled
    return says
