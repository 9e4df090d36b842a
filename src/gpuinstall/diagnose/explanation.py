"""Find the causes of an error message that this machine does not refute."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuinstall.base.codec import write
from gpuinstall.base.values import Value, replace
from gpuinstall.catalog.failures.classify import (
    ORIGINS,
    Conditions,
    Match,
    RecognizedCause,
    causes_of,
    find_matches,
    known_of,
    rank,
    requested,
)
from gpuinstall.catalog.failures.table import load_failures, load_lookalikes
from gpuinstall.catalog.failures.transcript import Transcript
from gpuinstall.diagnose.predicates import LocalFact, gpu_placeholders, local_fact
from gpuinstall.diagnose.reading import LocalReading
from gpuinstall.wheels.needs import load_libraries

CONFIRMED = 0.95
"""The minimum weight of a cause that this machine confirms."""
COMMON_CUDA = "12"
"""The CUDA major version of most programs that do not state theirs."""
_GPU = re.compile(
    r"\b(?:(?:rtx|gtx|radeon rx|arc) ?\w{0,3}\d{3,4}|[abhv][12]00|a10|a40|k80|l4|l40s?|m60|p100|p40|t4|mi[123]\d\d)\b"
)
_TORCH = re.compile(
    r"(?:pytorch version: |torch\.__version__\W{1,6}|\(you have |\btorch===?|\btorch-)(\d+\.\d+\.\d+)(\+\w+)?"
)
_PLACES = {*ORIGINS} - {"conda"}


class Explanation(Value):
    """Causes of an error message, most likely first, and similar errors."""

    causes: tuple[RecognizedCause, ...]
    refuted: tuple[RecognizedCause, ...]
    facts: Mapping[str, LocalFact]
    """The facts of this machine that confirm or refute failures, by ID."""
    reading: LocalReading
    is_elsewhere: bool
    """Whether the text mentions another GPU, torch, or platform."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of the explanation."""
        facts: dict[str, dict[str, Any]] = {}
        for entry, fact in self.facts.items():
            row = facts.setdefault(
                fact.message, {"fact": fact.message, "confirms": [], "refutes": []}
            )
            row["confirms" if fact.holds else "refutes"].append(entry)
        return {
            "causes": [*map(_write_cause, self.causes)],
            "machine": [*facts.values()],
            "refuted": [*map(_write_cause, self.refuted)],
        }


def _write_cause(cause: RecognizedCause) -> dict[str, Any]:
    return {**write(cause), "fix": [*map(str, cause.fix)]}


def explain_text(
    text: str,
    reading: LocalReading,
    placeholders: Mapping[str, str],
) -> Explanation:
    """Find the causes of an error message, and check them on this machine.

    Args:
        text: The error message, or a log that contains it.
        reading: This machine and an environment.
        placeholders: The values of placeholders in commands.
    """
    transcript = Transcript(text)
    conditions = Conditions(transcript)
    matches = requested(transcript)
    facts: dict[str, LocalFact] = {}
    is_elsewhere = not matches and _is_elsewhere(conditions, reading)
    left: Sequence[Match] = matches
    if not matches:
        if not is_elsewhere:
            conditions = Conditions(transcript, _known(conditions, reading))
        left = matches = find_matches(load_failures(), conditions)
        if not is_elsewhere:
            left, facts = compare(matches, reading)
    words = dict(placeholders)
    causes = rank(left)
    if causes:
        words |= library_placeholders(causes[0], conditions, words)
    if not is_elsewhere:
        words |= gpu_placeholders(reading)
    causes += find_matches(load_lookalikes(), conditions)
    machine = reading.machine
    found = causes_of(causes, conditions, machine, words)
    refuted = [
        match
        for match in matches
        if match.failure.id in facts and not facts[match.failure.id].holds
    ]
    return Explanation(
        tuple(_with_local_fix(cause, facts, reading) for cause in found),
        causes_of(refuted, conditions, machine, words),
        facts,
        reading,
        is_elsewhere,
    )


def library_placeholders(
    match: Match, conditions: Conditions, known: Mapping[str, str]
) -> dict[str, str]:
    """Return the package of the CUDA library in a message.

    Args:
        match: The failure with the message.
        conditions: The conditions that the text meets.
        known: The values of placeholders for the environment.
    """
    values = conditions.placeholders | Conditions(match.evidence).placeholders_of(True)
    library = values.get("library", "")
    libraries = load_libraries()
    # cublas64_13.dll is libcublas on Linux.
    row = libraries.row(re.sub(r"^(?:lib)?([a-z]\w*?)(64_|\.).*", r"lib\1", library))
    if row is None:
        return {}
    cuda = values.get("cuda-major") or known.get("cuda", COMMON_CUDA).partition(".")[0]
    major = libraries.cuda(library) or int(cuda)
    package = row.package_for(major) or ""
    version = re.search(r"cudnn\w*(?:\.so\.|64_)(\d)", library)
    return {"package": f"'{package}=={version[1]}.*'" if version else package}


def _is_elsewhere(conditions: Conditions, reading: LocalReading) -> bool:
    """Return whether a text mentions another torch, GPU, or platform."""
    machine, torch = reading.machine, reading.torch
    text = "\n".join(conditions.transcript.lines).lower()
    versions = set(_TORCH.findall(text))
    if torch and versions:
        version, _, label = torch.version.partition("+")
        # A version without a local label matches any build.
        if versions.isdisjoint({(version, ""), (version, f"+{label}")}):
            return True
    gpus = set(_GPU.findall(text))
    names = " ".join(gpu.label for gpu in machine.gpus).lower()
    if gpus and not any(gpu in names for gpu in gpus):
        return True
    own = {*known_of(machine), machine.environment.container}
    return any(map(conditions.hold, _PLACES - own))


def _known(conditions: Conditions, reading: LocalReading) -> list[str]:
    """Return the conditions of failures that are true on this machine."""
    known = [*known_of(reading.machine)]
    if reading.environ.get("HSA_OVERRIDE_GFX_VERSION"):
        known.append("gfx-override")
    if reading.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}:
        known.append("devices-hidden")
    major = reading.torch and (reading.torch.backend.version or "").partition(".")[0]
    library = load_libraries().cuda(conditions.placeholders.get("library", ""))
    if major and library:
        known.append("same-cuda-major" if str(library) == major else "other-cuda-major")
    return known


def compare(
    matches: Sequence[Match], reading: LocalReading
) -> tuple[Sequence[Match], dict[str, LocalFact]]:
    """Remove failures that this machine refutes, and prefer confirmed ones.

    Returns:
        The other failures, and the facts of this machine by failure ID.
    """
    facts = {}
    left = []
    confirmed = []
    for match in matches:
        fact = local_fact(match.failure, reading)
        if fact is None:
            left.append(match)
            continue
        facts[match.failure.id] = fact
        if fact.holds:
            confirmed.append(match._replace(weight=max(match.weight, CONFIRMED)))
    if confirmed:
        return confirmed, facts
    # If the text shows only symptoms or consequences, report the faults of this machine that cause them.
    faults = {one.id for one in reading.machine.problems if one.id and one.blocking}
    for match in [one for one in left if not one.failure.is_symptom] or left:
        failure = match.failure
        for entry in failure.narrows or sorted(faults.intersection(failure.unless)):
            cause = match._replace(failure=load_failures()[entry])
            fact = local_fact(cause.failure, reading)
            if fact and fact.holds and entry not in facts:
                facts[entry] = fact
                confirmed.append(cause)
    return confirmed or left, facts


def _with_local_fix(
    cause: RecognizedCause, facts: Mapping[str, LocalFact], reading: LocalReading
) -> RecognizedCause:
    """Use the fix of this machine's fault, if it confirms a cause."""
    for problem in reading.machine.problems:
        if problem.id == cause.id and problem.blocking and cause.id in facts:
            return replace(cause, fix=problem.fixes)
    return cause
