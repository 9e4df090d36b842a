"""Findings from the known facts about a machine and ``symptoms.toml``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuinstall.base.codec import read
from gpuinstall.base.finding import Finding
from gpuinstall.base.values import Value, replace
from gpuinstall.base.vendors import VENDOR_ROWS
from gpuinstall.catalog import data_files
from gpuinstall.machine.prober import format_gpus

if TYPE_CHECKING:
    from gpuinstall.catalog.failures.problems import FixContext

SYMPTOMS = [
    str(Path(__file__).parent / name / "symptoms.toml")
    for name in (".", *(row.name for row in VENDOR_ROWS[1:]))
]
"""The files of symptoms: NVIDIA and any machine, then other vendors."""
KnownFacts = Mapping[str, Any]
"""Facts about a machine, by name. A known fact has a true value."""


class Symptom(Value):
    """Row of ``symptoms.toml``: a problem, and the facts that indicate it."""

    code: str
    when: tuple[str, ...] = ()
    """Facts that must all be known for the symptom to match."""
    either: tuple[str, ...] = ()
    """Facts of which at least one must be known for the symptom to match."""
    unless: tuple[str, ...] = ()
    """Facts that must all be unknown for the symptom to match."""
    message: str | None = None
    """The message, with facts in braces. None: the default of the code."""
    why: str | None = None
    like: str | None = None
    """The problem code that has the fixes, if it differs from ``code``."""
    fix_keys: tuple[str, ...] = ()
    """Keys that select more specific fixes."""
    gpus: str | None = None
    """The fact that contains the indices of the affected GPUs."""
    blocking: bool = True

    def matches(self, known: set[str]) -> bool:
        """Return whether the known facts indicate this problem."""
        is_either = not self.either or not known.isdisjoint(self.either)
        return is_either and known >= {*self.when} and known.isdisjoint(self.unless)


@cache
def load_symptoms() -> Mapping[str, tuple[Symptom, ...]]:
    """Load the rows of ``symptoms.toml`` by subject, in file order."""
    tables: dict[str, Any] = {}
    for name in SYMPTOMS:
        tables |= data_files.read_data(name)
    return dict(read(dict[str, tuple[Symptom, ...]], tables, "symptoms"))


def symptoms(
    subject: str,
    circumstances: KnownFacts,
) -> Iterator[Symptom]:
    """Yield the symptoms of a subject that match the known facts."""
    known = {name for name, fact in circumstances.items() if fact}
    for symptom in load_symptoms()[subject]:
        if symptom.matches(known):
            yield symptom


def create_finding(
    symptom: Symptom,
    circumstances: KnownFacts,
    context: FixContext,
    *,
    gpus: tuple[int, ...] = (),
    evidence: str | None,
) -> Finding:
    """Create the finding for a symptom of some GPUs or the whole machine.

    Args:
        symptom: The row.
        circumstances: The facts that fill in the message.
        context: The system and GPUs for which commands of fixes are selected.
        gpus: The affected GPUs, unless a fact contains them.
        evidence: The evidence in one line.
    """
    # Import the table of failures only here, because a healthy machine does not need it.
    from gpuinstall.catalog.failures.problems import finding_for
    from gpuinstall.catalog.failures.table import load_problems

    if symptom.gpus:
        gpus = circumstances[symptom.gpus]
    kind = load_problems()[symptom.code]
    # If the finding is about the whole machine, the user replaces the placeholder with the index of a GPU.
    numbers = ",".join(map(str, gpus)) or "<gpu>"
    words = {**circumstances, "gpu": numbers, "where": format_gpus(gpus)}
    message = symptom.message or kind.message
    why = symptom.why or kind.why
    finding = finding_for(
        symptom.like or symptom.code,
        message.format_map(words),
        context.about(*symptom.fix_keys).knowing(**words),
        why=why.format_map(words) or None,
        evidence=evidence if symptom.blocking else None,
        gpus=gpus,
        blocking=symptom.blocking,
    )
    return replace(finding, code=symptom.code)


def create_findings(
    subject: str,
    circumstances: KnownFacts,
    place: Callable[[], FixContext],
    evidence: str | None = None,
) -> tuple[Finding, ...]:
    """Create the findings for all symptoms of a subject that match.

    Args:
        subject: The subject, such as ``amd`` or ``note``.
        circumstances: The known facts.
        place: The function that returns the context of fixes. It is called only if
            there are findings.
        evidence: The evidence of blocking findings.
    """
    return tuple(
        create_finding(symptom, circumstances, place(), evidence=evidence)
        for symptom in symptoms(subject, circumstances)
    )
