"""What shows that something is wrong, as rows of ``symptoms.toml``, and the findings that they make. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.codec import read
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog import authored
from gpuinstall.machine.prober import format_gpus

if TYPE_CHECKING:
    from gpuinstall.catalog.failures.problems import FixContext

SYMPTOMS = str(Path(__file__).with_name("symptoms.toml"))
KnownFacts = Mapping[str, Any]
"""Facts by their names: one holds unless it is empty, and its value is a word of messages and fixes."""


class Symptom(Value):
    """A row: what is wrong, and by which circumstances it shows."""

    code: str
    when: tuple[str, ...] = ()
    """All of them hold."""
    either: tuple[str, ...] = ()
    """One of them holds, if there are any."""
    unless: tuple[str, ...] = ()
    """None of them holds."""
    message: str | None = None
    """With the names of circumstances in braces; None: the table of failures', as is ``why``."""
    why: str | None = None
    like: str | None = None
    """The code whose entry and fixes are meant, if it is another."""
    near: tuple[str, ...] = ()
    """The keys of a closer fix."""
    gpus: str | None = None
    """The circumstance that holds the indices of the GPUs it is about."""
    blocking: bool = True

    def holds(self, known: set[str]) -> bool:
        """Whether it shows where these circumstances are known to hold."""
        is_either = not self.either or not known.isdisjoint(self.either)
        return is_either and known >= {*self.when} and known.isdisjoint(self.unless)


@cache
def _load() -> Mapping[str, tuple[Symptom, ...]]:
    table = authored.read_data(SYMPTOMS)
    rows: Mapping[str, tuple[Symptom, ...]]
    rows = read(dict[str, tuple[Symptom, ...]], table, "symptoms")
    return rows


def symptoms(
    subject: str,
    circumstances: KnownFacts,
) -> Iterator[Symptom]:
    """Yield the rows of a subject that hold."""
    known = {name for name, fact in circumstances.items() if fact}
    for symptom in _load()[subject]:
        if symptom.holds(known):
            yield symptom


def finding_of(
    symptom: Symptom,
    circumstances: KnownFacts,
    context: FixContext,
    *,
    gpus: tuple[int, ...] = (),
    evidence: str | None = None,
) -> Finding:
    """Return a symptom as a finding about these GPUs, or about the whole machine.

    Args:
        symptom: The row.
        circumstances: What was read: the values of the names in its words.
        context: Where its fix would be applied.
        gpus: The GPUs that it is about, unless a circumstance holds them.
        evidence: The facts that it rests on, in a line.
    """
    # A healthy machine has none, and need not load the table.
    from gpuinstall.catalog.failures.problems import finding_for
    from gpuinstall.catalog.failures.table import load_problems

    if symptom.gpus:
        gpus = circumstances[symptom.gpus]
    kind = load_problems()[symptom.code]
    # A command for a whole machine still names a GPU: which one is left to the reader.
    numbers = ",".join(map(str, gpus)) or "<gpu>"
    words = {**circumstances, "gpu": numbers, "where": format_gpus(gpus)}
    message = symptom.message or kind.message
    why = symptom.why or kind.why
    finding = finding_for(
        symptom.like or symptom.code,
        message.format_map(words),
        context.near(*symptom.near).knowing(**words),
        why=why.format_map(words) or None,
        evidence=evidence if symptom.blocking else None,
        gpus=gpus,
        blocking=symptom.blocking,
    )
    return replace(finding, code=symptom.code)


def findings_of(
    subject: str,
    circumstances: KnownFacts,
    place: Callable[[], FixContext],
    evidence: str | None = None,
) -> tuple[Finding, ...]:
    """Return the findings of all rows of a subject that hold.

    Args:
        subject: What the rows are about.
        circumstances: What is known of it.
        place: Returns where a fix would be applied; most machines need none.
        evidence: The facts that show what blocks.
    """
    return tuple(
        finding_of(symptom, circumstances, place(), evidence=evidence)
        for symptom in symptoms(subject, circumstances)
    )
