"""The one table of failures, as frozen values read from ``data/*.toml``: an entry for each, and the problems below it.

What a key means stands at the field of its name; an unknown key is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gpuinstall.base.values import dataclass
from gpuinstall.catalog.failures.transcript import Pattern

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DATA = Path(__file__).with_name("data")
_Row = TypeVar("_Row", bound="DataclassInstance")
GROUPS = (
    "driver",
    "detection",
    "wheel",
    "libraries",
    "runtime",
    "makers",
    "symptoms",
)


@dataclass(frozen=True)
class Sign:
    """What points to a failure: an observation, or a message by its words if only they tell."""

    weight: float
    """How sure it makes us, from 0 to 1."""
    pattern: Pattern | None = None
    """The words of a message; the key is ``says``."""
    sees: re.Pattern[str] | None = None
    """The names of observations (``observations.toml``)."""
    when: tuple[str, ...] = ()
    """The circumstances and observations that must hold."""
    unless: tuple[str, ...] = ()
    """Those that must not."""


@dataclass(frozen=True)
class FixTable:
    """Commands by the kind of machine, as they stand in the file.

    A line that begins with a capital is prose; three spaces and ``#`` begin a note. Placeholders in braces are filled in:
    by the environment that is meant, by what ``readings.toml`` takes from the text itself, else by their defaults.
    """

    commands: Mapping[str, tuple[str, ...]]
    """By a container engine or ``container``, ``wsl``, ``jetson``, ``conda``, a distribution, its package manager, or the
    operating system; a key with ``-legacy`` is for GPUs that current drivers no longer serve. Those of ``any`` follow
    whichever it is."""
    like: tuple[str, ...] = ()
    """The entries and codes whose commands hold if there are none here."""
    legacy: bool = False
    """Whether the entry is always about GPUs that current drivers no longer serve."""


@dataclass(frozen=True)
class ErrorNumber:
    """A number that a library of the driver returns."""

    library: str
    number: int
    name: str
    """Its name in the library's headers."""
    code: str
    """The code of the problem that it means."""


@dataclass(frozen=True)
class ProblemKind:
    """A code under which a failure is reported."""

    code: str
    id: str | None
    """Its entry; None if it belongs to no single one."""
    message: str = ""
    """What is reported, if that is always the same; so is ``why``."""
    why: str = ""
    needs: tuple[str, ...] = ()
    """What its fix needs, such as ``reboot``."""
    fix: FixTable | None = None
    """Only if the code says more than the entry; None: the entry's own."""
    told: tuple[str, ...] = ()
    """The words of our own checks that mean it."""
    errors: tuple[ErrorNumber, ...] = ()
    """By library in the file: each number with its name in the library's headers."""


@dataclass(frozen=True)
class Failure:
    """One way in which a GPU stack fails: how it shows, why, what to do."""

    id: str
    group: str
    date: str
    title: str
    messages: tuple[str, ...]
    cause: str
    apart: str
    """How to tell it from others."""
    detected: tuple[str, ...]
    """Whether we see it before an installation, after it, or only in a text."""
    signs: tuple[Sign, ...]
    fix: FixTable
    problems: tuple[ProblemKind, ...]
    """The codes under which it is reported: ``[[failure.problem]]``."""
    sources: tuple[str, ...]
    """Threads (owner/repository#number) or addresses."""
    unless: tuple[str, ...] = ()
    """The circumstances and observations that rule it out."""
    advice: tuple[str, ...] = ()
    """The wrong advice that is often given for it."""
    consequences: tuple[str, ...] = ()
    """The entries that follow from this one."""
    narrows: tuple[str, ...] = ()
    """Of a mere symptom: its likely causes, the likeliest first."""
    another: str | None = None
    """``code`` or ``toolkit``: a build with another one may not have it."""
    level: str = "reported"
    """``inferred`` if no thread shows it."""

    @property
    def is_symptom(self) -> bool:
        """Whether it names no cause."""
        return bool(self.narrows)

    @property
    def page(self) -> str:
        """Its page: a path in the documentation site."""
        return f"failures/{self.id}.html"


@dataclass(frozen=True)
class RefutedAdvice:
    """What is often advised and is wrong."""

    id: str
    told: str
    why: str
    """Why it is wrong."""
    patterns: tuple[Pattern, ...]
    right: tuple[str, ...] = ()
    """The failures for which it is good advice."""


@dataclass(frozen=True)
class Lookalike:
    """What looks like a fault of the GPU's stack and is none."""

    id: str
    title: str
    why: str
    fix: tuple[str, ...]
    patterns: tuple[Pattern, ...]
    elsewhere: tuple[str, ...] = ()
    """The fixes on a Mac and on other makers' GPUs, if they differ."""


@dataclass(frozen=True)
class Reading:
    """What a text itself tells of a placeholder of fixes."""

    placeholder: str
    value: str
    """It may hold the groups of the pattern."""
    pattern: Pattern


@dataclass(frozen=True)
class Distribution:
    """A family of distributions."""

    key: str
    """Its key in a fix."""
    manager: str
    """Its package manager."""
    names: tuple[str, ...]
    """The beginnings of the names of its members."""


@cache
def load_failures() -> Mapping[str, Failure]:
    """Return the entries by their ids, in order."""
    failures = []
    for name in GROUPS:
        page = read_table(name)
        failures += [_failure(row, page) for row in page["failure"]]
    # F9 stands before F10.
    failures.sort(key=lambda failure: (len(failure.id), failure.id))
    return {failure.id: failure for failure in failures}


@cache
def load_problems() -> Mapping[str, ProblemKind]:
    """Return the codes of all problems: those of the entries, then those that belong to none or to several."""
    kinds: list[ProblemKind] = []
    for failure in load_failures().values():
        kinds += failure.problems
    kinds += [_problem(row, None) for row in read_table("problems")["problem"]]
    return {kind.code: kind for kind in kinds}


@cache
def load_errors(library: str) -> Mapping[int, ErrorNumber]:
    """Return what a library's error numbers mean, by the number."""
    errors = {}
    for kind in load_problems().values():
        for error in kind.errors:
            if error.library == library:
                errors[error.number] = error
    return errors


@cache
def load_distributions() -> tuple[Distribution, ...]:
    """Return the distributions, each family after its members."""
    return _values(Distribution, read_table("distributions")["distribution"])


@cache
def load_placeholders() -> Mapping[str, str]:
    """Return what fills the placeholders of fixes if nothing better is known."""
    values: dict[str, str] = read_table("distributions")["placeholders"]
    return values


@cache
def load_readings() -> tuple[Reading, ...]:
    """Return which placeholders of fixes a text may fill; the first row of one that is found counts."""
    return _values(Reading, read_table("readings")["reading"])


@cache
def load_circumstances() -> Mapping[str, tuple[Pattern, ...]]:
    """Return the circumstances: the patterns of each by its name."""
    rows = dict(read_table("circumstances"))
    # This table of the file is about the circumstances.
    del rows["machine"]
    patterns = {}
    for name, says in rows.items():
        patterns[name] = tuple(map(Pattern, says))
    return patterns


@cache
def load_machine_circumstances() -> tuple[Mapping[str, Any], ...]:
    """Return which circumstances a machine shows by its driver and its GPUs."""
    return tuple(read_table("circumstances")["machine"])


@cache
def load_advice() -> Mapping[str, RefutedAdvice]:
    """Return the common wrong advice, by its ids."""
    refuted = _values(RefutedAdvice, read_table("advice")["advice"])
    return {advice.id: advice for advice in refuted}


@cache
def load_lookalikes() -> tuple[Lookalike, ...]:
    """Return what only looks like a fault of the GPU's stack."""
    return _values(Lookalike, read_table("lookalikes")["lookalike"])


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return a file of the table."""
    import tomli

    text = (DATA / f"{name}.toml").read_text(encoding="utf-8")
    return tomli.loads(text)


def _values(
    kind: type[_Row],
    rows: Iterable[Mapping[str, Any]],
) -> tuple[_Row, ...]:
    return tuple(_value(kind, row) for row in rows)


def _value(
    kind: type[_Row],
    row: Mapping[str, Any],
    **values: Any,
) -> _Row:
    """Return a value of a row of a file, whose lists are tuples.

    Args:
        kind: Its class.
        row: The row.
        values: The fields that the caller made of the row.

    Raises:
        TypeError: if the row has an unknown key.
    """
    says = row.get("says")
    if isinstance(says, str):
        values["pattern"] = Pattern(says)
    elif says is not None:
        values["patterns"] = tuple(map(Pattern, says))
    for name, value in row.items():
        if name not in {"says", "problem", "legacy", *values}:
            values[name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _failure(
    row: Mapping[str, Any],
    page: Mapping[str, Any],
) -> Failure:
    return _value(
        Failure,
        row,
        group=page["group"],
        date=page["date"],
        signs=tuple(map(_sign, row["signs"])),
        fix=_fix(row["fix"], legacy=row.get("legacy", False)),
        problems=tuple(_problem(problem, row["id"]) for problem in row.get("problem", ())),
    )


def _sign(row: Mapping[str, Any]) -> Sign:
    if "sees" in row:
        return _value(Sign, row, sees=re.compile(row["sees"]))
    return _value(Sign, row)


def _problem(
    row: Mapping[str, Any],
    identity: str | None,
) -> ProblemKind:
    errors = []
    for library, names in row.get("errors", {}).items():
        for number, name in names.items():
            error = ErrorNumber(library, int(number), name, row["code"])
            errors.append(error)
    return _value(
        ProblemKind,
        row,
        id=identity,
        fix=_fix(row["fix"]) if "fix" in row else None,
        errors=tuple(errors),
    )


def _fix(
    row: Mapping[str, list[str]],
    *,
    legacy: bool = False,
) -> FixTable:
    commands = {key: tuple(lines) for key, lines in row.items()}
    like = commands.pop("like", ())
    return FixTable(commands, like, legacy)
