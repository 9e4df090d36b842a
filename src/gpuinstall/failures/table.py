"""The one table of failures, as frozen values read from ``data/*.toml``: an entry for each, and the problems below it.

Keys of an entry: a sign ``sees`` observations by a pattern of their names (``observations.toml``), or ``says`` what
stands in the text, where only the words themselves tell (:mod:`gpuinstall.failures.pattern`). ``weight`` is how sure it
makes us, 0 to 1; ``when`` and ``unless`` name circumstances and observations that must and must not hold, of an entry
as a whole too. ``aliases`` are the ids of entries that were found to be the same cause; ``behind`` names entries that
are mere consequences of this one; ``narrows``, of a symptom that names no cause, its likely causes, the likeliest
first; ``bounds`` are versions at which it begins or ends; ``detected`` says whether we see it before an installation,
after it, or only in a text; ``another`` says that a build of another ``code`` or ``toolkit`` may do without it. Sources
are threads (owner/repository#number) or addresses.

``fix`` has one list of commands for each kind of machine: a container engine or ``container``, ``wsl``, ``jetson``,
``conda``, a distribution, its package manager, the operating system; ``-legacy`` after a key is for GPUs that current
drivers no longer serve. ``any`` follows whichever it is; ``like`` names the entries and codes whose commands hold where
there are none here; ``legacy = true`` in an entry says that it is always about such GPUs.

Words in braces in a fix are filled in: by the environment that is meant, by what ``readings.toml`` takes from the text
itself (the ``value`` of the first row that is found, with the groups of its pattern), else by their defaults.

``[[failure.problem]]`` is a code under which an entry is reported: what doing something about it ``needs``, the words
for it where they are always the same, ``errors.<library>.<number>`` with the names of a library's headers, ``told`` for
the words of our own checks that mean it, and a ``fix`` only where the code says more than the entry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gpuinstall.failures.pattern import Pattern

DATA = Path(__file__).with_name("data")
_Row = TypeVar(
    "_Row",
    "Sign",
    "ProblemKind",
    "Failure",
    "RefutedAdvice",
    "Lookalike",
    "Reading",
    "Distribution",
)
GROUPS = ("driver", "detection", "wheel", "libraries", "runtime", "makers", "symptoms")


@dataclass(frozen=True)
class Sign:
    """What points to a failure: an observation, or a message by its words."""

    weight: float
    pattern: Pattern | None = None
    """The words of a message."""
    sees: re.Pattern[str] | None = None
    """The names of observations."""
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()


@dataclass(frozen=True)
class FixTable:
    """Commands by the kind of machine, as they stand in the file."""

    commands: Mapping[str, tuple[str, ...]]
    like: tuple[str, ...] = ()
    legacy: bool = False


@dataclass(frozen=True)
class ErrorNumber:
    """A number that a library of the driver returns, its name in the library's headers, and the code that it means."""

    library: str
    number: int
    name: str
    code: str


@dataclass(frozen=True)
class ProblemKind:
    """A code under which a failure is reported; ``id`` None: of no single entry. ``fix`` None: the entry's own."""

    code: str
    id: str | None
    message: str = ""
    why: str = ""
    needs: tuple[str, ...] = ()
    fix: FixTable | None = None
    told: tuple[str, ...] = ()
    errors: tuple[ErrorNumber, ...] = ()


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
    detected: tuple[str, ...]
    signs: tuple[Sign, ...]
    fix: FixTable
    problems: tuple[ProblemKind, ...]
    sources: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()
    narrows: tuple[str, ...] = ()
    another: str | None = None
    level: str = "reported"
    bounds: Mapping[str, str] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """Its page: a path in the documentation site."""
        return f"failures/{self.id}.html"


@dataclass(frozen=True)
class RefutedAdvice:
    """What people are often told to do, and why not; ``right`` names the failures for which it is good advice."""

    id: str
    told: str
    why: str
    patterns: tuple[Pattern, ...]
    right: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lookalike:
    """What looks like a fault of the GPU's stack and is none."""

    id: str
    title: str
    why: str
    fix: tuple[str, ...]
    patterns: tuple[Pattern, ...]


@dataclass(frozen=True)
class Reading:
    """What a text itself says of a word that fixes name; ``value`` may hold the groups of the pattern."""

    word: str
    value: str
    pattern: Pattern


@dataclass(frozen=True)
class Distribution:
    """A family of distributions: the beginnings of their names, their key in a fix, their package manager."""

    key: str
    manager: str
    names: tuple[str, ...]


@cache
def load_failures() -> Mapping[str, Failure]:
    """Read the entries by their ids, in order."""
    entries = [_failure(item, page) for page in map(read_table, GROUPS) for item in page["failure"]]
    return {
        failure.id: failure
        for failure in sorted(entries, key=lambda failure: (len(failure.id), failure.id))
    }


@cache
def load_aliases() -> Mapping[str, str]:
    """Read under which id the cause of an entry that is no more is found."""
    return {alias: failure.id for failure in load_failures().values() for alias in failure.aliases}


@cache
def load_problems() -> Mapping[str, ProblemKind]:
    """Read the codes of all problems: those of the entries, then those that belong to none or to several."""
    of_entries = [kind for failure in load_failures().values() for kind in failure.problems]
    return {
        kind.code: kind
        for kind in (
            *of_entries,
            *(_problem(item, None) for item in read_table("problems")["problem"]),
        )
    }


@cache
def load_errors(library: str) -> Mapping[int, ErrorNumber]:
    """Read what a library's error numbers mean, by the number."""
    errors = (error for kind in load_problems().values() for error in kind.errors)
    return {error.number: error for error in errors if error.library == library}


@cache
def load_distributions() -> tuple[Distribution, ...]:
    """Read the distributions, each family after its members."""
    rows = read_table("distributions")["distribution"]
    return tuple(_value(Distribution, row) for row in rows)


@cache
def load_words() -> Mapping[str, str]:
    """Read what stands for the words of a fix where nobody knows better."""
    words: dict[str, str] = read_table("distributions")["words"]
    return words


@cache
def load_readings() -> tuple[Reading, ...]:
    """Read which words of a fix a text may say; the first row of a word that is found counts."""
    return tuple(
        _value(Reading, row, pattern=Pattern(row["says"]))
        for row in read_table("readings")["reading"]
    )


@cache
def load_circumstances() -> Mapping[str, tuple[Pattern, ...]]:
    """Read the circumstances: the patterns of each by its name."""
    named = read_table("circumstances").items()
    return {
        name: tuple(map(Pattern, says))
        for name, says in named
        if name not in {"machine", "shown_by"}
    }


@cache
def load_shown_by() -> Mapping[str, str]:
    """Read the commands that show whether a circumstance holds."""
    commands: dict[str, str] = read_table("circumstances")["shown_by"]
    return commands


@cache
def load_machine_circumstances() -> tuple[Mapping[str, Any], ...]:
    """Read which circumstances a machine shows by its driver and its GPUs."""
    return tuple(read_table("circumstances")["machine"])


@cache
def load_advice() -> Mapping[str, RefutedAdvice]:
    """Read the common wrong advice, by its ids."""
    rows = read_table("advice")["advice"]
    return {
        row["id"]: _value(RefutedAdvice, row, patterns=tuple(map(Pattern, row["says"])))
        for row in rows
    }


@cache
def load_lookalikes() -> tuple[Lookalike, ...]:
    """Read what only looks like a fault of the GPU's stack."""
    rows = read_table("lookalikes")["lookalike"]
    return tuple(_value(Lookalike, row, patterns=tuple(map(Pattern, row["says"]))) for row in rows)


@cache
def read_table(name: str) -> dict[str, Any]:
    """Read a file of the table."""
    import tomli

    return tomli.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))


def _value(kind: type[_Row], row: Mapping[str, Any], **made: Any) -> _Row:
    """Make a value of a row of a file, whose lists are tuples; some of its fields are ``made`` of the row already."""
    named = {field.name for field in fields(kind)}
    plain = {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in row.items()
        if key in named
    }
    return kind(**{**plain, **made})


def _failure(row: Mapping[str, Any], page: Mapping[str, Any]) -> Failure:
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
    return _value(Sign, row, pattern=Pattern(row["says"]))


def _problem(row: Mapping[str, Any], identity: str | None) -> ProblemKind:
    errors = tuple(
        ErrorNumber(library, int(number), name, row["code"])
        for library, names in row.get("errors", {}).items()
        for number, name in names.items()
    )
    return _value(
        ProblemKind, row, id=identity, fix=_fix(row["fix"]) if "fix" in row else None, errors=errors
    )


def _fix(item: Mapping[str, list[str]], *, legacy: bool = False) -> FixTable:
    commands = {key: tuple(lines) for key, lines in item.items() if key != "like"}
    return FixTable(commands, tuple(item.get("like", ())), legacy)
