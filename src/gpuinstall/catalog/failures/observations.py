"""Observations in a text: a missing library, a code, a tool, a signal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Annotated, NamedTuple

from gpuinstall.base.codec import read_object
from gpuinstall.base.values import Value
from gpuinstall.catalog.failures.pattern import Pattern
from gpuinstall.catalog.failures.table import read_table
from gpuinstall.catalog.failures.transcript import Passage, TextLines

# The name of a group, (?P<it>…), is no macro.
_MACRO = re.compile(r"(?<!\?P)<(?P<name>[a-z-]+)>")


class Observation(NamedTuple):
    """An observation in one line."""

    name: str
    """Its kind and subject: ``missing library cuda/cudnn``, ``cuda 802``."""
    line: int
    """The number of the line, from 1."""
    quotation: str
    """The line."""


class ObservationKind(Value):
    """A row of ``observations.toml``."""

    name: str
    says: tuple[Pattern, ...]
    of: Mapping[str, Annotated[re.Pattern[str], re.compile]] = {}

    def name_of(self, passage: Passage) -> str:
        """Return the name of an observation, by the first family that its value belongs to."""
        value = (passage.match.groupdict().get("it") or "").rstrip(".")
        if not value:
            return self.name
        for family, values in self.of.items():
            if values.fullmatch(value):
                return f"{self.name} {family}"
        return f"{self.name} {value}"


@cache
def load_kinds() -> tuple[ObservationKind, ...]:
    """Load the kinds of observations as shipped."""
    table = read_table("observations")
    kinds = []
    for row in table["observation"]:
        says = [_expanded(text, table["macros"]) for text in row["says"]]
        kinds.append(read_object(ObservationKind, {**row, "says": says}))
    return tuple(kinds)


def _expanded(says: str, macros: Mapping[str, str]) -> str:
    """Expand macros, including nested ones."""
    while _MACRO.search(says):
        says = _MACRO.sub(lambda match: macros[match["name"]], says)
    return says


@lru_cache(maxsize=2)
def observe(lines: TextLines) -> tuple[Observation, ...]:
    """Return the distinct observations in the order of the lines."""
    observations: dict[tuple[int, str], Observation] = {}
    for kind in load_kinds():
        for pattern in kind.says:
            for passage in lines.passages(pattern):
                name = kind.name_of(passage)
                observation = Observation(name, passage.line, passage.quotation)
                observations.setdefault((passage.line, name), observation)
    return tuple(
        sorted(observations.values(), key=lambda observation: observation.line)
    )
